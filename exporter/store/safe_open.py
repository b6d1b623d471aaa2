"""Reads files that a user names, and refuses anything but regular files: opening a FIFO would block."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_start(path: str | Path, max_bytes: int) -> bytes:
    """The first `max_bytes` bytes of a regular file; 0 only checks that it can be read. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(max_bytes)
