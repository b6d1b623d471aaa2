"""Offers the logs of a source to the pipeline, a chunk at a time, notes what was consumed, and knows which jobs write."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.core.decoding.jobs import log_group, with_owner
from exporter.core.model import Chunk, Job, LogFormat
from exporter.core.shares import in_turn
from exporter.sources.base import SourceStats
from exporter.sources.files.access import Access
from exporter.sources.files.admission import SharedLogs
from exporter.sources.files.contents import format_of, looks_binary
from exporter.sources.files.discovery import FilesSettings
from exporter.sources.files.follow import Follower
from exporter.sources.files.log import End, Log
from exporter.sources.files.register import Register
from exporter.sources.node_jobs import COUNTED_EVERY_SECONDS, ENDED_AFTER_SECONDS, LastWrite, NodeJobs


class LogJobs:
    """The jobs of one source, as it tells the node of them."""

    def __init__(self, source: str, node_jobs: NodeJobs, service_accounts: frozenset[int]) -> None:
        self._source = source
        self._node_jobs = node_jobs
        self._service_accounts = service_accounts  # users that write logs for others: their files tell no owner
        self._counted = -math.inf

    def uid_of(self, log: Log) -> int | None:
        """The user whose job writes to a log."""
        return None if log.stat.uid in self._service_accounts else log.stat.uid

    def job_of(self, log: Log) -> Job | None:
        return with_owner(log.job, log.stat.uid, self._service_accounts)

    def write(self, log: Log) -> bool:
        """The job of a log has written to it. Whether others share the node with that."""
        job = self.job_of(log)
        name = self._name_of(log, job)
        self._node_jobs.add(self._source, name, job)
        return self._node_jobs.others_than(name)

    def count(self, logs: Iterable[Log], time: float, now: float) -> None:
        """Count the jobs that have written to a log lately. A log's ctime says when: its user cannot set it."""
        if time - self._counted < COUNTED_EVERY_SECONDS:
            return
        self._counted, logs = time, list(logs)
        since = (now - ENDED_AFTER_SECONDS) * 1e9
        running = [log for log in logs if max(log.stat.touched, log.position.modified) >= since]
        self._node_jobs.wrote(_new_writes(logs))
        jobs = {self._name_of(log, job): job for log in running for job in [self.job_of(log)]}
        self._node_jobs.count(self._source, jobs)

    def _name_of(self, log: Log, job: Job | None) -> str:
        """What tells a log's job from the others of the node. Of two users' logs that name none, each is a job's."""
        of_user = "" if job or log.stat.uid in self._service_accounts else f" of uid {log.stat.uid}"
        return log_group(job, log.position.path) + of_user


def _new_writes(logs: Iterable[Log]) -> Iterator[LastWrite]:
    """The last write to each log of a known job that was written to or read since the previous call."""
    for log in logs:
        position = log.position
        if log.job is not None and log.count_write():
            yield LastWrite(
                time=log.stat.touched / 1e9,
                job=log.job,
                path=position.shown_path,
                origin=log.origin,
                offset=position.offset,
                line=position.line,
                uid=log.stat.uid,
            )


CHUNK_BYTES = 1 << 20
POLL_BYTES = 4 << 20  # between two looks at what has changed; the daemon polls again at once while there is more
RUNNING_SECONDS = 60.0  # a job that has written for so long is taken to be running; what else was written is back-fill
BACKFILL_SECONDS = 1.0  # so long at most does back-fill wait for a chunk's turn
HOLES = 4  # a poll skips in one log


class Turn(NamedTuple):
    """A log that has something to offer, and how it may end."""

    kind: Literal["running", "backfill"]
    log: Log
    end: End


@dataclass(eq=False)
class Offering:
    """Offers the logs that have something to be read."""

    _settings: FilesSettings
    _register: Register
    _shared: SharedLogs
    _access: Access
    _follower: Follower
    _active: dict[Log, None]
    _jobs: LogJobs
    _stats: Callable[[], SourceStats]
    _backfilled: float = -math.inf  # when back-fill last had a turn
    _served: dict[int | None, None] = field(default_factory=dict)  # users whose logs had a turn; the last one last

    def offer(self, time: float, now: float) -> Iterator[Chunk]:
        """Logs of running jobs first, in turn; then back-fill, but a chunk of it a second, so that it ends."""
        self._jobs.count(self._register.table.followed(), time, now)
        if not self._shared.may_read:
            return
        turns, budget = self._turns(time, now), POLL_BYTES
        try:
            while turns and budget > 0:
                kind, log, end = turns.popleft()
                chunk = self._chunk(log, end, time, now) if self._register.table.knows(log) else None
                if chunk is not None:
                    self._active[log] = self._active.pop(log)
                    self._backfilled = time if kind == "backfill" else self._backfilled
                    budget -= len(chunk.data)
                    self._served.pop(owner := log.owner, None)
                    self._served[owner] = None
                    yield chunk
        finally:
            for kind in {turn.kind for turn in turns}:
                self._stats().defer(kind)

    def _turns(self, time: float, now: float) -> deque[Turn]:
        """The logs that have something to offer: one of each user after the other, the longest not served first."""
        running: list[Turn] = []
        backfill: list[Turn] = []
        for log in list(self._active):
            end = log.due(time, self._settings.grace_seconds)
            if end == "final" and self._access.is_written_to(log):
                log.mark_grown(time)  # its next line may come in an hour
            elif end is not None and now - log.stat.modified / 1e9 < RUNNING_SECONDS:
                running.append(Turn("running", log, end))
            elif end is not None:
                backfill.append(Turn("backfill", log, end))
            elif not log.active(time):
                del self._active[log]
        running, backfill = (
            list(in_turn(turns, lambda turn: turn.log.owner, self._served)) for turns in (running, backfill)
        )
        first = backfill[:1] if time - self._backfilled >= BACKFILL_SECONDS else []
        return deque([*first, *running, *backfill[len(first) :]])

    def advance(self, log: str, consumed: int, lines: int) -> None:
        """The first `consumed` bytes of what was last offered of a log, with so many lines, are done with."""
        followed = self._register.log(log)
        in_flight = followed.offer.in_flight
        final = in_flight is not None and in_flight.end == "final" and consumed == len(in_flight.data)
        followed.consume(consumed, lines)
        if final:
            with self._access.counting_errors(followed.position.path):
                self._follower.settle_where_it_is(followed)
            self._register.finish(followed)
            self._shared.finished(followed)
        elif consumed:
            self._register.save(followed)

    def _chunk(self, log: Log, end: End, time: float, now: float) -> Chunk | None:
        """What a log has to offer. An end is always offered, so that the pipeline may forget the log."""
        block, start = b"", log.position.offset
        written_at = None
        if not log.over:
            got = None
            with self._access.counting_errors(log.position.path):
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
            path=position.shown_path,
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
                    self._follower.rechecks.add_left(path, log)
            self._stats().bytes_read += log.take_in(block, start, count, time)
            with self._access.reading(log, time):
                skipped = log.skip_nuls(block, start)
            if not skipped:
                break
            self._register.save(log)
        if log.position.offset == 0 and log.keep_mark(block):
            self._register.save(log)
        if not log.last_read.is_text_known and log.last_read.read_to > log.position.offset:
            log.set_text_known(True)
            if looks_binary(block[log.position.offset - start :]):
                self._follower.refuse_binary(log)
                return None
        return block, start

    def _format(self, log: Log, data: bytes) -> LogFormat:
        if self._settings.format != "auto":
            return self._settings.format
        if log.position.format is None:
            log.set_format(format_of(log.position.place or log.base, data))
        return log.position.format or "plain"
