"""Opens a log for reading from beginning to end. Compressed logs are decompressed as a stream."""

import fcntl
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from exporter.scan.decompress import Unpacked, unpacker_of

STDIN = "-"
BLOCK_BYTES = 1 << 19  # twice that fits into a core's own cache: the block and its copy without newlines
_KEPT_BYTES = 32 * BLOCK_BYTES  # glibc takes no more than 32 MiB for its threshold
_PIPE_BYTES = 1 << 20  # what any user may ask for; a pipe has 64 KiB else, and takes four times the calls


def keep_freed_blocks() -> None:
    """Make the C library reuse the memory of a block for the next one. Call it once in each process that reads logs.

    By default glibc returns memory of that size to the kernel. The page faults of new memory cost twice as much as reading
    and searching it. glibc keeps blocks that are smaller than the largest one ever freed.
    """
    bytes(_KEPT_BYTES)  # asked for and freed, never touched


def head(path: str, size: int) -> bytes:
    """The first bytes of a log, up to `size`. For stdin, what is available; it can still be read later.

    Raises OSError if nothing can be read. The reader reports later damage.
    """
    if path == STDIN:
        stdin = sys.stdin.buffer
        assert isinstance(stdin, io.BufferedReader)
        return stdin.peek(size)[:size]
    data = b""
    with open_log(path) as log:
        try:
            while len(data) < size and (more := log.read(size - len(data))):
                data += more
        except OSError:
            if not data:
                raise
    return data


@contextmanager
def open_log(path: str) -> Iterator[IO[bytes]]:
    """A stream of the log's bytes, decompressed according to the name's extension.

    Raises OSError, here and while reading, for a damaged file and for anything but a regular file.
    """
    if path == STDIN:
        with suppress(OSError, AttributeError):  # no pipe, more than a user may have, no Linux
            fcntl.fcntl(sys.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        yield sys.stdin.buffer
        return
    unpacker = unpacker_of(path)
    with _regular(path) as file:
        yield cast(IO[bytes], Unpacked(file, unpacker)) if unpacker else file


def _regular(path: str) -> io.FileIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file; give a file, or - for stdin")
    return io.FileIO(descriptor, "r")


class ByLines(io.RawIOBase):
    """A stream that has only `read`, to be read by lines."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._data.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)
