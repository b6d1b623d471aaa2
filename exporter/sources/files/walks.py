"""The walks that look for new logs: over everything from time to time, and at once where a folder was made."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from exporter.sources.calls import Stalled
from exporter.sources.files.access import Access
from exporter.sources.files.discovery import Entry, Globs
from exporter.sources.files.filesystem import reason_of

RESCAN_SECONDS = 10.0
WALK_STEPS = 40  # of a walk in one poll: 20,000 entries or 1,000 folders, about 40 ms


class Walks:
    """The walks of one source. The first one is made at once."""

    def __init__(self, globs: Globs, access: Access) -> None:
        self._globs = globs
        self._access = access
        self._walks: deque[Iterator[Entry | None]] = deque()  # the one over everything, if it is on, is the last
        self._begun: float | None = None  # when the last walk over everything began
        self._first_ended = False

    def begin(self, folders: Iterable[str], time: float) -> bool:
        """Begin the walks that are due. Whether one of them is over everything."""
        is_due = not self._walks and (self._begun is None or time - self._begun >= RESCAN_SECONDS)
        for folder in folders:
            self._walks.appendleft(self._walk(folder))
        if is_due:
            self._begun = time
            self._walks.append(self._walk(None))
        return is_due

    def step(self) -> Iterator[Entry]:
        """What the walks find in a poll."""
        steps, most = 0, WALK_STEPS if self._first_ended else None
        while self._walks and (most is None or steps < most):
            for entry in self._walks[0]:
                if entry is not None:
                    yield entry
                elif (steps := steps + 1) == most:
                    break
            else:
                self._walks.popleft()
        self._first_ended = True

    def _walk(self, below: str | None) -> Iterator[Entry | None]:
        return self._globs.walk(self._access.roots, self._trouble, below)

    def _trouble(self, folder: str, error: OSError) -> None:
        reason = reason_of(error)
        if isinstance(error, Stalled):
            return
        if not isinstance(error, FileNotFoundError):
            self._access.refusals.note(folder, "folder_unreadable" if reason == "unreadable" else reason)
        elif folder not in self._globs.roots:
            self._access.refusals.note(folder, "folder_vanished")
