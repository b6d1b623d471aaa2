"""Two system calls that Python before 3.13 lacks: klogctl and timerfd."""

import ctypes
import os
import time

SYSLOG_ACTION_READ_ALL = 3  # syslog(2)
SYSLOG_ACTION_SIZE_BUFFER = 10


def klogctl(action: int, buffer: bytearray | None = None) -> int:
    """Call syslog(2). Returns bytes read or a size, depending on the action. Raises OSError."""
    size = len(buffer) if buffer else 0
    into = (ctypes.c_char * size).from_buffer(buffer) if buffer else None
    return _checked(_libc().klogctl(action, into, size))


class Alarm:
    """A timer whose descriptor becomes readable when it expires: timerfd_create(2)."""

    def __init__(self) -> None:
        self.fd = _checked(_libc().timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))

    def set(self, seconds: float) -> None:
        """Expire once after `seconds` (less than one); 0 disarms the timer."""
        interval_and_value = (ctypes.c_long * 4)(0, 0, 0, int(seconds * 1e9))  # struct itimerspec
        _checked(_libc().timerfd_settime(self.fd, 0, interval_and_value, None))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
