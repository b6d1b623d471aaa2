"""Whether two files, or a file and what is remembered of one, hold the same bytes: of all that they share, as far as
comparing that takes no longer than a poll may.
"""

from __future__ import annotations

import zlib

from exporter.sources.files.filesystem import OpenFile, Reader
from exporter.sources.files.gzip_reader import BLOCK_BYTES, GzipReader
from exporter.sources.files.identity import HEAD_BYTES, Fingerprint

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
    return Fingerprint.taken(copy.read, length).found_in(original.read)


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
    return same_head(packed, mark) and (mark.length > COMPARED_BYTES or mark.found_in(packed.read))


def is_packed_whole(packed: GzipReader, mark: Fingerprint) -> bool:
    """Whether a compressed file holds what `mark` tells, and nothing else."""
    return packed.trailer()[1] == mark.length % 2**32 and may_hold(packed, mark)


def same_head(one: Reader, other: Reader | Fingerprint) -> bool:
    """Whether a file begins as another one does, or one of which a fingerprint is left; an empty one tells nothing."""
    if isinstance(other, Fingerprint):
        return other.length > 0 and other.begins_like(one.read)
    head = other.read(HEAD_BYTES, 0)
    return bool(head) and one.read(len(head), 0) == head
