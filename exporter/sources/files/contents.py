"""What the bytes of files tell: fingerprints by which a log is recognised, gzip copies, comparisons and formats.

A log is recognised by device and inode, the inode's generation, and what was read of it. A head alone confuses job logs,
which share banners (vector#17240, otel#43693); a size alone misses a truncation that was written over. So what counts is
the bytes right before the offset and, since a log may repeat one warning for long, a checksum of those before them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exporter.core.decoding.formats import CONTAINER_FORMATS
from exporter.core.decoding.prefixes import Clock
from exporter.core.model import LogFormat
from exporter.sources.files.filesystem import OpenFile, Reader, closed_on_error

_MAGIC = (b"\x7fELF", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY", b"\xfd7zXZ\x00")
_BINARY_BLOCK = 8192
_BINARY_NULS = 4  # a fourth of a block: UTF-16 and wtmp records have more, a log with a torn write has fewer
HEAD_BYTES = 1024
TAIL_BYTES = 256  # fluent-bit takes 32 (its 22f8800ff); a repeated progress line is longer than that
# Of the last one to two of them the checksums tell: at most 64 MiB are compared, in 40 ms from the cache.
SPAN_BYTES = 32 << 20
BLOCK_BYTES = 1 << 20

Read = Callable[[int, int], bytes]  # (how many bytes, from which offset)
Inode = tuple[int, int]  # device, inode
Version = tuple[Inode, int]  # and when it was last written to: a number is used again
NOWHERE: Inode = (0, 0)  # no inode has the number 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumSpan:
    """Bytes of a file from `since` on, told by their CRC-32, which can be continued."""

    since: int
    checksum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The first `length` bytes of a file, told by digests of their first 1024 and their last 256.

    Of those that were read behind the first 1024, which a writer may write over, `earlier` and then `latest` tell too.
    """

    length: int = 0
    head: str = ""
    tail: str = ""
    earlier: ChecksumSpan | None = field(default=None, compare=False)
    latest: ChecksumSpan | None = field(default=None, compare=False)

    @property
    def window(self) -> int:
        """From where on the bytes up to `length` are needed to check this fingerprint, and to extend it."""
        return 0 if self.length <= HEAD_BYTES else self.length - TAIL_BYTES

    def holds(self, window: bytes) -> bool:
        """Whether `window`, read from `self.window` up to `self.length`, is what it was."""
        if self.length == 0:
            return True
        if len(window) != self.length - self.window or self.tail != _digest(window[-TAIL_BYTES:]):
            return False
        return self.window > 0 or self.head == _digest(window[:HEAD_BYTES])

    def matches(self, read: Read) -> bool:
        """Whether a file begins with these bytes, as far as all digests tell."""
        return self == Fingerprint.taken(read, self.length) and self.sums_up(read)

    @property
    def summed(self) -> int:
        """How many bytes the checksums tell of."""
        first = self.earlier or self.latest
        return max(0, self.length - first.since) if first else 0

    def sums_up(self, read: Read) -> bool:
        """Whether a file has the bytes that the checksums tell of."""
        stop = self.length
        for span in (self.latest, self.earlier):
            if span is not None:
                checksum = 0
                for at in range(span.since, stop, BLOCK_BYTES):
                    checksum = zlib.crc32(read(min(BLOCK_BYTES, stop - at), at), checksum)
                if checksum != span.checksum:
                    return False
                stop = span.since
        return True

    def begins_like(self, read: Read) -> bool:
        """Whether a file begins with the same bytes: a first look, which may cost nothing but that."""
        return self.head == _digest(read(min(HEAD_BYTES, self.length), 0))

    def moved(self, length: int, block: bytes, start: int) -> Fingerprint:
        """The fingerprint of `length` bytes of the same file, from a `block` that was read from `start` <= `window`."""
        stop = length - start
        head = self.head if start > 0 else _digest(block[: min(HEAD_BYTES, stop)])
        earlier, latest = self._spans(length, block, start)
        tail = _digest(block[max(0, stop - TAIL_BYTES) : stop])
        return Fingerprint(length=length, head=head, tail=tail, earlier=earlier, latest=latest)

    def _spans(self, length: int, block: bytes, start: int) -> tuple[ChecksumSpan | None, ChecksumSpan]:
        """The spans of `length` bytes, from a block that was read from `start`."""
        earlier, latest, covered = self.earlier, self.latest, self.length
        if start == 0:
            earlier, latest, covered = None, ChecksumSpan(since=HEAD_BYTES), 0
        elif latest is None or covered > length:
            earlier, latest = None, ChecksumSpan(since=max(HEAD_BYTES, min(covered, length)))
        new = block[max(covered, latest.since) - start : length - start] if length > latest.since else b""
        latest = ChecksumSpan(since=latest.since, checksum=zlib.crc32(new, latest.checksum))
        return (earlier, latest) if length - latest.since < SPAN_BYTES else (latest, ChecksumSpan(since=length))

    @classmethod
    def taken(cls, read: Read, length: int) -> Fingerprint:
        """The fingerprint of a file's first `length` bytes; that of fewer where the file is shorter."""
        if length == 0:
            return cls()
        head = read(min(HEAD_BYTES, length), 0)
        start = max(0, length - TAIL_BYTES)
        tail = read(length - start, start)
        return cls(length=start + len(tail), head=_digest(head), tail=_digest(tail))


