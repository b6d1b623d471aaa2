"""How a log is known again whatever became of its name: device and inode, the inode's generation, and what was read.

A head alone confuses job logs, which share banners (vector#17240, otel#43693); a size alone sleeps through a truncation
that was written over. So what counts is the bytes right before the place that was read to, and, since a log may repeat one
warning for long, a checksum of those before them. Knows no paths.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

HEAD_BYTES = 1024
TAIL_BYTES = 256  # fluent-bit takes 32 (its 22f8800ff); a repeated progress line is longer than that
# Of the last one to two of them the checksums tell: at most 64 MiB are compared, in 40 ms from the cache.
SPAN_BYTES = 32 << 20
_BLOCK_BYTES = 1 << 20

Read = Callable[[int, int], bytes]  # (how many bytes, from which offset)
Inode = tuple[int, int]  # device, inode
Version = tuple[Inode, int]  # and when it was last written to: a number is used again
NOWHERE: Inode = (0, 0)  # no inode has the number 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
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
    earlier: Span | None = field(default=None, compare=False)
    latest: Span | None = field(default=None, compare=False)

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

    def found_in(self, read: Read) -> bool:
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
                for at in range(span.since, stop, _BLOCK_BYTES):
                    checksum = zlib.crc32(read(min(_BLOCK_BYTES, stop - at), at), checksum)
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

    def _spans(self, length: int, block: bytes, start: int) -> tuple[Span | None, Span]:
        """The spans of `length` bytes, from a block that was read from `start`."""
        earlier, latest, known = self.earlier, self.latest, self.length
        if start == 0:
            earlier, latest, known = None, Span(since=HEAD_BYTES), 0
        elif latest is None or known > length:
            earlier, latest = None, Span(since=max(HEAD_BYTES, min(known, length)))
        new = block[max(known, latest.since) - start : length - start] if length > latest.since else b""
        latest = Span(since=latest.since, checksum=zlib.crc32(new, latest.checksum))
        return (earlier, latest) if length - latest.since < SPAN_BYTES else (latest, Span(since=length))

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
