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
from typing import IO, Any

BLOCK_BYTES = 1 << 20  # Hyperscan is at its full speed from 64 KiB on; 1 MiB stays in a core's cache
_OPENERS: dict[str, Callable[[str, str], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_log(path: str) -> IO[bytes]:
    """A stream of the log's bytes, unpacked by its name's ending. Raises OSError for what is no regular file."""
    if path == "-":
        return open(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    opener = _OPENERS.get(os.path.splitext(path)[1])
    if opener:
        stream: IO[bytes] = opener(path, "rb")
        return stream
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "is no regular file; give a file, or - for stdin")
    return io.FileIO(descriptor, "r")
