"""The clocks of this machine, and what the times that file systems give tell of each other."""

from __future__ import annotations

import time

TICK_NS = 20_000_000  # file systems stamp by the kernel's tick, 10 ms at most: two changes within one look the same
WHOLE_SECONDS_NS = 2_000_000_000  # for those that stamp no parts of a second: ext3, FAT, servers that have them

SECOND_NS = 10**9  # by less, a clock is corrected every now and then
MINUTE_NS = 60 * SECOND_NS  # in which ours is looked at a hundred times, and by which a server's may be ahead of it


def now_ns() -> int:
    """Nanoseconds of the clock by which this machine's file systems stamp."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds of a clock that nobody sets."""
    return time.monotonic()


def may_stay(stamp: int) -> bool:
    """Whether a file of which `stamp` is the ctime may be changed again just now and keep it."""
    tick = TICK_NS if stamp % 10**9 else WHOLE_SECONDS_NS
    return abs(now_ns() - stamp) <= tick + TICK_NS


class SetBack:
    """Between which times the wall clock has been twice, since it was set back: of two files with times in there, nobody can
    tell which one was written first.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._low = self._high = now - MINUTE_NS

    def look(self, now: int) -> None:
        """See what time it is."""
        if now < self._now - SECOND_NS:
            low, high = now - MINUTE_NS, self._now + MINUTE_NS
            again = low <= self._high and self._low <= high
            self._low, self._high = (min(self._low, low), max(self._high, high)) if again else (low, high)
        self._now = now

    def since(self, stamp: int) -> int:
        """The earliest time that a file can have which was written after one with the time `stamp`."""
        set_back_unseen = stamp > self._now + MINUTE_NS
        return self._low if set_back_unseen or self._low < stamp <= self._high else stamp
