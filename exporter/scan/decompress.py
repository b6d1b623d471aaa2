"""Decompresses an archive up to the last byte before damage.

The file objects of the libraries lose everything that they decompressed in the call that meets the damage; of a small log
that is all of it.
"""

import os
import sys
from collections.abc import Callable
from typing import IO, Any, Protocol

from exporter.core.values import dataclass

PACKED_BYTES = 1 << 16  # read at a time
XZ_BYTES = 256 << 20  # `xz -9` takes 65 MiB; an archive of 200 kB may ask for 4 GiB. zstd has such a bound by itself


class _Decompressor(Protocol):
    """The interface of the libraries' decompressors: one member of an archive, some bytes at a time."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Decompressor:
    """`new` decompresses a member; `to_the_byte` also returns all bytes before damage. Both raise `damage`."""

    new: Callable[[], _Decompressor]
    to_the_byte: Callable[[], _Decompressor]
    damage: tuple[type[Exception], ...]


class _Damaged(Exception):
    """A member cannot be decompressed further."""


class Unpacked:
    """The decompressed members of an archive, as one stream of bytes."""

    def __init__(self, file: IO[bytes], unpacker: Decompressor) -> None:
        self._file = file
        self._unpacker = unpacker
        self._new = unpacker.new
        self._member = self._new()
        self._given = 0
        self._damaged: _Damaged | None = None

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none at the end. Raises OSError after the last byte before damage."""
        try:
            if self._damaged:
                raise self._damaged
            try:
                data = self._some(size)
            except _Damaged:
                data = self._before_damage(size)
        except _Damaged as error:
            raise OSError(None, f"is damaged: {error}; what stands before the damage was read") from error
        self._given += len(data)
        return data

    def _some(self, size: int) -> bytes:
        """The next bytes, up to `size`, none at the end. Raises _Damaged."""
        while True:
            packed = b""
            if self._member.eof:
                packed = self._after_member()
                if not packed:
                    return b""
                self._member = self._new()
            elif self._member.needs_input and not (packed := self._file.read(PACKED_BYTES)):
                self._damaged = _Damaged("it ends too early")
                raise self._damaged
            try:
                data = self._member.decompress(packed, size)
            except self._unpacker.damage as error:
                raise _Damaged(error) from error
            if data:
                return data

    def _after_member(self) -> bytes:
        """The first bytes of the next member, none at the end. Skips zeros, which pad blocks of tapes and disks."""
        packed = self._member.unused_data
        while not packed.strip(b"\0"):
            packed = self._file.read(PACKED_BYTES)
            if not packed:
                return b""
        return packed.lstrip(b"\0")

    def _before_damage(self, size: int) -> bytes:
        """The last bytes before damage: decompresses the member again, the end of it byte by byte. Raises _Damaged."""
        if self._damaged:  # an early end takes nothing with it
            raise self._damaged
        self._file.seek(0)
        self._new = self._unpacker.to_the_byte
        self._member = self._new()
        left = self._given
        while left and (data := self._some(min(left, size))):
            left -= len(data)
        rest = bytearray()
        try:
            while len(rest) < size and (data := self._some(1)):
                rest += data
        except _Damaged as damaged:
            self._damaged = damaged
            if not rest:
                raise
        return bytes(rest)


def unpacker_of(path: str) -> Decompressor | None:
    """The decompressor for a log's name; None unless it is an archive."""
    of_ending = _UNPACKERS.get(os.path.splitext(path)[1])
    return of_ending and of_ending()


def is_archive(path: str) -> bool:
    """Whether a log is decompressed while it is read."""
    return os.path.splitext(path)[1] in _UNPACKERS


# Imported only for such a log.
def _gzip() -> Decompressor:
    import zlib

    from isal import igzip_lib  # nearly four times as fast as zlib, and gives nothing of what is damaged

    return Decompressor(
        lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
        lambda: _Zlib(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)),
        (igzip_lib.IsalError, zlib.error),  # type: ignore[arg-type]  # as its stubs are
    )


class _Zlib:
    """zlib's decompressor, which returns unused input instead of keeping it."""

    def __init__(self, member: Any) -> None:
        self._member = member
        self._full = False

    @property
    def eof(self) -> bool:
        return bool(self._member.eof)

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return bytes(self._member.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = bytes(self._member.decompress(self._member.unconsumed_tail + data, max_length))
        self._full = len(out) == max_length
        return out


def _bzip2() -> Decompressor:
    import bz2

    return Decompressor(bz2.BZ2Decompressor, bz2.BZ2Decompressor, (OSError,))


def _xz() -> Decompressor:
    import lzma

    def new() -> _Decompressor:
        return lzma.LZMADecompressor(memlimit=XZ_BYTES)

    return Decompressor(new, new, (lzma.LZMAError,))


def _zstd() -> Decompressor:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return Decompressor(zstd.ZstdDecompressor, zstd.ZstdDecompressor, (zstd.ZstdError,))


_UNPACKERS: dict[str, Callable[[], Decompressor]] = {".gz": _gzip, ".bz2": _bzip2, ".xz": _xz, ".zst": _zstd}
