"""How a log is known again whatever became of its name: device and inode, the inode's generation, and what was read.

A head alone confuses job logs, which share banners (vector#17240, otel#43693); a size alone sleeps through a truncation
that was written over. So what counts is the bytes right before the place that was read to. Knows no paths.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

HEAD_BYTES = 1024
TAIL_BYTES = 256  # fluent-bit takes 32 (its 22f8800ff); a repeated progress line is longer than that

Read = Callable[[int, int], bytes]  # (how many bytes, from which offset)
Inode = tuple[int, int]  # device, inode
Version = tuple[Inode, int]  # and when it was last written to: a number is used again
NOWHERE: Inode = (0, 0)  # no inode has the number 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The first `length` bytes of a file, told by digests of their first 1024 and their last 256."""

    length: int = 0
    head: str = ""
    tail: str = ""

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
        """Whether a file begins with these bytes, as far as both digests tell."""
        return self == Fingerprint.taken(read, self.length)

    def begins_like(self, read: Read) -> bool:
        """Whether a file begins with the same bytes: a first look, which may cost nothing but that."""
        return self.head == _digest(read(min(HEAD_BYTES, self.length), 0))

    def moved(self, length: int, block: bytes, start: int) -> Fingerprint:
        """The fingerprint of `length` bytes of the same file, from a `block` that was read from `start` <= `window`."""
        stop = length - start
        head = self.head if start > 0 else _digest(block[: min(HEAD_BYTES, stop)])
        return Fingerprint(length=length, head=head, tail=_digest(block[max(0, stop - TAIL_BYTES) : stop]))

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
