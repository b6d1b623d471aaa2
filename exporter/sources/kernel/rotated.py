"""Finds the rotated files of a kernel log, when the file at its path is not the one that was being read.

Compressed archives are not read; the sequence numbers show how many records they contain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from exporter.sources.files.folders import Folder
from exporter.sources.files.rotation import COMPRESSED, is_numbered
from exporter.sources.kernel.transport import Place

KNOWN_BYTES = 64  # of a file's beginning, and before a place: each record has a number and a time of its own
_NUMBER = re.compile(r"\.(\d{1,5})\Z")


def name_of(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def before(descriptor: int, at: int) -> str:
    """The fingerprint of the place after these bytes."""
    size = min(at, KNOWN_BYTES)
    return os.pread(descriptor, size, at - size).hex()


def holds(descriptor: int, place: Place, more: int = 0) -> bool:
    """Whether a file has the bytes before the place, and `more` bytes after it."""
    status = os.fstat(descriptor)
    if status.st_size < place.at + more:
        return False
    if not place.last:  # nothing was read yet, or by a version that did not remember it
        return name_of(status) == place.file
    known = len(place.last) // 2
    return os.pread(descriptor, known, place.at - known).hex() == place.last


def has_fallen_back(descriptor: int, place: Place) -> bool:
    """Whether a file is an earlier state of the one that was read, after a power loss or a restore.

    A truncated file would have a later modification time.
    """
    status = os.fstat(descriptor)
    if not place.head or not len(place.head) // 2 <= status.st_size < place.at or status.st_mtime_ns > place.modified:
        return False
    return _begins_alike(descriptor, place)


def holder(path: str, place: Place) -> str | None:
    """The sibling with the bytes before the place: the file itself, else a copy of it."""
    found = [sibling for sibling, status in _siblings(path) if _tells(sibling, status, place)]
    same = [sibling for sibling in found if name_of(os.stat(sibling)) == place.file]
    return next(iter(same or found), None)


def next_after(path: str, read: os.stat_result, place: Place) -> str | None:
    """The oldest sibling modified after the file that was read; None if only the file at the path was."""
    at_path, was = name_of(os.stat(path)), name_of(read)
    found = list(_siblings(path))
    age = next((_age(sibling, status) for sibling, status in found if name_of(status) == was), (read.st_mtime_ns, 0))
    later = [
        (_age(sibling, status), sibling)
        for sibling, status in found
        if _age(sibling, status) > age and name_of(status) not in (at_path, was)
    ]
    return next((sibling for _, sibling in sorted(later) if not _is_copy(sibling, place)), None)


def _siblings(path: str) -> Iterator[tuple[str, os.stat_result]]:
    folder, name = os.path.split(path)
    for sibling in Folder(folder or ".").siblings(name):
        if is_numbered(sibling, os.path.join(folder or ".", name)) and not sibling.endswith(COMPRESSED):
            try:
                status = os.stat(sibling)
            except FileNotFoundError:
                continue  # renamed on meanwhile
            yield sibling, status


def _age(sibling: str, status: os.stat_result) -> tuple[int, int]:
    """The sort key of siblings, oldest first; of equal times, the larger number is older."""
    found = _NUMBER.search(sibling)
    return status.st_mtime_ns, -int(found[1]) if found else 0


def _tells(sibling: str, status: os.stat_result, place: Place) -> bool:
    return status.st_size >= place.at and _asked(sibling, lambda descriptor: holds(descriptor, place), gone=False)


def _is_copy(sibling: str, place: Place) -> bool:
    """Whether a file begins like the one that was read."""
    return _asked(sibling, lambda descriptor: _begins_alike(descriptor, place), gone=True)


def _begins_alike(descriptor: int, place: Place) -> bool:
    return bool(place.head) and os.pread(descriptor, len(place.head) // 2, 0).hex() == place.head


def _asked(path: str, question: Callable[[int], bool], *, gone: bool) -> bool:
    """The result of a function on a file's descriptor; `gone` if the file cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return gone
    try:
        return question(descriptor)
    finally:
        os.close(descriptor)
