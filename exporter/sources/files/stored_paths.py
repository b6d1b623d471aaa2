"""Paths as the state keeps them, which is in UTF-8: a log may be moved to, or be a link to, any name."""

from __future__ import annotations

import os

_BYTES = "bytes:"  # no path that is stored as it is begins so: all are absolute


def storable(path: str) -> str:
    """A path as text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + os.fsencode(path).decode("latin-1")
    return path


def restored(text: str) -> str:
    """What `storable` was given; something else for what it never gave."""
    return os.fsdecode(text.removeprefix(_BYTES).encode("latin-1", "replace")) if text.startswith(_BYTES) else text
