"""Files that a configuration or a command line names. They are regular ones: to open a FIFO would wait for its writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def start_of(path: str | Path, most: int) -> bytes:
    """The first bytes of a regular file; of 0 bytes, whether it can be read. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(most)
