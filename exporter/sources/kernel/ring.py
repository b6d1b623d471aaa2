"""The kernel's ring buffer: through /dev/kmsg, which numbers its records, or syslog(2), which does not."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterator

from exporter.core.decoding import kernel_records
from exporter.sources.base import SourceStats
from exporter.sources.kernel.transport import KernelPosition, Line, PersistentTransport

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


PATH = "/dev/kmsg"
READS_A_POLL = 1 << 16  # skipping consumed records takes a microsecond each; a ring of 2 MiB holds at most this many
RECORD_BYTES = 16384  # twice CONSOLE_EXT_LOG_MAX, the largest record: a smaller read is refused with EINVAL
_NUMBER = (1, 11)  # Documentation/admin-guide/devices.txt
_SURVIVED = (errno.EPIPE, errno.ECONNRESET, errno.EINVAL)


class KmsgDevice(PersistentTransport):
    """The kernel's ring buffer through an open descriptor, starting at its oldest record (dev-kmsg)."""

    def __init__(self, descriptor: int, position: KernelPosition) -> None:
        self._fd = descriptor
        self._position = position

    @classmethod
    def open(cls, path: str, position: KernelPosition) -> KmsgDevice:
        status = os.stat(path)
        number = os.major(status.st_rdev), os.minor(status.st_rdev)
        if not stat.S_ISCHR(status.st_mode) or number != _NUMBER:
            # LXC and kind link it to a console: that would look idle for ever, and lose the console's input to us
            raise OSError(errno.ENODEV, f"{path} is not the kernel's log device (1:11)")
        return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), position)

    def read(self, now: float) -> Iterator[Line]:  # noqa: ARG002 (some transports need the time)
        for _ in range(READS_A_POLL):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SURVIVED:
                    raise
                continue  # overtaken by the ring (EPIPE), or one unreadable record: the next number tells how many
            if not record:
                return
            header = kernel_records.parse_header(record)
            if header:
                if self._is_consumed(header):
                    continue
                us = self._position.us if header.us is None else header.us
                self._position = KernelPosition(boot_id=self._position.boot_id, us=us, seq=header.seq)
            yield Line(data=kernel_records.fold(record), position=self._position)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def _is_consumed(self, header: kernel_records.Header) -> bool:
        if self._position.seq is not None and header.seq is not None:
            return header.seq <= self._position.seq
        # The position comes from a transport without numbers.
        return header.us is not None and header.us <= self._position.us


READ_SECONDS = 2.0  # a read costs the kernel a walk over the whole ring
READ_BYTES = 4 << 20  # of a larger ring only the newest: a storm of 19,000 records a second (NPD#1168) fills 2 s of it


class SyslogRing(PersistentTransport):
    """The new lines of the ring buffer: those after the last line seen, which is found by its time and text."""

    def __init__(self, position: KernelPosition, stats: SourceStats) -> None:
        # The ring's size is without prefixes: READ_ALL adds some 20 bytes to each record, which takes 32 in the ring.
        self._buffer_bytes = min(2 * klogctl(SYSLOG_ACTION_SIZE_BUFFER), READ_BYTES)
        self._position = position
        self._stats = stats
        self._last_read: float | None = None
        first = kernel_records.parse_header(next(kernel_records.from_syslog(self._text()), b""))
        if first and first.us is None:
            raise OSError(errno.ENODATA, "its lines carry no time; write 1 to /sys/module/printk/parameters/time")

    def read(self, now: float) -> Iterator[Line]:
        if self._last_read is not None and 0 <= now - self._last_read < READ_SECONDS:
            return
        text = self._text()
        start = kernel_records.find_in_syslog(text, self._position.us, self._position.same)
        if text and start is None and self._position.same:
            self._stats.drop("ring_wrapped")  # how many lines are gone, nobody can tell
        newest_us = self._position.us if start is None else -1
        for line in kernel_records.from_syslog(text, start or 0):
            header = kernel_records.parse_header(line)
            if header is None or header.us is None or header.us <= newest_us:
                continue
            run = self._position.same if header.us == self._position.us else ""
            self._position = KernelPosition(
                boot_id=self._position.boot_id, us=header.us, same=kernel_records.chain(run, line)
            )
            yield Line(data=line, position=self._position)
        self._last_read = now

    def fileno(self) -> int | None:
        return None

    def close(self) -> None: ...

    def _text(self) -> bytes:
        buffer = bytearray(self._buffer_bytes)
        size = klogctl(SYSLOG_ACTION_READ_ALL, buffer)
        return bytes(memoryview(buffer)[:size])
