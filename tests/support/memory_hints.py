"""What stands in for inotify over files in memory."""

from __future__ import annotations

from exporter.sources.files import watch
from tests.support.memory_files import MemoryFiles

LATE_POLLS = 3


class Hints:
    """Tells of what has changed at once, a few polls later, or of every other change only."""

    mode = "inotify"

    def __init__(self, files: MemoryFiles, how: str) -> None:
        self._files = files
        self._how = how
        self._later: list[list[str]] = [[] for _ in range(LATE_POLLS)]

    def follow(self, _roots: object, _time: float) -> None:
        """All folders are watched."""

    def take(self, _time: float) -> watch.Hints:
        told = self._files.take_changes()
        if self._how == "late":
            self._later.append(told)
            told = self._later.pop(0)
        elif self._how == "lossy":
            told = told[::2]
        return watch.Hints(frozenset(told))

    def close(self) -> None:
        """Nothing is left behind."""
