"""Reads sources in a thread of their own, so that a file system that hangs does not keep the kernel's log from being read.

The thread and the main loop take turns, as if there were one thread: the main loop runs only while the thread waits for a
call (see `calls`) or for the main loop. So no other part has to know of the thread, and what a commit stores is what it would
have stored if the call had failed.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import Chunk
from exporter.sources.base import Source, SourceStats
from exporter.sources.calls import END_SECONDS, Calls, Lanes

SLICE_SECONDS = 0.05  # of waiting for the thread, between two looks at the kernel's log
STUCK_SECONDS = 0.25  # in one call: the main loop goes on without the thread
STALLED_SECONDS = 1.0  # in one call: the source is reported as stalled


class FileSource(Source, Protocol):
    """A source whose positions are also published where other nodes see them."""

    @property
    def is_shared(self) -> bool: ...

    def committed(self) -> None:
        """Record that the positions have been committed; `saved` also publishes them."""


class ReaderThread:
    """The thread. One for all sources that know of each other's logs."""

    def __init__(self, lanes: Lanes, wake: Callable[[], None]) -> None:
        """wake: ends the main loop's sleep when a call has returned that it did not wait for."""
        self.calls = Calls(lanes)
        self.user: object = None  # whose function it runs
        self._wake = wake
        self._is_awaited = True
        self._queue: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._done = threading.Event()
        self._done.set()
        self._answer: tuple[Any, BaseException | None] = None, None
        self._closes: Sequence[Callable[[], None]] = ()
        self._thread = threading.Thread(target=self._run, name="job logs", daemon=True)
        self._thread.start()

    @property
    def is_free(self) -> bool:
        return self.user is None

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def begin(self, user: object, function: Callable[[], Any]) -> None:
        """Let the thread call a function. Only while it is free."""
        self.user, self._is_awaited = user, True
        self._done.clear()
        self._queue.put(function)

    def is_done(self, seconds: float) -> bool:
        """Wait for the end of the function."""
        with self.running():
            return self._done.wait(seconds)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The main loop waits for something, and the thread may run."""
        self.calls.turn.release()
        try:
            yield
        finally:
            self.calls.turn.acquire()

    def is_stuck(self) -> bool:
        """Whether the function waits for a file system. Then the main loop is woken when it ends."""
        self._is_awaited = self.calls.waiting() < STUCK_SECONDS
        return not self._is_awaited

    def result(self) -> Any:
        """What the function returned. Raises what it raised. The thread is free then."""
        self.user = None
        value, error = self._answer
        self._answer = None, None
        if error is not None:
            raise error
        return value

    def run(self, user: object, function: Callable[[], Any]) -> bool:
        """Call a function in the thread, and wait for it. False if it waits for a file system: `result` comes later."""
        self.begin(user, function)
        while not self.is_done(SLICE_SECONDS):
            if self.is_stuck():
                return False
        self.result()
        return True

    def end(self, closes: Sequence[Callable[[], None]]) -> None:
        """End the thread; one that waits for a file system ends when that answers. closes: close the sources."""
        self._closes = closes
        if self._done.is_set() and self.run(self, self._close):
            self._queue.put(None)
            self._thread.join(END_SECONDS)
        else:
            self.calls.abandon()

    def _close(self) -> None:
        for close in self._closes:
            close()

    def _run(self) -> None:
        with self.calls.attached():
            while not self.calls.abandoned and (function := self._queue.get()) is not None:
                self.calls.turn.acquire()
                try:
                    self._answer = function(), None
                except BaseException as error:
                    self._answer = None, error
                del function
                self.calls.turn.release()
                self._done.set()
                if not self._is_awaited:
                    self._wake()
        if self.calls.abandoned:  # nobody takes turns with it any more
            with suppress(Exception):
                self._close()


_NO_CHUNK = object()  # what a call returns that gives no chunk and ends no round


def _no_chunk(function: Callable[[], None]) -> object:
    function()
    return _NO_CHUNK


def _poll_chunks(source: Source, now: float) -> Generator[Chunk | None, None, None]:
    yield from source.poll(now)


class ThreadedSource:
    """A source that is read in a reader thread. Yields None while the main loop has to wait for it."""

    overwritten = False

    def __init__(self, source: FileSource, thread: ReaderThread) -> None:
        self.name = source.name
        self.source = source
        self._thread = thread
        self._round: Generator[Chunk | None, None, None] | None = None
        self._has_scanned = False  # at all there is, once
        self._is_last = False  # the chunk that was handed out last ends its log

    @property
    def stats(self) -> SourceStats:
        return self.source.stats

    @stats.setter
    def stats(self, stats: SourceStats) -> None:
        self.source.stats = stats

    def poll(self, now: float) -> Iterator[Chunk | None]:
        thread = self._thread
        try:
            if thread.is_free or (thread.user is self and thread.is_done(SLICE_SECONDS / 10)):
                yield from self._chunks(now)
        finally:
            if self._round is not None and thread.is_free and thread.run(self, self._round.close):
                self._round = None
            self._report_stalls()

    def advance(self, log: str, consumed: int, lines: int) -> None:
        advance = partial(self.source.advance, log, consumed, lines)
        if self._is_last:
            self._thread.run(self, partial(_no_chunk, advance))  # it closes the log's file
        else:
            advance()

    def unsaved(self) -> Mapping[str, str | None]:
        return self.source.unsaved()

    def saved(self) -> None:
        if self.source.is_shared and self._thread.is_free:
            self._thread.run(self, partial(_no_chunk, self.source.saved))
        else:
            self.source.committed()

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing: `ReaderThread.end` closes all sources of its thread."""

    def _chunks(self, now: float) -> Iterator[Chunk | None]:
        thread = self._thread
        while True:
            if thread.is_free:
                if self._round is None:
                    thread.calls.begin(self.name)
                    self._round = _poll_chunks(self.source, now)
                thread.begin(self, partial(next, self._round, None))
            while not thread.is_done(SLICE_SECONDS):
                if thread.is_stuck():
                    return
                yield None
            chunk = self._result()
            if chunk is None:
                return
            if isinstance(chunk, Chunk):
                self._is_last = chunk.end == "final"
                yield chunk if chunk.read_at == now else replace(chunk, read_at=now)

    def _result(self) -> object:
        """What the thread has returned: a chunk, None at the end of a round, or neither."""
        result = None
        try:
            result = self._thread.result()
        finally:
            if result is None:
                self._round = None
            self._has_scanned = self._has_scanned or result is not _NO_CHUNK
        return result

    def _report_stalls(self) -> None:
        """Say what the source waits for."""
        now = time.monotonic()
        stalls = [stall for stall in self._thread.calls.stalls(self.name) if now - stall.since >= STALLED_SECONDS]
        reasons = [
            f"{stall.mount} has not answered since {rfc3339(time.time() - (now - stall.since))}" for stall in stalls
        ]
        if not self._has_scanned:
            reasons.append("initial scan in progress")
        self.stats.stalled = "; ".join(reasons)
        self.stats.stalled_seconds = max((now - stall.since for stall in stalls), default=0.0)
