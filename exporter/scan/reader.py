"""Opens one log for reading from its first byte to its last. Compressed logs are streamed."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

STDIN = "-"
BLOCK_BYTES = 1 << 18  # larger ones come from fresh pages each time, whose faults cost more than to read them


def head(path: str, size: int) -> bytes:
    """The first bytes of a log, at most `size`. Of stdin, what is there first, and it stays there to be read."""
    if path == STDIN:
        stdin = sys.stdin.buffer
        assert isinstance(stdin, io.BufferedReader)
        return stdin.peek(size)[:size]
    with open_log(path) as log:
        return log.read(size)


@contextmanager
def open_log(path: str) -> Iterator[IO[bytes]]:
    """A stream of the log's bytes, unpacked by its name's ending.

    Raises OSError, here and while it is read, for what is no regular file and for what is damaged.
    """
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        file = stack.enter_context(_regular(path))
        unpack = _UNPACKERS.get(os.path.splitext(path)[1])
        if unpack is None:
            yield file
            return
        unpacked, damage = unpack(file)
        try:
            yield stack.enter_context(unpacked)
        except (EOFError, damage) as error:
            raise OSError(None, f"is damaged: {error}; what stands before the damage was read") from error


def is_archive(path: str) -> bool:
    """Whether a log is unpacked while it is read."""
    return os.path.splitext(path)[1] in _UNPACKERS


def _regular(path: str) -> io.FileIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "is no regular file; give a file, or - for stdin")
    return io.FileIO(descriptor, "r")


# Each gives the stream and what it raises for damage beside OSError; imported only for such a log.
def _gzip(file: IO[bytes]) -> tuple[Any, type[Exception]]:
    from isal import igzip, isal_zlib  # nearly four times as fast as zlib

    return igzip.IGzipFile(fileobj=file), isal_zlib.error  # type: ignore[no-untyped-call, return-value]  # as its stubs are


def _bzip2(file: IO[bytes]) -> tuple[Any, type[Exception]]:
    import bz2

    return bz2.BZ2File(file), EOFError


def _xz(file: IO[bytes]) -> tuple[Any, type[Exception]]:
    import lzma

    return lzma.LZMAFile(file), lzma.LZMAError


def _zstd(file: IO[bytes]) -> tuple[Any, type[Exception]]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return zstd.ZstdFile(file), zstd.ZstdError


_UNPACKERS: dict[str, Callable[[IO[bytes]], tuple[Any, type[Exception]]]] = {
    ".gz": _gzip,
    ".bz2": _bzip2,
    ".xz": _xz,
    ".zst": _zstd,
}
