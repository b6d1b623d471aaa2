"""Job logs in files: polled, with inotify as a hint; every line read once, through rotation, truncation and restarts.

Sits between the parts: `discovery` says which paths are logs, `finding` whose file a path leads to, `resolver` where a
log's bytes are, `tail` what of them is next. Here is only when each of them is asked, and how much is done in a poll.
A chunk's line numbers are those of the file, unless more than 64 MiB were skipped at the very first start: then
they count from 1 there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from exporter.core.model import Chunk, Job, LogFormat
from exporter.sources.base import SourceStats
from exporter.sources.files.access import Access
from exporter.sources.files.clock import Clock
from exporter.sources.files.container_format import format_of
from exporter.sources.files.discovery import Entry, Globs
from exporter.sources.files.filesystem import Roots, is_there, looks_binary, may_list, reason_of
from exporter.sources.files.finding import Finder
from exporter.sources.files.follow import Follower
from exporter.sources.files.leases import Leases
from exporter.sources.files.log_jobs import LogJobs
from exporter.sources.files.log_values import End
from exporter.sources.files.open_logs import OpenLogs
from exporter.sources.files.register import Register
from exporter.sources.files.resolver import Resolver
from exporter.sources.files.shared_logs import SharedLogs
from exporter.sources.files.skipped_files import SkippedFiles
from exporter.sources.files.tail import Log
from exporter.sources.files.walks import Walks
from exporter.sources.files.watch import Hints, Watch
from exporter.sources.node_jobs import NodeJobs

CHUNK_BYTES = 1 << 20
POLL_BYTES = 4 << 20  # between two looks at what has changed; the daemon polls again at once while there is more
RUNNING_SECONDS = 60.0  # a job that has written for so long is taken to be running; what else was written is back-fill
BACKFILL_SECONDS = 1.0  # so long at most does back-fill wait for a chunk's turn
IDLE_ROUND_SECONDS = 10.0  # in which every log is looked at once
UNTOLD_LOOKS = 500  # a poll, where no inotify tells of quiet logs: 2.5 ms, and on most nodes all there are
HOLES = 4  # a poll skips in one log


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """What the configuration says of one source of kind `files`."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    earlier: tuple[FilesSettings, ...] = ()  # sources before this one, whose logs are not this one's
    format: Literal["auto", "plain", "cri", "docker"] = "auto"
    start: Literal["end", "beginning"] = "end"
    allow_roots: tuple[str, ...] = ()
    line_bytes: int = 1 << 20
    open_files: int = 1024
    grace_seconds: float = 30.0  # how long a rotated or deleted file must be quiet: its writers still have it open
    watch: bool = True
    service_accounts: frozenset[int] = frozenset({0})  # users that write logs for others: their files tell no owner

    def globs(self) -> Globs:
        return Globs(self.paths, self.exclude, [source.globs() for source in self.earlier])


