"""Decides when a match is committed: at once, or in a storm of matches together with others in one transaction."""

from __future__ import annotations

import math

INTERVAL_SECONDS = 0.1  # between two commits while matches keep coming: a commit costs as much as to read 1 MB
BURST_SECONDS = 0.3  # after as long a rest three commits follow each other at once: most crashes are a few lines


class CommitPace:
    """Allows ten commits per second, and a short burst after an idle time. Times are Unix seconds."""

    def __init__(self) -> None:
        self._used_to = -math.inf  # each commit uses an interval

    def seconds_left(self, now: float) -> float:
        """Seconds until the next commit is allowed; 0 or less: now."""
        return self._used_to - BURST_SECONDS - now

    def committed(self, now: float) -> None:
        """Record a commit. If the clock is set back, the next commit waits no longer than after a full burst."""
        self._used_to = min(max(now, self._used_to), now + BURST_SECONDS) + INTERVAL_SECONDS