def inode_of(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


def version_of(status: os.stat_result) -> Version:
    return inode_of(status), status.st_mtime_ns


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


BLOCKS_A_STEP = 8  # 30 to 60 ms with zlib

_DAMAGE = (OSError, EOFError, zlib.error)


class GzipReader:
    """What a gzip file unpacks to, read forwards. A damaged file ends where the damage begins.

    Raises OSError where the file itself cannot be read, and can be asked again. Closes the file that it is given.
    """

    def __init__(self, file: OpenFile) -> None:
        with closed_on_error(file):
            self.status = file.status()
        self.path = file.path
        self._file, self._raw = file, file.stream()
        self._gzip = gzip.GzipFile(fileobj=self._raw)
        self._buffer = b""
        self._start = 0  # where `_buffer` begins

    def read(self, count: int, start: int) -> bytes:
        if start < self._start:
            self._rewind()
        while self._start + len(self._buffer) < start + count:
            if not self._unpack(start):
                break
        return self._buffer[start - self._start : start - self._start + count]

    def approach(self, start: int) -> bool:
        """Unpack a bounded amount towards `start`; False while more is needed."""
        return any(self._start + len(self._buffer) >= start or not self._unpack(start) for _ in range(BLOCKS_A_STEP))

    def trailer(self) -> tuple[int, int]:
        """What it says of what it unpacks to (RFC 1952): its CRC-32, and its length modulo 2**32. While it is being
        written that means nothing.
        """
        end = self._file.read(8, max(0, self.status.st_size - 8))
        return int.from_bytes(end[:4], "little"), int.from_bytes(end[4:], "little")

    def data_after(self, start: int) -> int | None:
        return start

    def close(self) -> None:
        self._gzip.close()
        self._raw.close()

    def _unpack(self, needed_from: int) -> bool:
        """One block more; what lies before `needed_from` is let go. False at the end."""
        try:
            block = self._gzip.read(BLOCK_BYTES)
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                self._rewind()
                raise
            return False
        drop = max(0, min(needed_from - self._start, len(self._buffer)))
        self._buffer, self._start = self._buffer[drop:] + block, self._start + drop
        return bool(block)

    def _rewind(self) -> None:
        self._gzip.rewind()
        self._buffer, self._start = b"", 0


class Search:
    """Looks, step by step, for the gzip file that begins with what `mark` tells."""

    def __init__(self, mark: Fingerprint, candidates: Iterable[GzipReader]) -> None:
        self._mark = mark
        self._waiting = list(candidates)

    def step(self) -> GzipReader | None:
        """The file, once it is found. None: `over` tells whether the search goes on.

        Raises OSError when a file cannot be read. It is left out then: whoever finds nothing searches again.
        """
        candidate, mark = self._waiting.pop(0), self._mark
        with closed_on_error(candidate):
            if not candidate.approach(mark.window):
                self._waiting.insert(0, candidate)
                return None
            is_match = mark.holds(candidate.read(mark.length - mark.window, mark.window))
        if is_match:
            self.close()
            return candidate
        candidate.close()
        return None

    @property
    def over(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        while self._waiting:
            self._waiting.pop().close()


COMPARED_BYTES = 64 << 20  # 0.4 s to unpack; of what is longer, only beginning and length are compared


def same_bytes(copy: Reader, original: Reader, start: int, stop: int) -> bool:
    """Whether two files hold the same bytes from `start` up to `stop`."""
    for at in range(start, stop, BLOCK_BYTES):
        block = copy.read(min(BLOCK_BYTES, stop - at), at)
        if len(block) < min(BLOCK_BYTES, stop - at) or block != original.read(len(block), at):
            return False
    return True


def same_beginning(copy: OpenFile, original: OpenFile, length: int) -> bool:
    """Whether two files begin with the same `length` bytes, as far as both digests of the copy's tell: a first look."""
    return Fingerprint.taken(copy.read, length).matches(original.read)


def holds_all_of(copy: OpenFile, original: OpenFile, length: int) -> bool:
    """Whether two files begin with the same `length` bytes; of more than are compared at once, as the first look tells."""
    alike = same_beginning(copy, original, length)
    return alike and (length > COMPARED_BYTES or same_bytes(copy, original, 0, length))


def is_packed_copy(packed: GzipReader, original: OpenFile) -> bool:
    """Whether a compressed file holds a part of another file from its first byte on, or all of it: perhaps it is being
    written.
    """
    if not same_head(packed, original):
        return False
    size = original.status().st_size
    checksum, length = packed.trailer()
    if size > COMPARED_BYTES:
        return length == size % 2**32
    if length == size and checksum == zlib.crc32(original.read(size, 0)):
        return True
    return _is_begun_in(packed, original, size)


def _is_begun_in(packed: GzipReader, original: OpenFile, size: int) -> bool:
    """Whether all that has been compressed so far is what the first `size` bytes of another file begin with."""
    at = 0
    while block := packed.read(BLOCK_BYTES, at):
        if at + len(block) > size or block != original.read(len(block), at):
            return False
        at += len(block)
    return True


def may_hold(packed: GzipReader, mark: Fingerprint) -> bool:
    """Whether a compressed file begins with what `mark` tells; of one that is too long to unpack, only its head tells."""
    return same_head(packed, mark) and (mark.length > COMPARED_BYTES or mark.matches(packed.read))


def is_packed_whole(packed: GzipReader, mark: Fingerprint) -> bool:
    """Whether a compressed file holds what `mark` tells, and nothing else."""
    return packed.trailer()[1] == mark.length % 2**32 and may_hold(packed, mark)


def same_head(one: Reader, other: Reader | Fingerprint) -> bool:
    """Whether a file begins as another one does, or one of which a fingerprint is left; an empty one tells nothing."""
    if isinstance(other, Fingerprint):
        return other.length > 0 and other.begins_like(one.read)
    head = other.read(HEAD_BYTES, 0)
    return bool(head) and one.read(len(head), 0) == head


COUNTED_BYTES = 64 << 20  # 20 ms from the page cache; beyond it, lines count from 1 where reading began


def start_of_last_line(read: Read, size: int, line_bytes: int) -> int:
    """Where a file's last, incomplete line starts; `size` where it has none, or one that is longer than a line may be."""
    start = max(0, size - line_bytes)
    tail = read(size - start, start)
    newline = tail.rfind(b"\n")
    if newline >= 0:
        return start + newline + 1
    return 0 if start == 0 else size


def line_at(read: Read, offset: int) -> int:
    """The number of the line at `offset`, counted from 1, where that is cheap to know."""
    if offset > COUNTED_BYTES:
        return 1
    return 1 + sum(
        read(min(BLOCK_BYTES, offset - start), start).count(b"\n") for start in range(0, offset, BLOCK_BYTES)
    )


FORMAT_LINES = 4  # the runtimes wrap every line from the first on; more would only delay a job of one line
KUBELET_LOGS = "/var/log/pods/"  # the kubelet's own folder (its --root-dir does not move it): CRI, by the interface


def format_of(path: str, lines: bytes) -> LogFormat | None:
    """The format that a log's first complete lines show; None without a complete line."""
    if path.startswith(KUBELET_LOGS):
        return "cri"
    first = [line for line in lines.split(b"\n", FORMAT_LINES)[:FORMAT_LINES] if line and line + b"\n" in lines]
    if not first:
        return None
    clock = Clock(0.0)
    if all(CONTAINER_FORMATS["cri"](line, clock).stream for line in first):
        return "cri"
    if all(CONTAINER_FORMATS["docker"](line, clock).time is not None for line in first):
        return "docker"
    return "plain"


def looks_binary(block: bytes) -> bool:
    """Whether the first bytes of a file are those of a program, an archive or a table of records.

    NULs around them are holes, or space that is yet to be written to.
    """
    block = block[:_BINARY_BLOCK].strip(b"\0")
    return block.startswith(_MAGIC) or block.count(0) * _BINARY_NULS > len(block)
