"""A source's own time, which never goes back, and how exact the time of file systems is."""

from __future__ import annotations

import time

TICK_NS = 20_000_000  # file systems stamp by the kernel's tick, 10 ms at most: two changes within one look the same
WHOLE_SECONDS_NS = 2_000_000_000  # for those that stamp no parts of a second: ext3, FAT, servers that have them


def may_stay(stamp: int) -> bool:
    """Whether a file of which `stamp` is the ctime may be changed again just now and keep it."""
    tick = TICK_NS if stamp % 10**9 else WHOLE_SECONDS_NS
    return abs(time.time_ns() - stamp) <= tick + TICK_NS


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
