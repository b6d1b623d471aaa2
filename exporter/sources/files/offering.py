"""Offers the logs of a source to the pipeline, a chunk at a time, and takes in how much of each was consumed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from exporter.core.model import Chunk, LogFormat
from exporter.core.shares import in_turn
from exporter.sources.base import SourceStats
from exporter.sources.files.access import Access
from exporter.sources.files.container_format import format_of
from exporter.sources.files.filesystem import looks_binary
from exporter.sources.files.finding import Finder
from exporter.sources.files.follow import Follower
from exporter.sources.files.log_jobs import LogJobs
from exporter.sources.files.log_values import End
from exporter.sources.files.places import owner_of
from exporter.sources.files.register import Register
from exporter.sources.files.rounds import Rounds
from exporter.sources.files.settings import FilesSettings
from exporter.sources.files.shared_logs import SharedLogs
from exporter.sources.files.tail import Log

CHUNK_BYTES = 1 << 20
POLL_BYTES = 4 << 20  # between two looks at what has changed; the daemon polls again at once while there is more
RUNNING_SECONDS = 60.0  # a job that has written for so long is taken to be running; what else was written is back-fill
BACKFILL_SECONDS = 1.0  # so long at most does back-fill wait for a chunk's turn
HOLES = 4  # a poll skips in one log


class Turn(NamedTuple):
    """A log that has something to offer, and how it may end."""

    what: Literal["running", "backfill"]
    log: Log
    end: End


class Offering:
    """Offers the logs that have something to be read."""

    def __init__(
        self,
        settings: FilesSettings,
        register: Register,
        shared: SharedLogs,
        access: Access,
        follower: Follower,
        finder: Finder,
        rounds: Rounds,
        jobs: LogJobs,
        stats: Callable[[], SourceStats],
    ) -> None:
        self._settings = settings
        self._register = register
        self._shared = shared
        self._access = access
        self._follower = follower
        self._finder = finder
        self._rounds = rounds
        self._jobs = jobs
        self._stats = stats
        self._backfilled = -math.inf  # when back-fill last had a turn
        self._served: dict[int | None, None] = {}  # users of the node whose logs had a turn; the last one last

    def offer(self, time: float, now: float) -> Iterator[Chunk]:
        """Logs of running jobs first, in turn; then back-fill, but a chunk of it a second, so that it ends."""
        self._jobs.count(self._register.table.followed(), time, now)
        if not self._shared.may_read:
            return
        turns, budget = self._turns(time, now), POLL_BYTES
        try:
            while turns and budget > 0:
                what, log, end = turns.popleft()
                chunk = self._chunk(log, end, time, now) if self._register.table.knows(log) else None
                if chunk is not None:
                    self._rounds.active[log] = self._rounds.active.pop(log)
                    self._backfilled = time if what == "backfill" else self._backfilled
                    budget -= len(chunk.data)
                    self._served.pop(owner := owner_of(log), None)
                    self._served[owner] = None
                    yield chunk
        finally:
            for what in {what for what, _, _ in turns}:
                self._stats().defer(what)

    def _turns(self, time: float, now: float) -> deque[Turn]:
        """The logs that have something to offer: one of each user after the other, the longest not served first."""
        running: list[Turn] = []
        backfill: list[Turn] = []
        for log in list(self._rounds.active):
            end = log.due(time, self._settings.grace_seconds)
            if end == "final" and self._access.is_written_to(log):
                log.activity.grew = time  # its next line may come in an hour
            elif end is not None and now - log.stat.modified / 1e9 < RUNNING_SECONDS:
                running.append(Turn("running", log, end))
            elif end is not None:
                backfill.append(Turn("backfill", log, end))
            elif not log.active(time):
                del self._rounds.active[log]
        running, backfill = (
            list(in_turn(turns, lambda turn: owner_of(turn.log), self._served)) for turns in (running, backfill)
        )
        first = backfill[:1] if time - self._backfilled >= BACKFILL_SECONDS else []
        return deque([*first, *running, *backfill[len(first) :]])

    def advance(self, log: str, consumed: int, lines: int) -> None:
        """The first `consumed` bytes of what was last offered of a log, with so many lines, are done with."""
        known = self._register.log(log)
        handed = known.offer.handed
        final = handed is not None and handed.end == "final" and consumed == len(handed.data)
        known.consume(consumed, lines)
        if final:
            with self._access.survived(known.position.path):
                self._follower.settle_where_it_is(known)
            self._register.finish(known)
            self._shared.finished(known)
        elif consumed:
            self._register.save(known)

    def _chunk(self, log: Log, end: End, time: float, now: float) -> Chunk | None:
        """What a log has to offer. An end is always offered, so that the pipeline may forget the log."""
        block, start = b"", log.position.offset
        written_at = None
        if not log.over:
            got = None
            with self._access.survived(log.position.path):
                got = self._read(log, time)
            if got is None:
                return None
            block, start = got
            written_at = log.written_at(block, start)
        data = log.hand_out(block, start, end, self._settings.line_bytes)
        if not data and end != "final":
            return None
        stats = self._stats()
        stats.last_read = now if data else stats.last_read
        position, shares_node = log.position, self._jobs.write(log)
        return Chunk(
            log=log.key,
            origin=log.origin,
            path=position.path.encode("utf-8", "backslashreplace").decode(),  # rotation may have given it any name
            source="job",
            format=self._format(log, data),
            offset=position.offset,
            line=position.line,
            data=data,
            read_at=now,
            end=end,
            job=self._jobs.job_of(log),
            written_at=written_at,
            shares_node=shares_node,
            uid=self._jobs.uid_of(log),
        )

    def _read(self, log: Log, time: float) -> tuple[bytes, int] | None:
        """The next bytes of a log and where they start, holes and NULs before the next line left out."""
        count = max(CHUNK_BYTES, self._settings.line_bytes)
        for _ in range(HOLES):
            got = self._follower.read(log, count, time)
            if got is None:
                return None
            block, start = got
            if not log.position.mark.length:  # nothing tells whether bytes were written, and copied, meanwhile
                for path in log.names:
                    self._follower.vacate(path, log)
            self._stats().bytes_read += log.take_in(block, start, count, time)
            with self._access.reading(log, time):
                skipped = log.skip_nuls(block, start)
            if not skipped:
                break
            self._register.save(log)
        if log.position.offset == 0 and log.keep_mark(block):
            self._register.save(log)
        if not log.last_read.judged and log.last_read.looked_to > log.position.offset:
            log.last_read.judged = True
            if looks_binary(block[log.position.offset - start :]):
                self._finder.refuse_binary(log)
                return None
        return block, start

    def _format(self, log: Log, data: bytes) -> LogFormat:
        if self._settings.format != "auto":
            return self._settings.format
        if log.position.format is None:
            log.position = replace(log.position, format=format_of(log.position.place or log.base, data))
        return log.position.format or "plain"
