"""A file or FIFO to which records are written in the device's form: followed through rotation and truncation."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
from collections.abc import Iterator
from dataclasses import replace

from exporter.core import kmsg
from exporter.sources.base import SourceStats
from exporter.sources.kernel.libc import Alarm
from exporter.sources.kernel.way import Line, Place

READS_A_POLL = 64  # of READ_BYTES: 1 MiB
READ_BYTES = 16384
RECORD_BYTES = 64 << 10  # no kernel writes one of more than 8 KiB; what never ends is cut here
SETTLE_SECONDS = 0.05  # a record's properties come in the same write, or in the next one at once
_RECORD = re.compile(rb"[^\n]*\n(?: [^\n]*\n)*")  # a line, and the ` KEY=value` lines that belong to it


class Followed:
    """Its records, each as soon as another one follows or nothing has followed for SETTLE_SECONDS."""

    def __init__(self, path: str, place: Place, stats: SourceStats) -> None:
        self._path = path
        self._stats = stats
        self._tail = bytearray()  # a record that may not be all there yet
        self._written = 0.0  # when the tail last grew
        self._news = select.epoll()
        self._open(place)
        self._alarm = Alarm()
        self._news.register(self._alarm.fd, select.EPOLLIN)

    def read(self, now: float) -> Iterator[Line]:
        replaced = self._is_replaced()  # asked before reading: what was written to the old file until now is read
        if self._is_cut():
            self._stats.truncations += 1
            rest = self._cut_off(len(self._tail))
            self._go_to(0)
            yield from self._lines_of(rest)
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
        if replaced or (self._tail.endswith(b"\n") and not waits):
            yield from self._lines_of(self._cut_off(len(self._tail)))
        if replaced:
            self._stats.rotations += 1
            os.close(self._fd)
            self._open(replace(self._place, file="", at=0))

    def fileno(self) -> int | None:
        return self._news.fileno()

    def close(self) -> None:
        self._news.close()
        os.close(self._alarm.fd)
        os.close(self._fd)

    def _open(self, goes_on: Place) -> None:
        # A FIFO is opened for writing too (fifo(7): Linux never waits then). With a writer always there, us, it does
        # not end, nor wake the daemon again and again with POLLHUP, when its last other writer leaves.
        mode = os.stat(self._path).st_mode
        self._is_fifo = stat.S_ISFIFO(mode)
        if not self._is_fifo and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"{self._path} is neither a file nor a FIFO")
        access = os.O_RDWR if self._is_fifo else os.O_RDONLY
        self._fd = os.open(self._path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        if self._is_fifo:
            self._news.register(self._fd, select.EPOLLIN)
            self._place = replace(goes_on, boot_id="", file="", at=0)
            return
        status = os.fstat(self._fd)
        self._place = replace(goes_on, boot_id="", file=_name_of(status))
        if goes_on.file not in ("", self._place.file):
            self._stats.rotations += 1
            self._go_to(0)
        elif goes_on.at > status.st_size:
            self._stats.truncations += 1
            self._go_to(0)
        else:
            self._go_to(goes_on.at)

    def _go_to(self, at: int) -> None:
        os.lseek(self._fd, at, os.SEEK_SET)
        self._place = replace(self._place, at=at)

    def _is_replaced(self) -> bool:
        with contextlib.suppress(FileNotFoundError):  # between a rotation's rename and its create
            return not self._is_fifo and _name_of(os.stat(self._path)) != self._place.file
        return False

    def _is_cut(self) -> bool:
        return not self._is_fifo and os.fstat(self._fd).st_size < self._place.at + len(self._tail)

    def _more(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._fd, READ_BYTES)
        return b""

    def _complete(self) -> Iterator[Line]:
        """The records that something else follows; the last one may still get properties."""
        while (end := _first_end(self._tail)) is not None or len(self._tail) > RECORD_BYTES:
            yield from self._lines_of(self._cut_off(end or len(self._tail)))

    def _cut_off(self, size: int) -> bytes:
        record = bytes(self._tail[:size])
        del self._tail[:size]
        if not self._is_fifo:
            self._place = replace(self._place, at=self._place.at + size)
        return record

    def _lines_of(self, record: bytes) -> Iterator[Line]:
        """The one line of a record; none of what is blank or has lost its record."""
        if record.startswith(b" "):
            self._stats.drop("orphan_property")
        elif record.strip():
            header = kmsg.parse_header(record)
            if header:
                self._stats.lost_records += self._place.gap_before(header)
                self._place = replace(self._place, seq=header.seq)
            yield Line(data=kmsg.fold(record), place=self._place)


def _first_end(tail: bytearray) -> int | None:
    """Where the first record ends, if something else than a property follows it."""
    found = _RECORD.match(tail)
    end = found.end() if found else len(tail)
    return end if end < len(tail) and tail[end] != ord(" ") else None


def _name_of(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"
