"""Answers kept for all readers, and a bounded number of them made at a time.

An answer that exists is served from the event loop, whatever is being made. After a change the previous answer is served
while the next one is made. Only the event loop's thread touches the cache; answers are made in threads.
"""

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import Response

MAX_ANSWERS = 500
MAX_BYTES = 64 << 20
NEW_SECONDS = 15.0  # before an answer is made again, since pages say how old the data is
LONGEST_SECONDS = 30.0  # that an answer is served
BUSY_SECONDS = 600.0  # that it is served where no other can be made
MAKERS = 2  # answers made at a time: each may take DuckDB's threads, and memory for its rows
USUAL_MAKERS = 1  # for the usual pages, besides: however many other addresses are asked for, these are made
MAX_WAITING = 8  # answers being made or waited for, of all but the usual pages
RETRY_SECONDS = 5

Clock = Callable[[], float]
Make = Callable[[], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What answers depend on. After a change of `seen` the previous answer may be served; after one of `health` it may not."""

    health: Hashable = ()
    seen: Hashable = ()


class Busy(Exception):
    """As many answers are being made as may be; ask again after RETRY_SECONDS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    response: Response
    state: PageState
    made: float


class PageCache:
    """Answers by address. Readers of an address that has no recent answer wait together for one to be made."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._size = 0
        self._making: dict[Hashable, asyncio.Task[_Answer]] = {}
        self._others = 0  # of these, those that are not usual
        self._makers, self._usual_makers = CapacityLimiter(MAKERS), CapacityLimiter(USUAL_MAKERS)

    async def get(
        self, address: Hashable, state: PageState, make: Make, *, usual: bool = False, keep: bool = True
    ) -> Response:
        """An answer of the last 30 s, with its age as a header. What `make` raises, and any error, is not kept.

        usual: one of the few addresses that most readers ask for. keep: False for an answer that only readers who wait
        for it now get. Raises Busy.
        """
        answer = self._answers.get(address)
        if answer is not None:
            self._answers.move_to_end(address)
        if answer is None or not self._is_served(answer, state, LONGEST_SECONDS):
            try:
                answer = await asyncio.shield(self._make(address, state, make, usual=usual, keep=keep))
            except Busy:
                if answer is None or not self._is_served(answer, state, BUSY_SECONDS):
                    raise
        elif answer.state != state or self._clock() - answer.made > NEW_SECONDS:
            with suppress(Busy):  # then a later reader asks again
                self._make(address, state, make, usual=usual, keep=keep)
        return _aged(answer.response, self._clock() - answer.made)

    def _is_served(self, answer: _Answer, state: PageState, longest: float) -> bool:
        return answer.state.health == state.health and self._clock() - answer.made <= longest

    def _make(
        self, address: Hashable, state: PageState, make: Make, *, usual: bool, keep: bool
    ) -> asyncio.Task[_Answer]:
        """The task that makes an answer; the one that does so already, if there is one. Raises Busy."""
        if address in self._making:
            return self._making[address]
        if not usual:
            if self._others >= MAX_WAITING:
                raise Busy
            self._others += 1

        async def work() -> _Answer:
            made = self._clock()
            response = await run_sync(make, limiter=self._usual_makers if usual else self._makers)
            answer = _Answer(response=response, state=state, made=made)
            if keep and response.status_code == 200:
                self._keep(address, answer)
            return answer

        def done(task: asyncio.Task[_Answer]) -> None:
            del self._making[address]
            self._others -= not usual
            if not task.cancelled():
                task.exception()  # whoever waits for it gets it; nobody may

        task = self._making[address] = asyncio.get_running_loop().create_task(work())
        task.add_done_callback(done)
        return task

    def _keep(self, address: Hashable, answer: _Answer) -> None:
        before = self._answers.pop(address, None)
        self._answers[address] = answer
        self._size += len(answer.response.body) - (len(before.response.body) if before else 0)
        while len(self._answers) > MAX_ANSWERS or (self._size > MAX_BYTES and len(self._answers) > 1):
            _, oldest = self._answers.popitem(last=False)
            self._size -= len(oldest.response.body)


def _aged(response: Response, age: float) -> Response:
    """The response with its age in seconds (RFC 9111 §5.1)."""
    aged = copy.copy(response)
    aged.raw_headers = [*response.raw_headers, (b"age", str(int(age)).encode())]
    return aged
