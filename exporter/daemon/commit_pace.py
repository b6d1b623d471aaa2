"""How soon a match is committed: at once, unless matches come one after another. Then many share a transaction."""

from __future__ import annotations

import math

INTERVAL_SECONDS = 0.1  # between two commits while matches keep coming: a commit costs as much as to read 1 MB
BURST_SECONDS = 0.3  # after as long a rest three commits follow each other at once: most crashes are a few lines


class CommitPace:
    """Ten commits a second, and a few at once after a rest. Times are Unix seconds."""

    def __init__(self) -> None:
        self._used_to = -math.inf  # each commit uses an interval

    def seconds_left(self, now: float) -> float:
        """Until the next commit; 0 or less: now."""
        return self._used_to - BURST_SECONDS - now

    def committed(self, now: float) -> None:
        """A commit was made. A clock that was set back holds up the next for no longer than a full burst does."""
        self._used_to = min(max(now, self._used_to), now + BURST_SECONDS) + INTERVAL_SECONDS
