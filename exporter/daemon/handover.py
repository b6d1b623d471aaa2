"""Rows of the state file, and their move to another source when sources are renamed, split, merged or reordered.

Without it, each of these logs would be read again from its beginning. Knows the form of the keys; opens no file.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from exporter.sources.files.checkpoints import split_origin
from exporter.sources.files.discovery import Globs

Row = tuple[str, str, str | None]  # space, name, and a value or None to remove it
Stored = Mapping[str, Mapping[str, str]]

_SPACE = "source "
_OF_A_LOG = re.compile(r"(?:done:|paused:)?(?P<origin>/.*)", re.DOTALL)


class Keeper(Protocol):
    """A part of the daemon that has rows in the state file."""

    def unsaved(self) -> Mapping[str, str | None]:
        """Changes since `saved`: values by name, None for a row to remove."""

    def saved(self) -> None:
        """Record that all of `unsaved` has been committed."""


def space_of(name: str) -> str:
    """The name of the key space that has the positions of a source."""
    return f"{_SPACE}{name}"


def handed_over(globs: Mapping[str, Globs], stored: Stored) -> list[Row]:
    """The changes of the state that give each log to its source: the first one whose globs match its path."""
    rows: list[Row] = []
    for space, positions in stored.items():
        name = space.removeprefix(_SPACE)
        heirs: set[str] = set()
        for key in positions if space != name else ():
            log = _OF_A_LOG.fullmatch(key.removeprefix(f"{name}:"))
            heir = _owner(split_origin(log["origin"])[0], globs) if log else None
            if log is not None and heir is not None and heir != name:
                heirs.add(heir)
                rows += _moved(key, name, f"{heir}:{log[0]}", heir, stored)
        for heir in sorted(heirs):
            since, its = f"{name}:since", stored.get(space_of(heir), {})
            if since in positions and f"{heir}:since" not in its:
                rows.append((space_of(heir), f"{heir}:since", positions[since]))
    return rows


def changed(stored: Stored, rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """The stored rows after the changes in `rows`."""
    spaces = {space: dict(values) for space, values in stored.items()}
    for space, key, value in rows:
        values = spaces.setdefault(space, {})
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return spaces


def _owner(path: str, globs: Mapping[str, Globs]) -> str | None:
    return next((name for name, its in globs.items() if its.match(path)), None)


def _moved(key: str, name: str, new: str, heir: str, stored: Stored) -> list[Row]:
    """The rows of a log under its new key; none if the new source has read the log already."""
    origin = new.removeprefix(f"{heir}:").removeprefix("done:").removeprefix("paused:")
    newer = any(f"{heir}:{form}{origin}" in stored.get(space_of(heir), {}) for form in ("", "done:", "paused:"))
    rows: list[Row] = []
    for space, its in ((space_of(name), space_of(heir)), ("logs", "logs")):
        value = stored.get(space, {}).get(key)
        if value is not None:
            rows.append((space, key, None))
            if not newer:
                rows.append((its, new, value))
    return rows
