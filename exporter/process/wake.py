"""Interruptible sleep for a main loop."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable

_PIPE_BYTES = 1 << 16


class Waker:
    """Sleeps until a descriptor is readable, `wake` is called, or a timeout expires."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the current or the next `wait`. From any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so `wait` returns anyway
            os.write(self._write, b"!")

    def wait(self, descriptors: Iterable[int], seconds: float) -> bool:
        """Sleep until one of `descriptors` is readable or `wake` is called, at most `seconds`; whether `wake` was."""
        poll = select.poll()
        for descriptor in (self._read, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        return self.clear()

    def clear(self) -> bool:
        """Forget earlier calls of `wake`; whether there were any."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._read, _PIPE_BYTES))
        return False

    def fileno(self) -> int:
        """A descriptor that is readable after `wake`, for the wait of another."""
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
