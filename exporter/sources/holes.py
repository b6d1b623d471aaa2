"""The holes of sparse files."""

import errno
import os


def data_after(descriptor: int, start: int) -> int | None:
    """Where the first byte of a file from `start` on lies that is not in a hole; None when all the rest is one."""
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return start  # a file system that knows no holes


def has_hole(descriptor: int, start: int, stop: int) -> bool:
    """Whether a part of a file is in a hole, as after `fallocate --punch-hole`."""
    try:
        return os.lseek(descriptor, start, os.SEEK_HOLE) < stop
    except OSError:  # shorter, or a file system that knows no holes
        return False