class FilesSource:
    """All files that some globs match. `first_start`: no state at all was there, so `start` says where to begin."""

    def __init__(
        self,
        name: str,
        settings: FilesSettings,
        *,
        stored: Mapping[str, str],
        first_start: bool,
        job_of: Callable[[str], Job | None],
        log: Callable[[str], None],
        wake: Callable[[], None],
        node_jobs: NodeJobs | None = None,
        leases: Leases | None = None,
    ) -> None:
        self.name = name
        self.stats = SourceStats(deferred={"running": 0, "backfill": 0})
        self.overwritten = False
        self._settings = settings
        self._globs = settings.globs()
        self._register = Register(name, stored, job_of)
        self._shared = SharedLogs(self._register, leases)
        self._access = Access(
            OpenLogs(settings.open_files), SkippedFiles(lambda: self.stats, log, self._register.refused)
        )
        resolver = Resolver(self._register.table, self._globs, self._access)
        self._follower = Follower(self._register, self._globs, self._access, resolver, lambda: self.stats)
        self._finder = Finder(
            self._register, self._globs, self._follower, resolver, self._access, line_bytes=settings.line_bytes
        )
        self._finder.begin_of = self._shared.begin_of
        self._watch = Watch(wake) if settings.watch else None
        self._clock = Clock()
        self._walks = Walks(self._globs, self._trouble)
        self._jobs = LogJobs(name, node_jobs or NodeJobs(), settings.service_accounts)
        self._round: deque[Log] = deque()
        self._active: dict[Log, None] = {}  # looked at in every poll; the longest not served first
        self._backfilled = -math.inf  # when back-fill last had a turn
        if first_start and settings.start == "end":
            self._register.begin_first()

    def share_with(self, sources: Iterable[FilesSource]) -> None:
        """A log that moves to the folders of another source goes on there."""
        self._finder.others = [source._finder for source in sources if source is not self]

    @property
    def watch_mode(self) -> str:
        """How changes are noticed: `inotify`, `poll`, or `mixed` where only some folders can be watched."""
        return self._watch.mode if self._watch is not None else "poll"

    def poll(self, now: float) -> Iterator[Chunk]:
        time, passed = self._clock.tick(now)
        self._register.begin(now)
        self._access.begin(Roots.of([*self._globs.roots, *self._settings.allow_roots]), time)
        self._follower.begin()
        self._shared.begin()
        self._stir(time, now)
        hints = self._watch.take(time) if self._watch is not None else Hints()
        self._visit(hints.paths, time, passed)
        self._discover(hints.folders, time)
        self._finder.settle_copies(time)
        self._stir(time, now)
        self._jobs.count(self._register.table.followed(), time, now)
        try:
            if self._shared.may_read:
                yield from self._offer(time, now)
            self._stir(time, now)  # what was moved on from a log that was read is committed with it
        finally:
            self._access.open_logs.tidy(time)
            self._measure(time)

    def advance(self, log: str, consumed: int, lines: int) -> None:
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

    def unsaved(self) -> Mapping[str, str | None]:
        return self._register.unsaved()

    def saved(self) -> None:
        self._register.saved()
        self._shared.saved()

    def fileno(self) -> int | None:
        return None  # watchdog's thread calls `wake`

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._finder.close()
        for log in self._register.table.followed():
            log.close()

    def _stir(self, time: float, now: float) -> None:
        """Take in what the parts have done to logs and paths."""
        while self._register.unreadable_rows:
            self._access.refusals.note(self._register.unreadable_rows.pop(), "position_unreadable")
        for path, vacated in self._follower.take_vacated():
            with self._access.survived(path):
                self._finder.vacated(path, vacated, time)
        for log in self._register.born:
            if not log.activity.changed:  # for how long? What is quiet for hours need not be looked at in every poll
                log.activity.grew = min(time, time - (now - log.stat.modified / 1e9))
            self._round.append(log)
        self._active.update(self._register.stirred)
        self._register.born.clear()
        self._register.stirred.clear()

    def _visit(self, hinted: Iterable[str], time: float, passed: float) -> None:
        """Look at the logs that move, at those that something was hinted of, and at a share of all others."""
        others = []
        looks = math.ceil(len(self._round) * min(1.0, passed / IDLE_ROUND_SECONDS))
        if self.watch_mode != "inotify":
            looks = max(looks, min(len(self._round), UNTOLD_LOOKS))
        for _ in range(looks):
            log = self._round.popleft()
            if self._register.table.knows(log):
                self._round.append(log)
                others.append(log)
        others += [named for path in hinted if (named := self._register.by_path.get(path)) is not None]
        vacant: list[str] = []
        for log in dict.fromkeys([*self._active, *others]):
            if not self._register.table.knows(log):
                self._active.pop(log, None)
                continue
            with self._access.survived(log.position.path):
                self._follower.visit(log, time)
            if log.base not in self._register.by_path and (log.left is not None or is_there(log.base)):
                vacant.append(log.base)  # a walk may find what is there now too late
            if log.active(time):
                self._active[log] = None
        for path in dict.fromkeys([*hinted, *vacant]):  # after all logs: one of them may go on in what is there now
            if path not in self._register.by_path and self._globs.match(path) and self._shared.counts(path):
                with self._access.survived(path):
                    self._finder.found(path, time)

    def _discover(self, folders: Iterable[str], time: float) -> None:
        """Look for new logs."""
        first = not self._walks.first_ended
        if self._walks.begin(folders, self._access.roots, time):
            self._look_at_roots(time)
            self._finder.resume(time)
        self._finder.skipping = self._register.first
        for entry in self._walks.step():
            self._found(entry, time)
        if first:
            self._register.end_first()
            self._finder.skipping = False

    def _found(self, entry: Entry, time: float) -> None:
        log = self._register.by_path.get(entry.path)
        if entry.is_folder:
            self._access.refusals.note(entry.path, "directory")
        elif (log is None or entry.is_link or entry.inode != log.position.inode) and self._shared.counts(entry.path):
            with self._access.survived(entry.path):
                self._finder.found(entry.path, time)

    def _trouble(self, folder: str, error: OSError) -> None:
        reason = reason_of(error)
        if not isinstance(error, FileNotFoundError):
            self._access.refusals.note(folder, "folder_unreadable" if reason == "unreadable" else reason)
        elif folder not in self._globs.roots:
            self._access.refusals.note(folder, "folder_vanished")

    def _look_at_roots(self, time: float) -> None:
        roots = self._globs.watchable()
        if self._watch is not None:
            self._watch.follow(roots, time)
        if self._shared.problem:
            self.stats.up, self.stats.down_reason = False, self._shared.problem
            return
        self.stats.up = any(map(may_list, roots))
        why = f"none of {', '.join(roots)} can be listed; create them, give permission, or correct paths"
        self.stats.down_reason = "" if self.stats.up else why

    def _offer(self, time: float, now: float) -> Iterator[Chunk]:
        """Logs of running jobs first, in turn; then back-fill, but a chunk of it a second, so that it ends."""
        running: list[tuple[Log, End]] = []
        backfill: list[tuple[Log, End]] = []
        for log in list(self._active):
            end = log.due(time, self._settings.grace_seconds)
            if end == "final" and self._access.is_written_to(log):
                log.activity.grew = time  # its next line may come in an hour
            elif end is not None:
                (running if now - log.stat.modified / 1e9 < RUNNING_SECONDS else backfill).append((log, end))
            elif not log.active(time):
                del self._active[log]
        turns = deque([*(("running", *turn) for turn in running), *(("backfill", *turn) for turn in backfill)])
        if backfill and time - self._backfilled >= BACKFILL_SECONDS:
            turns.remove(first := ("backfill", *backfill[0]))
            turns.appendleft(first)
        budget = POLL_BYTES
        try:
            while turns and budget > 0:
                what, log, end = turns.popleft()
                chunk = self._chunk(log, end, time, now) if self._register.table.knows(log) else None
                if chunk is not None:
                    self._active[log] = self._active.pop(log)
                    self._backfilled = time if what == "backfill" else self._backfilled
                    budget -= len(chunk.data)
                    yield chunk
        finally:
            for what in {what for what, _, _ in turns}:
                self.stats.defer(what)

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
        self.stats.last_read = now if data else self.stats.last_read
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
            self.stats.bytes_read += log.take_in(block, start, count, time)
            try:
                skipped = log.skip_nuls(block, start)
            except OSError as error:
                self._access.cannot(log, error, time)
                raise
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

    def _measure(self, time: float) -> None:
        behind = [log for log in self._active if log.lag]
        self.stats.files = self._register.table.followed_count
        self.stats.open_files = len(self._access.open_logs)
        self.stats.lag_bytes = sum(log.lag for log in behind)
        self.stats.lag_seconds = max(
            (time - log.activity.waiting for log in behind if log.activity.waiting is not None), default=0.0
        )
