"""The main loop's sleep: until a source's descriptor is readable, someone calls `wake`, or the time is up."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable


class Waker:
    """A pipe to oneself. `wake` may be called from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop is about to wake anyway
            os.write(self._write, b"!")

    def wait(self, descriptors: Iterable[int], seconds: float) -> None:
        poll = select.poll()
        for descriptor in (self._read, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
