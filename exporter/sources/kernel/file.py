"""A file or FIFO with records in /dev/kmsg form, followed through rotation and truncation.

Compressed archives are not read; the sequence numbers show how many records they contain.
"""

import contextlib
import errno
import os
import re
import select
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace

from exporter.core.decoding import kernel_records
from exporter.sources.base import SourceStats
from exporter.sources.files.folders import COMPRESSED, is_numbered, snapshot
from exporter.sources.kernel.ring import Alarm
from exporter.sources.kernel.transport import KernelPosition, Line

CHECKED_BYTES = 64  # of a file's beginning, and before a position: each record has a number and a time of its own
_NUMBER = re.compile(r"\.(\d{1,5})\Z")


def file_id(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def bytes_before(descriptor: int, at: int) -> str:
    """The fingerprint of the position after these bytes."""
    size = min(at, CHECKED_BYTES)
    return os.pread(descriptor, size, at - size).hex()


def holds(descriptor: int, position: KernelPosition, more: int = 0) -> bool:
    """Whether a file has the bytes before the position, and `more` bytes after it."""
    status = os.fstat(descriptor)
    if status.st_size < position.at + more:
        return False
    if not position.last:  # nothing was read yet, or by a version that did not remember it
        return file_id(status) == position.file
    size = len(position.last) // 2
    return os.pread(descriptor, size, position.at - size).hex() == position.last


def has_fallen_back(descriptor: int, position: KernelPosition) -> bool:
    """Whether a file is an earlier state of the one that was read, after a power loss or a restore.

    A truncated file would have a later modification time.
    """
    status = os.fstat(descriptor)
    if status.st_mtime_ns > position.modified or not len(position.head) // 2 <= status.st_size < position.at:
        return False
    return _begins_alike(descriptor, position)


def holder(path: str, position: KernelPosition) -> str | None:
    """The sibling with the bytes before the position: the file itself, else a copy of it."""
    holders = [sibling for sibling, status in _siblings(path) if _may_hold(sibling, status, position)]
    same = [sibling for sibling in holders if file_id(os.stat(sibling)) == position.file]
    return next(iter(same or holders), None)


def next_after(path: str, read: os.stat_result, position: KernelPosition) -> str | None:
    """The oldest sibling modified after the file that was read; None if only the file at the path was."""
    at_path, was = file_id(os.stat(path)), file_id(read)
    siblings = list(_siblings(path))
    age = next((_age(sibling, status) for sibling, status in siblings if file_id(status) == was), (read.st_mtime_ns, 0))
    later = [
        (_age(sibling, status), sibling)
        for sibling, status in siblings
        if _age(sibling, status) > age and file_id(status) not in (at_path, was)
    ]
    return next((sibling for _, sibling in sorted(later) if not _is_copy(sibling, position)), None)


def _siblings(path: str) -> Iterator[tuple[str, os.stat_result]]:
    folder, name = os.path.split(path)
    for sibling in snapshot(folder or ".").siblings(name):
        if is_numbered(sibling, os.path.join(folder or ".", name)) and not sibling.endswith(COMPRESSED):
            try:
                status = os.stat(sibling)
            except FileNotFoundError:
                continue  # renamed on meanwhile
            yield sibling, status


def _age(sibling: str, status: os.stat_result) -> tuple[int, int]:
    """The sort key of siblings, oldest first; of equal times, the larger number is older."""
    number = _NUMBER.search(sibling)
    return status.st_mtime_ns, -int(number[1]) if number else 0


def _may_hold(sibling: str, status: os.stat_result, position: KernelPosition) -> bool:
    return status.st_size >= position.at and _check_file(
        sibling, lambda descriptor: holds(descriptor, position), gone=False
    )


def _is_copy(sibling: str, position: KernelPosition) -> bool:
    """Whether a file begins like the one that was read."""
    return _check_file(sibling, lambda descriptor: _begins_alike(descriptor, position), gone=True)


def _begins_alike(descriptor: int, position: KernelPosition) -> bool:
    return bool(position.head) and os.pread(descriptor, len(position.head) // 2, 0).hex() == position.head


def _check_file(path: str, check: Callable[[int], bool], *, gone: bool) -> bool:
    """The result of a function on a file's descriptor; `gone` if the file cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return gone
    try:
        return check(descriptor)
    finally:
        os.close(descriptor)


READS_A_POLL = 64  # of READ_BYTES: 1 MiB
READ_BYTES = 16384
RECORD_BYTES = 64 << 10  # no kernel writes one of more than 8 KiB; what never ends is cut here
SETTLE_SECONDS = 0.05  # a record's properties come in the same write, or in the next one at once
LINGER_SECONDS = 1.0  # a writer opens its log anew a moment after rotation has renamed it
LONGEST_LINGER_SECONDS = 10.0
_RECORD = re.compile(rb"[^\n]*\n(?: [^\n]*\n)*")  # a line, and the ` KEY=value` lines that belong to it


class FollowedFile:
    """The records of a file, each when another one follows or after SETTLE_SECONDS.

    A file is identified by the bytes before the position. A rotated file is read to its end, then later rotated files, then
    the file at the path.
    """

    def __init__(self, path: str, position: KernelPosition, stats: SourceStats, taken: bytes = b"") -> None:
        """taken: records that were read from the FIFO earlier and are not consumed."""
        self._path = path
        self._stats = stats
        self._tail = bytearray(taken)  # a record that may not be all there yet
        self._written = 0.0  # when the tail last grew
        self._left: float | None = None  # since when another file has been at the path
        self._position = replace(position, boot_id="")
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
        if not self._is_fifo and not holds(self._fd, self._position, len(self._tail)):
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
        """Open the file that was being read, at the position; if it is gone, the one at the path, from its beginning."""
        self._open(self._path)
        position = self._position
        if self._is_fifo or not position.file or holds(self._fd, position):
            self._go_to(position.at if position.file else 0)
            return
        status = os.fstat(self._fd)
        if older := holder(self._path, position):
            self._open(older)
            self._go_to(position.at)
        elif has_fallen_back(self._fd, position):
            self._go_to(status.st_size)
        elif position.file == file_id(status):
            self._stats.truncations += 1
            self._begin()
        else:
            self._stats.rotations += 1
            self._begin()

    def _leave(self) -> None:
        """The file has been read to its end, and is no longer the one at the path."""
        next_one = None if self._is_fifo else next_after(self._path, os.fstat(self._fd), self._position)
        self._open(next_one or self._path)
        self._left = self._left if next_one else None
        if not self._is_fifo and holds(self._fd, self._position):
            self._go_to(self._position.at)  # a copy that has taken its place
        else:
            self._stats.rotations += 1
            self._begin()

    def _begin(self) -> None:
        self._position = replace(self._position, at=0, line=1, last="", head="")
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
        self._name = file_id(os.fstat(descriptor))
        if is_fifo:
            self._news.register(descriptor, select.EPOLLIN)

    def _go_to(self, at: int) -> None:
        if self._is_fifo:
            self._position = replace(self._position, file="", at=0, line=0, head="", last="", modified=0)
            return
        os.lseek(self._fd, at, os.SEEK_SET)
        last, line = self._position.last, self._position.line
        if at != self._position.at:
            last, line = bytes_before(self._fd, at), 0
        self._position = replace(self._position, file=self._name, at=at, line=line if at else 1, last=last)

    def _is_replaced(self) -> bool:
        with contextlib.suppress(FileNotFoundError):  # between a rotation's rename and its create
            return file_id(os.stat(self._path)) != self._name
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
            position = self._position
            self._position = replace(
                position,
                at=position.at + size,
                line=position.line + record.count(b"\n") if position.line else 0,
                head=position.head if position.at else record[:CHECKED_BYTES].hex(),
                last=record[-CHECKED_BYTES:].hex(),
            )
        return record

    def _lines_of(self, record: bytes) -> Iterator[Line]:
        """The line of a record as a list; empty for blank lines and for properties without a record."""
        number = self._position.line - record.count(b"\n") if self._position.line else 0
        record = record.lstrip(b"\0")  # what a loss of power leaves of writes that it cut short
        if record.startswith(b" "):
            self._stats.drop("orphan_property")
        elif record.strip():
            header = kernel_records.parse_header(record)
            if header:
                self._position = replace(self._position, seq=header.seq)
            if not self._is_fifo:
                self._position = replace(self._position, modified=os.fstat(self._fd).st_mtime_ns)
            yield Line(data=kernel_records.fold(record), position=self._position, number=number)


def _first_end(tail: bytearray) -> int | None:
    """The end of the first record, if another record follows it."""
    record = _RECORD.match(tail)
    end = record.end() if record else len(tail)
    return end if end < len(tail) and tail[end] != ord(" ") else None
