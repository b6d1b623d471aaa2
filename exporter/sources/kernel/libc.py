"""The two things that the kernel offers and Python (before 3.13) does not: klogctl and a timer with a descriptor."""

from __future__ import annotations

import ctypes
import os
import time

SYSLOG_ACTION_READ_ALL = 3  # syslog(2)
SYSLOG_ACTION_SIZE_BUFFER = 10


def klogctl(action: int, buffer: bytearray | None = None) -> int:
    """syslog(2). What it returns depends on the action: bytes read, or a size. Raises OSError."""
    size = len(buffer) if buffer else 0
    into = (ctypes.c_char * size).from_buffer(buffer) if buffer else None
    return _checked(_libc().klogctl(action, into, size))


class Alarm:
    """A descriptor that becomes readable some time after it was set: timerfd_create(2)."""

    def __init__(self) -> None:
        self.fd = _checked(_libc().timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))

    def set(self, seconds: float) -> None:
        """Ring once in `seconds` (under one); 0 silences it."""
        interval_and_value = (ctypes.c_long * 4)(0, 0, 0, int(seconds * 1e9))  # struct itimerspec
        _checked(_libc().timerfd_settime(self.fd, 0, interval_and_value, None))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
