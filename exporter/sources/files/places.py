"""The places of the logs that are followed, shared among their owners: one user's many logs take no other's place."""

from __future__ import annotations

from collections import Counter, deque

from exporter.sources.files.register import MAX_PAUSED, Register
from exporter.sources.files.tail import Log

MAX_FILES = 50_000  # 250 MB; a job that writes a million files named *.log must not take the node's memory
IDLE_SECONDS = 10.0  # a user's further logs take the places of those of the same user that have not grown for so long


def owner_of(log: Log) -> int | None:
    """The user whose share a log counts in."""
    return log.stat.uid


class Places:
    """Whoever has most places gives one up first: that of the longest idle log. A log that loses its place is paused: it
    goes on when it grows.
    """

    def __init__(self, register: Register) -> None:
        self._register = register
        self._counts: Counter[int | None] = Counter()  # of each owner's logs, in this poll
        # The longest idle first, but for those that are new in this poll.
        self._queues: dict[int | None, deque[Log]] = {}
        self._is_current = False

    def begin(self) -> None:
        """A poll begins."""
        self._is_current = False

    @property
    def are_taken(self) -> bool:
        return self._register.table.followed_count >= MAX_FILES

    def has_one(self, uid: int, now: float, *, resumes: bool) -> bool:
        """Whether a further log of a user may be followed; one that `resumes` was, before."""
        may_pause = resumes or self._register.table.paused_count < MAX_PAUSED
        return not self.are_taken or self._next(uid, now, may_pause) is not None

    def take(self, uid: int, now: float) -> None:
        """A further log of a user is followed."""
        self._counts[uid] += 1
        while self._register.table.followed_count > MAX_FILES and (log := self._next(uid, now, may_pause=True)):
            self._pop(owner_of(log))
            self._register.pause(log)

    def _next(self, uid: int, now: float, may_pause: bool) -> Log | None:
        """The log that makes room for one of a user: of whoever has most, or an idle one of the user's own."""
        if not self._is_current:
            self._look()
        largest = self._largest
        if self._counts[largest] > self._counts[uid]:
            if self._first(largest) is None:  # all its logs are new
                self._look()
            return self._first(self._largest)
        own = self._first(uid)
        is_idle = own is not None and not own.unseen and now - own.activity.grew > IDLE_SECONDS
        return own if is_idle and may_pause else None

    @property
    def _largest(self) -> int | None:
        return max(self._counts, key=lambda owner: self._counts[owner], default=None)

    def _first(self, owner: int | None) -> Log | None:
        """The log of an owner that is the first in line."""
        queue = self._queues.get(owner, deque())
        while queue and not self._register.table.knows(queue[0]):
            self._pop(owner)
        return queue[0] if queue else None

    def _pop(self, owner: int | None) -> None:
        self._queues[owner].popleft()
        self._counts[owner] -= 1

    def _look(self) -> None:
        logs = [log for log in self._register.table.followed() if log.left is None]  # else nothing would find it again
        self._is_current, self._queues, self._counts = True, {}, Counter(map(owner_of, logs))
        for log in sorted(logs, key=lambda log: (log.unseen, log.stat.touched)):
            self._queues.setdefault(owner_of(log), deque()).append(log)
