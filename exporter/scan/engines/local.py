"""Workers as processes on this machine."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from exporter.scan.work import Done, Item, Recipe, prepare_by, read_prepared

AHEAD = 16  # batches a worker that wait to be read, or to be told of: a slow one holds up nobody, and few are held


class Local:
    """A pool of processes; replaced when one of them dies."""

    span_bytes = 64 << 20  # a tenth of a second: 20 GB are 300 of them
    batch_bytes = 8 << 20
    batch_seconds = 0.0
    remote = False

    def __init__(self, workers: int) -> None:
        self.width = workers * AHEAD
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, recipe: Callable[[], Recipe], items: Sequence[Item]) -> Future[Done]:
        # Ctrl-C reaches all processes of a terminal; this one decides. Its children inherit what is blocked now.
        with _interrupts_blocked():
            if self._pool is not None:
                try:
                    return self._pool.submit(read_prepared, items)
                except BrokenProcessPool:
                    self._drop()
            # A fork has what is built and imported here, in no time; with other threads, it might have their locks too.
            if threading.active_count() == 1:
                method, given = "fork", None
            else:
                method, given = "forkserver", recipe()
            context = multiprocessing.get_context(method)
            self._pool = ProcessPoolExecutor(self._workers, context, initializer=_begin, initargs=(given,))
            return self._pool.submit(read_prepared, items)

    def loss(self, error: BaseException) -> str:
        if isinstance(error, BrokenProcessPool):
            return "the process that read it died; did it run out of memory? See `dmesg`"
        return ""

    def check(self) -> None:
        """Does nothing: the batches of a dead process fail."""

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._drop()
        elif self._pool is not None:
            self._pool.shutdown()

    def _drop(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        # Only Python 3.14 has kill_workers; without it, shutdown would wait for what they are at.
        processes = list((getattr(pool, "_processes", None) or {}).values())
        for process in processes:
            process.kill()
        # Waits for the pool's thread: the interpreter's end would write to the pipe that this thread is closing.
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(recipe: Recipe | None) -> None:
    """Prepare a worker. It waits for work without a limit, so it must notice that its parent has died.

    recipe: None in a fork of a process that was prepared.
    SIGINT is blocked again: starting multiprocessing's resource tracker unblocks it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if recipe:
        prepare_by(recipe)
