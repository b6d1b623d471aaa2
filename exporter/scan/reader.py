"""Opens one log for reading from its first byte to its last. Compressed logs are streamed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any

STDIN = "-"
BLOCK_BYTES = 1 << 20  # Hyperscan is at its full speed from 64 KiB on; 1 MiB stays in a core's cache
_OPENERS: dict[str, Callable[[str, str], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def head(path: str, size: int) -> bytes:
    """The first bytes of a log, at most `size`. Of stdin, what is there first, and it stays there to be read."""
    if path == STDIN:
        stdin = sys.stdin.buffer
        assert isinstance(stdin, io.BufferedReader)
        return stdin.peek(size)[:size]
    with open_log(path) as log:
        return log.read(size)


def open_log(path: str) -> AbstractContextManager[IO[bytes]]:
    """A stream of the log's bytes, unpacked by its name's ending. Raises OSError for what is no regular file."""
    if path == STDIN:
        return nullcontext(sys.stdin.buffer)
    opener = _OPENERS.get(os.path.splitext(path)[1])
    if opener:
        stream: IO[bytes] = opener(path, "rb")
        return stream
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "is no regular file; give a file, or - for stdin")
    return io.FileIO(descriptor, "r")
