"""Job logs in files: polled, with inotify as a hint; every line read once, through rotation, truncation and restarts.

Decides when the parts run: `discovery` finds the paths of logs, `assigner` the log of a path, `resolver` a log's bytes;
`log` knows which bytes are next, and `offering` what the pipeline gets in a poll.
A chunk's line numbers are those of the file, unless more than 64 MiB were skipped at the very first start: then
they count from 1 there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from exporter.core.model import Chunk, Job
from exporter.sources.base import SourceStats
from exporter.sources.calls import Stalled
from exporter.sources.files.access import Access, OpenLogs
from exporter.sources.files.admission import SharedLogs
from exporter.sources.files.assigner import Assigner
from exporter.sources.files.discovery import FilesSettings, GlobMatch, Globs
from exporter.sources.files.filesystem import is_there, may_list, reason_of
from exporter.sources.files.follow import Follower
from exporter.sources.files.leases import Leases
from exporter.sources.files.log import Log
from exporter.sources.files.offering import LogJobs, Offering
from exporter.sources.files.register import REFUSED, Register
from exporter.sources.files.resolver import Resolver
from exporter.sources.files.skipped_files import SkippedFiles
from exporter.sources.files.watch import Hints, Watch
from exporter.sources.node_jobs import NodeJobs

RESCAN_SECONDS = 10.0
IDLE_ROUND_SECONDS = 10.0  # in which every log is checked once
UNWATCHED_CHECKS = 500  # a poll, where inotify does not report changes: 2.5 ms, and on most nodes all logs
WALK_STEPS = 40  # of a walk in one poll: 20,000 entries or 1,000 folders, about 40 ms


class Walks:
    """The walks of one source. The first one is made at once."""

    def __init__(self, globs: Globs, access: Access) -> None:
        self._globs = globs
        self._access = access
        self._walks: deque[Iterator[GlobMatch | None]] = deque()  # the one over everything, if it is on, is the last
        self._begun: float | None = None  # when the last walk over everything began
        self._first_ended = False

    def begin(self, folders: Iterable[str], time: float) -> bool:
        """Begin the walks that are due. Whether one of them is over everything."""
        is_due = not self._walks and (self._begun is None or time - self._begun >= RESCAN_SECONDS)
        for folder in folders:
            self._walks.appendleft(self._walk(folder))
        if is_due:
            self._begun = time
            self._walks.append(self._walk(None))
        return is_due

    def step(self) -> Iterator[GlobMatch]:
        """What the walks find in a poll."""
        steps, most = 0, WALK_STEPS if self._first_ended else None
        while self._walks and (most is None or steps < most):
            for entry in self._walks[0]:
                if entry is not None:
                    yield entry
                elif (steps := steps + 1) == most:
                    break
            else:
                self._walks.popleft()
        self._first_ended = True

    def _walk(self, below: str | None) -> Iterator[GlobMatch | None]:
        return self._globs.walk(self._access.roots, self._trouble, below)

    def _trouble(self, folder: str, error: OSError) -> None:
        reason = reason_of(error)
        if isinstance(error, Stalled):
            return
        if not isinstance(error, FileNotFoundError):
            self._access.refusals.note(folder, "folder_unreadable" if reason == "unreadable" else reason)
        elif folder not in self._globs.roots:
            self._access.refusals.note(folder, "folder_vanished")


class Rounds:
    """The logs of one register."""

    def __init__(self, register: Register) -> None:
        self.active: dict[Log, None] = {}  # checked in every poll; the longest not served first
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

    def add_changed(self, time: float, now: float) -> None:
        """Check the logs that are new in the register, and those that changed, in every poll."""
        for log in self._register.added:
            if not log.activity.changed:  # for how long? What is quiet for hours need not be looked at in every poll
                log.mark_grown(min(time, time - (now - log.stat.modified / 1e9)))
            self._round.append(log)
        self.active.update(self._register.changed)
        self._register.added.clear()
        self._register.changed.clear()

    def share(self, *, watched: bool) -> list[Log]:
        """The logs that are due for a check. `watched`: inotify reports the changes of all of them."""
        count = math.ceil(len(self._round) * min(1.0, self._passed / IDLE_ROUND_SECONDS))
        if not watched:
            count = max(count, min(len(self._round), UNWATCHED_CHECKS))
        due = [log for log in (self._round.popleft() for _ in range(count)) if self._register.table.knows(log)]
        self._round.extend(due)
        return due


class FilesSource:
    """All files that some globs match. `first_start`: no state at all was there, so `start` says where to begin."""

    overwritten = False

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
        self._globs = settings.globs()
        self._register = Register(name, stored, job_of)
        self._shared = SharedLogs(self._register, leases)
        refusals = SkippedFiles(lambda: self.stats, log, self._register.texts[REFUSED])
        roots = (*self._globs.roots, *settings.allow_roots)
        self._access = Access(roots, OpenLogs(settings.open_files), refusals)
        resolver = Resolver(self._register.table, self._globs, self._access)
        self._follower = Follower(
            self._register, self._globs, self._access, resolver, lambda: self.stats, settings.line_bytes
        )
        self._assigner = Assigner(
            self._register, self._globs, self._follower, resolver, self._access, self._shared.begin_of
        )
        self._watch = Watch(wake) if settings.watch else None
        self._walks = Walks(self._globs, self._access)
        self._rounds = Rounds(self._register)
        jobs = LogJobs(name, node_jobs or NodeJobs(), settings.service_accounts)
        self._offering = Offering(
            settings, self._register, self._shared, self._access, self._follower, self._rounds.active, jobs, lambda: self.stats,
        )  # fmt: skip
        if first_start and settings.start == "end":
            self._register.start_initial_scan()

    def share_with(self, sources: Iterable[FilesSource]) -> None:
        """A log that moves to the folders of another source goes on there."""
        self._assigner.planner.others = [source._assigner.planner for source in sources if source is not self]

    @property
    def watch_mode(self) -> str:
        """How changes are noticed: `inotify`, `poll`, or `mixed` where only some folders can be watched."""
        return self._watch.mode if self._watch is not None else "poll"

    def poll(self, now: float) -> Iterator[Chunk]:
        time = self._rounds.begin(now)
        self._register.start_poll(now)
        self._access.begin(time)
        self._follower.begin()
        self._assigner.begin()
        self._shared.begin()
        self._assigner.copies.settle(time)  # one that waits may be the log of which a copy is found now
        self._apply_changes(time, now)
        hints = self._watch.take(time) if self._watch is not None else Hints()
        self._visit(hints.paths, time)
        self._apply_changes(time, now)
        self._discover(hints.folders, time)
        self._apply_changes(time, now)
        try:
            yield from self._offering.offer(time, now)
            self._apply_changes(time, now)  # what was moved on from a log that was read is committed with it
        finally:
            self._access.open_logs.tidy(time)
            self._measure(time)

    def advance(self, log: str, consumed: int, lines: int) -> None:
        self._offering.advance(log, consumed, lines)

    def unsaved(self) -> Mapping[str, str | None]:
        self._follower.rechecks.store()
        return self._register.unsaved()

    @property
    def is_shared(self) -> bool:
        """Whether other nodes watch its logs."""
        return self._shared.is_shared

    def committed(self) -> None:
        """Record that the positions have been committed, without publishing them to other nodes."""
        self._register.saved()

    def saved(self) -> None:
        self.committed()
        self._shared.saved()

    def fileno(self) -> int | None:
        return None  # watchdog's thread calls `wake`

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._assigner.copies.close()
        for log in self._register.table.followed():
            log.close()

    def _apply_changes(self, time: float, now: float) -> None:
        """Check the queued paths again, and follow new and changed logs."""
        while self._register.unreadable_rows:
            self._access.refusals.note(self._register.unreadable_rows.pop(), "position_unreadable")
        for path, recheck in self._follower.rechecks.pop():
            with self._access.counting_errors(path):
                self._assigner.recheck(path, recheck, time)
        self._rounds.add_changed(time, now)

    def _visit(self, hinted: Iterable[str], time: float) -> None:
        """Check the active logs, those with a hint, and a share of all others."""
        others = self._rounds.share(watched=self.watch_mode == "inotify")
        others += [named for path in hinted if (named := self._register.by_path.get(path)) is not None]
        for log in dict.fromkeys([*self._rounds.active, *others]):
            if not self._register.table.knows(log):
                self._rounds.active.pop(log, None)
                continue
            with self._access.counting_errors(log.position.path):
                self._follower.visit(log, time)
            vacant = log.base not in self._register.by_path and (log.left is not None or is_there(log.base))
            if vacant and self._is_free(log.base):
                self._assigner.enqueue(log.base, log)  # a walk may find what is there now too late
            if log.active(time):
                self._rounds.active[log] = None
        for path in hinted:  # after all logs: one of them may go on in what is there now
            if self._is_free(path):
                with self._access.counting_errors(path):
                    self._assigner.assign(path, time)

    def _is_free(self, path: str) -> bool:
        """Whether a path may lead to a log, and to none that is known."""
        return path not in self._register.by_path and self._globs.match(path) and self._shared.counts(path)

    def _discover(self, folders: Iterable[str], time: float) -> None:
        if self._walks.begin(folders, time):
            self._check_roots(time)
            self._assigner.resume(time)
        for entry in self._walks.step():
            self._assign(entry, time)
        self._register.end_initial_scan()

    def _assign(self, entry: GlobMatch, time: float) -> None:
        log = self._register.by_path.get(entry.path)
        if entry.is_folder:
            self._access.refusals.note(entry.path, "directory")
        elif (log is None or entry.is_link or entry.inode != log.position.inode) and self._shared.counts(entry.path):
            with self._access.counting_errors(entry.path):
                self._assigner.assign(entry.path, time)

    def _check_roots(self, time: float) -> None:
        roots = self._globs.watchable()
        if self._watch is not None:
            self._watch.follow(roots, time)
        if self._shared.problem:
            self.stats.up, self.stats.down_reason = False, self._shared.problem
            return
        try:
            mistakes = self._globs.mistakes()
            self.stats.up = any(map(may_list, roots)) and len(mistakes) < len(set(self._globs.patterns))
        except Stalled:
            return  # nobody can tell
        wrong = "; ".join(mistakes.values())
        why = f"none of {', '.join(roots)} can be listed; create them, give permission, or correct paths"
        self.stats.down_reason = wrong if self.stats.up else wrong or why

    def _measure(self, time: float) -> None:
        lagging = [log for log in self._rounds.active if log.lag]
        self.stats.files = self._register.table.followed_count
        self.stats.open_files = len(self._access.open_logs)
        self.stats.lag_bytes = sum(log.lag for log in lagging)
        self.stats.lag_seconds = max(
            (time - log.activity.waiting for log in lagging if log.activity.waiting is not None), default=0.0
        )
