"""Creates folders and files that only their owner can read, whatever the umask: they hold text from job logs."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents. An existing one keeps its mode. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_file(path: Path, flags: int) -> int:
    """Open a file, creating it if missing, and return its descriptor. Raises OSError, also if `path` is a symbolic link."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)  # an existing file may be readable by others
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
