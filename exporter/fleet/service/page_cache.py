"""Answers kept for all readers. After a change the previous answer is served while one thread makes the next one."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from starlette.responses import Response

MAX_ANSWERS = 500
MAX_BYTES = 64 << 20
NEW_SECONDS = 15.0  # before an answer is made again, since pages say how old the data is
LONGEST_SECONDS = 30.0  # that an answer is served

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What answers depend on. After a change of `seen` the previous answer may be served; after one of `health` it may not."""

    health: Hashable = ()
    seen: Hashable = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    response: Response
    state: State
    made: float


@dataclass(slots=True, eq=False)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by who makes the answer
    answer: _Answer | None = None


class PageCache:
    """Answers by address. Readers of an address that has no recent answer wait for one reader to make it."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._renewing = threading.Lock()  # one page at a time: readers come first

    def get(self, address: Hashable, state: State, make: Callable[[], Response]) -> Response:
        """An answer of the last 30 s, with its age as a header. What `make` raises is not kept."""
        with self._lock:
            entry = self._entries.setdefault(address, _Entry())
            self._entries.move_to_end(address)
        if not self._is_served(entry.answer, state):
            with entry.lock:
                if not self._is_served(entry.answer, state):
                    self._make(entry, state, make)
        answer = entry.answer
        assert answer is not None  # only ever replaced by a newer one
        if answer.state != state or self._clock() - answer.made > NEW_SECONDS:
            self._renew(entry, state, make)
        return _aged(answer.response, self._clock() - answer.made)

    def _is_served(self, answer: _Answer | None, state: State) -> bool:
        if answer is None or answer.state.health != state.health:
            return False
        return self._clock() - answer.made <= LONGEST_SECONDS

    def _make(self, entry: _Entry, state: State, make: Callable[[], Response]) -> None:
        made = self._clock()
        entry.answer = _Answer(response=make(), state=state, made=made)
        self._shrink()

    def _renew(self, entry: _Entry, state: State, make: Callable[[], Response]) -> None:
        """Make the next answer in a thread, unless one is being made: then a later reader asks again."""
        if not self._renewing.acquire(blocking=False):
            return

        def work() -> None:
            try:
                with entry.lock:
                    self._make(entry, state, make)
            except Exception:  # noqa: S110 - the reader after the old answer's end gets the same error
                pass
            finally:
                self._renewing.release()

        try:
            threading.Thread(target=work, name="renew-page", daemon=True).start()
        except RuntimeError:  # no thread can be started
            self._renewing.release()

    def _shrink(self) -> None:
        with self._lock:
            size = sum(len(each.answer.response.body) for each in self._entries.values() if each.answer)
            while len(self._entries) > MAX_ANSWERS or (size > MAX_BYTES and len(self._entries) > 1):
                _, oldest = self._entries.popitem(last=False)
                size -= len(oldest.answer.response.body) if oldest.answer else 0


def _aged(response: Response, age: float) -> Response:
    """The response with its age in seconds (RFC 9111 §5.1)."""
    aged = copy.copy(response)
    aged.raw_headers = [*response.raw_headers, (b"age", str(int(age)).encode())]
    return aged
