"""A file or FIFO with records in /dev/kmsg form, followed through rotation and truncation."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
from collections.abc import Iterator
from dataclasses import replace

from exporter.core.decoding import kernel_records
from exporter.sources.base import SourceStats
from exporter.sources.kernel import rotated
from exporter.sources.kernel.libc import Alarm
from exporter.sources.kernel.transport import Line, Place

READS_A_POLL = 64  # of READ_BYTES: 1 MiB
READ_BYTES = 16384
RECORD_BYTES = 64 << 10  # no kernel writes one of more than 8 KiB; what never ends is cut here
SETTLE_SECONDS = 0.05  # a record's properties come in the same write, or in the next one at once
LINGER_SECONDS = 1.0  # a writer opens its log anew a moment after rotation has renamed it
LONGEST_LINGER_SECONDS = 10.0
_RECORD = re.compile(rb"[^\n]*\n(?: [^\n]*\n)*")  # a line, and the ` KEY=value` lines that belong to it


class Followed:
    """The records of a file, each when another one follows or after SETTLE_SECONDS.

    A file is identified by the bytes before the place. A rotated file is read to its end, then later rotated files, then
    the file at the path.
    """

    def __init__(self, path: str, place: Place, stats: SourceStats, taken: bytes = b"") -> None:
        """taken: records that were read from the FIFO earlier and are not consumed."""
        self._path = path
        self._stats = stats
        self._tail = bytearray(taken)  # a record that may not be all there yet
        self._written = 0.0  # when the tail last grew
        self._left: float | None = None  # since when another file has been at the path
        self._place = replace(place, boot_id="")
        self._fd = -1
        self._alarm = Alarm()
        self._news = select.epoll()
        try:
            self._news.register(self._alarm.fd, select.EPOLLIN)
            self._go_on()
        except BaseException:
            self.close()
            raise

    @property
    def takes(self) -> bool:
        return self._is_fifo

    @property
    def rest(self) -> bytes:
        return bytes(self._tail) if self._is_fifo else b""

    @property
    def last_line(self) -> bytes:
        """The last line of the file, also if it is still being written; empty for a FIFO."""
        if self._is_fifo:
            return b""
        start = max(0, os.fstat(self._fd).st_size - READ_BYTES)
        return os.pread(self._fd, READ_BYTES, start).rstrip(b"\n").rpartition(b"\n")[2]

    def read(self, now: float) -> Iterator[Line]:
        replaced = self._is_replaced()  # asked before reading: what was written to the old file until now is read
        if not self._is_fifo and not rotated.holds(self._fd, self._place, len(self._tail)):
            rest = self._cut_off(len(self._tail))
            yield from self._lines_of(rest)
            self._go_on()
        for _ in range(READS_A_POLL):
            yield from self._complete()
            more = self._more()
            if not more:
                break
            self._tail += more
            self._written = now if self._is_fifo else os.fstat(self._fd).st_mtime
        else:
            return
        waits = self._tail.endswith(b"\n") and 0 <= now - self._written < SETTLE_SECONDS
        self._alarm.set(1.1 * SETTLE_SECONDS if waits else 0)  # not a moment too early for the line above
        leaves = replaced and self._is_over(now)
        if leaves or (self._tail.endswith(b"\n") and not waits):
            yield from self._lines_of(self._cut_off(len(self._tail)))
        if leaves:
            self._leave()

    def fileno(self) -> int | None:
        return self._news.fileno()

    def close(self) -> None:
        self._news.close()
        os.close(self._alarm.fd)
        if self._fd >= 0:
            os.close(self._fd)

    def _go_on(self) -> None:
        """Open the file that was being read, at the place; if it is gone, the one at the path, from its beginning."""
        self._open(self._path)
        place = self._place
        if self._is_fifo or not place.file or rotated.holds(self._fd, place):
            self._go_to(place.at if place.file else 0)
            return
        status = os.fstat(self._fd)
        if older := rotated.holder(self._path, place):
            self._open(older)
            self._go_to(place.at)
        elif rotated.has_fallen_back(self._fd, place):
            self._go_to(status.st_size)
        elif place.file == rotated.name_of(status):
            self._stats.truncations += 1
            self._begin()
        else:
            self._stats.rotations += 1
            self._begin()

    def _leave(self) -> None:
        """The file has been read to its end, and is no longer the one at the path."""
        next_one = None if self._is_fifo else rotated.next_after(self._path, os.fstat(self._fd), self._place)
        self._open(next_one or self._path)
        self._left = self._left if next_one else None
        if not self._is_fifo and rotated.holds(self._fd, self._place):
            self._go_to(self._place.at)  # a copy that has taken the place
        else:
            self._stats.rotations += 1
            self._begin()

    def _begin(self) -> None:
        self._place = replace(self._place, at=0, line=1, last="", head="")
        self._go_to(0)

    def _open(self, path: str) -> None:
        """Replace the open file by this one. Raises OSError and keeps the open one."""
        # A FIFO is opened for writing too (fifo(7): Linux never waits then). With a writer always there, us, it does
        # not end, nor wake the daemon again and again with POLLHUP, when its last other writer leaves.
        mode = os.stat(path).st_mode
        is_fifo = stat.S_ISFIFO(mode)
        if not is_fifo and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"{path} is neither a file nor a FIFO")
        descriptor = os.open(path, (os.O_RDWR if is_fifo else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._is_fifo = descriptor, is_fifo
        self._name = rotated.name_of(os.fstat(descriptor))
        if is_fifo:
            self._news.register(descriptor, select.EPOLLIN)

    def _go_to(self, at: int) -> None:
        if self._is_fifo:
            self._place = replace(self._place, file="", at=0, line=0, head="", last="", modified=0)
            return
        os.lseek(self._fd, at, os.SEEK_SET)
        last, line = self._place.last, self._place.line
        if at != self._place.at:
            last, line = rotated.before(self._fd, at), 0
        self._place = replace(self._place, file=self._name, at=at, line=line if at else 1, last=last)

    def _is_replaced(self) -> bool:
        with contextlib.suppress(FileNotFoundError):  # between a rotation's rename and its create
            return rotated.name_of(os.stat(self._path)) != self._name
        return False

    def _is_over(self, now: float) -> bool:
        """Whether a renamed file has been read to its end and its writer has stopped."""
        if self._is_fifo:
            return True
        self._left = now if self._left is None else self._left
        waited, rested = now - self._left, now - os.fstat(self._fd).st_mtime
        if 0 <= waited < LINGER_SECONDS:
            return False
        return not 0 <= rested < LINGER_SECONDS or not 0 <= waited < LONGEST_LINGER_SECONDS

    def _more(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._fd, READ_BYTES)
        return b""

    def _complete(self) -> Iterator[Line]:
        """The complete records. The last one is incomplete: properties may follow it."""
        while (end := _first_end(self._tail)) is not None or len(self._tail) > RECORD_BYTES:
            yield from self._lines_of(self._cut_off(end or len(self._tail)))

    def _cut_off(self, size: int) -> bytes:
        record = bytes(self._tail[:size])
        del self._tail[:size]
        if record and not self._is_fifo:
            place = self._place
            self._place = replace(
                place,
                at=place.at + size,
                line=place.line + record.count(b"\n") if place.line else 0,
                head=place.head if place.at else record[: rotated.KNOWN_BYTES].hex(),
                last=record[-rotated.KNOWN_BYTES :].hex(),
            )
        return record

    def _lines_of(self, record: bytes) -> Iterator[Line]:
        """The line of a record as a list; empty for blank lines and for properties without a record."""
        number = self._place.line - record.count(b"\n") if self._place.line else 0
        record = record.lstrip(b"\0")  # what a loss of power leaves of writes that it cut short
        if record.startswith(b" "):
            self._stats.drop("orphan_property")
        elif record.strip():
            header = kernel_records.parse_header(record)
            if header:
                self._place = replace(self._place, seq=header.seq)
            if not self._is_fifo:
                self._place = replace(self._place, modified=os.fstat(self._fd).st_mtime_ns)
            yield Line(data=kernel_records.fold(record), place=self._place, number=number)


def _first_end(tail: bytearray) -> int | None:
    """The end of the first record, if another record follows it."""
    found = _RECORD.match(tail)
    end = found.end() if found else len(tail)
    return end if end < len(tail) and tail[end] != ord(" ") else None
