"""The walks that look for new logs: over everything from time to time, and at once where a folder was made."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from exporter.sources.files.discovery import Entry, Globs, Trouble
from exporter.sources.files.filesystem import Roots

RESCAN_SECONDS = 10.0
WALK_STEPS = 40  # of a walk in one poll: 20,000 entries or 1,000 folders, about 40 ms


class Walks:
    """The walks of one source. The first one is made at once."""

    def __init__(self, globs: Globs, trouble: Trouble) -> None:
        self._globs = globs
        self._trouble = trouble
        self._walks: deque[Iterator[Entry | None]] = deque()  # the one over everything, if it is on, is the last
        self._walking = False  # over everything
        self._begun: float | None = None  # when the last walk over everything began
        self.first_ended = False

    def begin(self, folders: Iterable[str], allowed: Roots, time: float) -> bool:
        """Begin the walks that are due. Whether one of them is over everything."""
        for folder in folders:
            self._walks.appendleft(self._globs.walk(allowed, self._trouble, below=folder))
        if self._walking or (self._begun is not None and time - self._begun < RESCAN_SECONDS):
            return False
        self._begun, self._walking = time, True
        self._walks.append(self._globs.walk(allowed, self._trouble))
        return True

    def step(self) -> Iterator[Entry]:
        """What the walks find in a poll."""
        steps, most = 0, WALK_STEPS if self.first_ended else None
        while self._walks and (most is None or steps < most):
            for entry in self._walks[0]:
                if entry is not None:
                    yield entry
                elif (steps := steps + 1) == most:
                    break
            else:
                self._walks.popleft()
        self._walking, self.first_ended = bool(self._walks), True
