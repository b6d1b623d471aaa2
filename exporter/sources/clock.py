"""A source's own time, which never goes back."""

from __future__ import annotations


class Clock:
    """Seconds since the first tick. A wall clock that is set back stops it for a moment."""

    def __init__(self) -> None:
        self._time = 0.0
        self._last: float | None = None

    def tick(self, now: float) -> tuple[float, float]:
        """The time, and how much of it has passed since the last call."""
        passed = max(0.0, now - self._last) if self._last is not None else 0.0
        self._last = now
        self._time += passed
        return self._time, passed
