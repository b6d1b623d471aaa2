"""Folders and files that nobody else may look into, whatever the umask: they hold what jobs wrote into their logs."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_folder(path: Path) -> None:
    """The folder and those above it, where they are missing; one that is there stays as it is. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_file(path: Path, flags: int) -> int:
    """A descriptor of a regular file, made where it is missing. Raises OSError, for a symbolic link at `path` too."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)  # an older one may be open to others
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
