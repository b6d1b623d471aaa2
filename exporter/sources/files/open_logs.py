"""Which logs keep their file open: the lately read ones, a bounded number of them."""

from __future__ import annotations

from itertools import islice

from exporter.core.shares import most_first
from exporter.sources.files.filesystem import OpenFile, most_open_files
from exporter.sources.files.places import owner_of
from exporter.sources.files.tail import Log

# An open file keeps its mount busy. A job that hangs says why when its collectives time out (NCCL's after 10 minutes,
# gloo's after 30), and its folder may be deleted the next moment.
IDLE_SECONDS = 3600.0
MIN_FILES = 8
TIDY_SECONDS = 1.0  # between two looks at all of them, unless there are too many
FEWER_SECONDS = 60.0  # how long descriptors stay scarce once one was refused


class OpenLogs:
    """The open logs, the least recently read first. Closing one costs a reopening, but an unlinked one is gone then."""

    def __init__(self, limit: int) -> None:
        self._most = max(MIN_FILES, min(limit, most_open_files() // 3))  # a walk may hold twice as many for a moment
        self._limit = self._most
        self._fewer_until = 0.0
        self._tidied = -TIDY_SECONDS
        self._used: dict[Log, float] = {}

    def __len__(self) -> int:
        return sum(log.reader is not None for log in self._used)

    @property
    def has_room(self) -> bool:
        return len(self._used) < self._limit

    def hold(self, log: Log, file: OpenFile, now: float) -> None:
        """A log's file has been opened."""
        if len(self._used) > 2 * self._limit:  # in a walk that finds many
            self.tidy(now)
        log.drop_reader()
        log.reader = file
        self.use(log, now)

    def use(self, log: Log, now: float) -> None:
        """A log has been read."""
        self._used.pop(log, None)
        self._used[log] = now

    def use_fewer(self, now: float) -> None:
        """The process or the system has no descriptor left."""
        self._limit = max(MIN_FILES, min(self._limit, len(self._used)) // 2)
        self._fewer_until = now + FEWER_SECONDS
        self.tidy(now)

    def tidy(self, now: float) -> None:
        """Close what is too many or long idle: of whoever has most open, deleted files only if there is nothing else."""
        if now >= self._fewer_until:
            self._limit = self._most
        if len(self._used) <= self._limit and now - self._tidied < TIDY_SECONDS:
            return
        self._tidied = now
        self._used = {log: used for log, used in self._used.items() if log.reader is not None}
        excess = max(0, len(self._used) - self._limit)
        first_in_line = sorted(self._used, key=lambda log: log.stat.unlinked)  # stable: the least recently read first
        idle = [log for log in first_in_line if log.left is None and now - self._used[log] > IDLE_SECONDS]
        for log in {*idle, *islice(most_first(first_in_line, owner_of), excess)}:
            self._close(log)

    def _close(self, log: Log) -> None:
        del self._used[log]
        log.drop_reader()
