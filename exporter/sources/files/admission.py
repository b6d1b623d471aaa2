"""Which logs this node follows: those that it has leases on, and as many as each owner's share allows.

One user's many logs do not displace another's.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import TypeVar

from exporter.sources.calls import NO_LANE, ask
from exporter.sources.files.leases import Leases
from exporter.sources.files.log import Log
from exporter.sources.files.register import MAX_PAUSED, Register

MAX_FILES = 50_000  # 250 MB; a job that writes a million files named *.log must not take the node's memory
IDLE_SECONDS = 10.0  # a user's further logs take the places of those of the same user that have not grown for so long


class Quota:
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
    def is_full(self) -> bool:
        return self._register.table.followed_count >= MAX_FILES

    def has_room_for(self, uid: int, now: float, *, resumes: bool) -> bool:
        """Whether a further log of a user may be followed; one that `resumes` was, before."""
        may_pause = resumes or self._register.table.paused_count < MAX_PAUSED
        return not self.is_full or self._next(uid, now, may_pause) is not None

    def add(self, uid: int, now: float) -> None:
        """A further log of a user is followed."""
        self._counts[uid] += 1
        while self._register.table.followed_count > MAX_FILES and (log := self._next(uid, now, may_pause=True)):
            self._pop(log.owner)
            self._register.pause(log)

    def _next(self, uid: int, now: float, may_pause: bool) -> Log | None:
        """The log that makes room for one of a user: of whoever has most, or an idle one of the user's own."""
        if not self._is_current:
            self._count()
        largest = self._largest
        if self._counts[largest] > self._counts[uid]:
            if self._first(largest) is None:  # all its logs are new
                self._count()
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

    def _count(self) -> None:
        logs = [log for log in self._register.table.followed() if log.left is None]  # else nothing would find it again
        self._is_current, self._queues, self._counts = True, {}, Counter(log.owner for log in logs)
        for log in sorted(logs, key=lambda log: (log.unseen, log.stat.touched)):
            self._queues.setdefault(log.owner, deque()).append(log)


T = TypeVar("T")
Result = TypeVar("Result")


class SharedLogs:
    """The leases of a source and its register, kept in agreement. Without leases, every log is counted."""

    def __init__(self, register: Register, leases: Leases | None) -> None:
        self._register = register
        self._leases = leases

    @property
    def is_shared(self) -> bool:
        return self._leases is not None

    @property
    def may_read(self) -> bool:
        return self._leases is None or self._leases.holds

    @property
    def problem(self) -> str:
        return self._leases.problem if self._leases else ""

    def begin(self) -> None:
        """Renew the leases, and drop logs that another node has claimed."""
        if self._leases is None:
            return
        ours = {log.base: log for log in self._register.table.followed()}
        for path in self._ask(self._leases, self._leases.tick, ours):
            if path in ours:
                self._register.drop(ours.pop(path))
        for path in ours:
            self._leases.begin_of(path)  # it goes on where our own state says

    def counts(self, path: str) -> bool:
        """Whether this node counts a log that was found."""
        return self._leases is None or self._ask(self._leases, self._leases.wants, path)

    def begin_of(self, path: str) -> int | None:
        """The offset of the node that counted a log before; None to begin as usual."""
        return self._leases.begin_of(path) if self._leases else None

    def saved(self) -> None:
        """Publish the positions, which have been committed."""
        if self._leases is not None:
            offsets = {path: log.position.offset for path, log in self._register.by_path.items()}
            self._ask(self._leases, self._leases.publish, offsets)

    def finished(self, log: Log) -> None:
        """Release a finished log."""
        if self._leases is not None:
            self._ask(self._leases, self._leases.forget, log.base)

    @staticmethod
    def _ask(leases: Leases, function: Callable[[T], Result], about: T) -> Result:
        return ask(leases.folder, function, about, lane=NO_LANE)
