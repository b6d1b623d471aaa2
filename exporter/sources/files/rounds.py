"""Which logs are looked at in a poll: those that move, and a share of all others."""

from __future__ import annotations

import math
from collections import deque

from exporter.sources.files.register import Register
from exporter.sources.files.tail import Log

IDLE_ROUND_SECONDS = 10.0  # in which every log is looked at once
UNWATCHED_LOOKS = 500  # a poll, where inotify does not report changes: 2.5 ms, and on most nodes all logs


class Rounds:
    """The logs of one register."""

    def __init__(self, register: Register) -> None:
        self.active: dict[Log, None] = {}  # looked at in every poll; the longest not served first
        self._register = register
        self._round: deque[Log] = deque()
        self._time = self._passed = 0.0  # in all, and since the last poll
        self._now: float | None = None

    def begin(self, now: float) -> float:
        """A poll begins. The source's own time: seconds since the first poll. A wall clock that is set back stops it for a
        moment.
        """
        self._passed = max(0.0, now - self._now) if self._now is not None else 0.0
        self._now = now
        self._time += self._passed
        return self._time

    def take_in(self, time: float, now: float) -> None:
        """Look at the logs that are new in the register, and at those that something was done to."""
        for log in self._register.born:
            if not log.activity.changed:  # for how long? What is quiet for hours need not be looked at in every poll
                log.activity.grew = min(time, time - (now - log.stat.modified / 1e9))
            self._round.append(log)
        self.active.update(self._register.stirred)
        self._register.born.clear()
        self._register.stirred.clear()

    def share(self, *, watched: bool) -> list[Log]:
        """The logs that are due for a look. `watched`: inotify reports the changes of all of them."""
        looks = math.ceil(len(self._round) * min(1.0, self._passed / IDLE_ROUND_SECONDS))
        if not watched:
            looks = max(looks, min(len(self._round), UNWATCHED_LOOKS))
        due = [log for log in (self._round.popleft() for _ in range(looks)) if self._register.table.knows(log)]
        self._round.extend(due)
        return due
