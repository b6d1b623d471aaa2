"""Opens a file by its handle alone: what CAP_DAC_READ_SEARCH allows a process that sees only another folder of the disk.

    python handles.py HANDLE FOLDER     prints the file's text, or the name of the error

Uses the standard library only: the tests run it inside containers and as a child of the daemon.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

AT_FDCWD = -100
HANDLE_BYTES = 128  # MAX_HANDLE_SZ
LIBC = ctypes.CDLL(None, use_errno=True)


def handle_of(path: Path) -> str:
    """The file handle of a path, in hex. An attacker guesses it: on most file systems it is little more than a number."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", HANDLE_BYTES, 0), 8 + HANDLE_BYTES)
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle.raw.hex()


def read(handle: str, folder: str) -> str:
    """What the file holds, opened by way of a folder on the same file system; or the name of the error."""
    disk = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    raw = bytes.fromhex(handle)
    file = LIBC.open_by_handle_at(disk, ctypes.create_string_buffer(raw, len(raw)), os.O_RDONLY)
    if file < 0:
        return errno.errorcode[ctypes.get_errno()]
    with os.fdopen(file) as opened:
        return opened.read().strip()


if __name__ == "__main__":
    print(read(sys.argv[1], sys.argv[2]))
