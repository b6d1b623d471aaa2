"""Interruptible sleep for a main loop."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable


class Waker:
    """Sleeps until a descriptor is readable, `wake` is called, or a timeout expires."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the current or the next `wait`. From any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so `wait` returns anyway
            os.write(self._write, b"!")

    def wait(self, descriptors: Iterable[int], seconds: float) -> None:
        """Sleep until one of `descriptors` is readable or `wake` is called, at most `seconds`."""
        poll = select.poll()
        for descriptor in (self._read, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
