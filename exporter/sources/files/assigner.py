"""Which files are looked at for logs, and in which order: those at paths of the globs, and those that rotation has moved on
before they were seen. `moves` tells what becomes of each.
"""

import math
import os
import stat
from collections.abc import Callable, Sequence

from exporter.sources.files import filesystem, folders
from exporter.sources.files.access import Access
from exporter.sources.files.admission import Quota
from exporter.sources.files.contents import inode_of
from exporter.sources.files.copies import Archives, Copies
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.folders import COMPRESSED
from exporter.sources.files.follow import Follower
from exporter.sources.files.log import Log
from exporter.sources.files.moves import BeginUnlessCopied, Planner, Revive
from exporter.sources.files.register import Recheck, Register
from exporter.sources.files.resolver import Resolver
from exporter.sources.files.states import LogPosition, NextStep


class Assigner:
    """Gives each path of the globs its log."""

    def __init__(
        self,
        register: Register,
        globs: Globs,
        follower: Follower,
        resolver: Resolver,
        access: Access,
        begin_of: Callable[[str], int | None],
    ) -> None:
        self.planner = Planner(register, globs, access, resolver, begin_of)
        self.copies = Copies(register, follower, self.planner, access, resolver.short_copies)
        self._register = register
        self._globs = globs
        self._follower = follower
        self._resolver = resolver
        self._access = access
        self._archives = Archives(follower, self.planner, access)
        self._quota = Quota(register)

    def begin(self) -> None:
        self._quota.begin()

    def assign(self, path: str, now: float) -> None:
        """A path of the globs is there, as far as the folder tells."""
        status = self._access.status(path)
        if status is None:
            if path not in self._register.by_path and not filesystem.is_there(path):
                self.enqueue(path, None)  # it was there, and has been moved on
            return
        register, file = self._register, inode_of(status)
        owner = register.by_path.get(path)
        if owner is not None:
            if owner.position.file == file:
                return
            self._recheck(owner, now)
            if register.by_path.get(path) is owner:
                if owner.position.path == path:
                    return
                self._follower.unname(owner, path)  # was a second name of the owner's file
        log = register.table.log_at(file)
        if log is None or not self._follower.claim(log, path, now):
            paused = register.table.paused_at(file)
            if paused is not None and self._quota.is_full and not _has_grown(paused, status):
                return
            if not self._quota.has_room_for(status.st_uid, now, resumes=paused is not None):
                self._access.refusals.note(os.path.dirname(path), "too_many_files")
                return
            self._adopt(path, now)
            self._quota.add(status.st_uid, now)
        elif register.table.last_of(path) is not log.position:
            self.enqueue(path, log)

    def enqueue(self, path: str, log: Log | None) -> None:
        """Look at a path and the files beside it before anything is read: `log` is, or has been, called so."""
        last = self._register.table.last_of(path)
        self._follower.rechecks.add(path, log, last.modified if last is not None else None)

    def recheck(self, path: str, recheck: Recheck, now: float) -> None:
        """Assign the file that is at a queued path now, and those that were there since its last log was `modified`, and have
        been moved on before they were seen, oldest first.

        Where it had no log, other programs' files may have names that begin alike, and only a number or a date tells of
        rotation. What its folder held at some time since the path was queued tells all then.
        """
        log, modified, queued = recheck
        folders = self._resolver.folders
        since = self._register.time_after(self._register.since if modified is None else modified)
        try:
            self._recheck_path(path, now, log)
            folder, name = os.path.split(path)
            siblings = folders.at(folder, queued if modified is None else math.inf).siblings(name)
            for sibling, status in reversed(folders.newest_first(siblings)):
                ours = modified is not None or self._is_rotated(sibling, path)
                if ours and status.st_mtime_ns >= since and stat.S_ISREG(status.st_mode):
                    if self._globs.match(sibling) and not sibling.endswith(".gz"):
                        self._assign_early(sibling, status, now)
                    elif sibling.endswith(COMPRESSED):
                        self._archives.take(path, sibling, now, log)
                    else:
                        self._take_sibling(path, sibling, now)
            alone = modified is None and not siblings
            rested = alone or folders.at(folder).siblings(name) == siblings
        except OSError:
            self._follower.rechecks.add(path, log, modified)
            raise
        if not rested:
            self._follower.rechecks.add(path, log, modified)  # they were moved on while they were looked at

    def resume(self, now: float) -> None:
        """Logs that rotation has moved out of the globs, and that were quiet for so long that they were done with, may be
        written to all the same: by a job that opened its log once.
        """
        for origin in self._register.table.lingering():
            position = self._register.table.at(origin)
            with self._access.counting_errors(position.path):
                if not self._is_quiet(origin, position, now):
                    self._register.table.end_lingering(origin)

    def _adopt(self, path: str, now: float) -> None:
        """A path leads to a file that no log has."""
        for earlier in self._register.table.logs_of(path):  # one of them may go on in this file
            self._recheck(earlier, now)
        originals = list(folders.originals(path))
        for original in originals:
            self._recheck_path(original, now)
        if path in self._register.by_path:
            return  # it is what the log beside it goes on in
        file = self._access.open(path)
        if file is None:
            return
        last = self._register.table.last_of(path)
        candidates = [log for original in originals for log in self._possible_originals(original)]
        if self._settle(path, file, candidates, now):
            log = self._register.by_path.get(path)
            self._follower.rechecks.add(path, log, last.modified if last is not None else None)

    def _settle(self, base: str, file: OpenFile, candidates: Sequence[Log], now: float) -> bool:
        """Make the move for an open file, which may be a copy of one of `candidates`. Whether a new log begins with it."""
        with closed_on_error(file):
            move = self.planner.plan(base, file, self._follower.owner_of(file, now), self.copies.waiting)
            if not isinstance(move, BeginUnlessCopied):
                self._follower.apply(move, base, file, now)
                return False
            if move.again:
                self._access.refusals.count(file.path, "perhaps_read_twice")
            begin = self.copies.begin_unless_copied(base, file, candidates, now)
            if begin is not None:
                self._follower.apply(begin, base, file, now)
            return begin is not None

    def _is_quiet(self, origin: str, position: LogPosition, now: float) -> bool:
        """Whether the file of a log that is done with is there, and nothing was added to it. What was added is read."""
        path = self._resolver.current_path(position)
        if path is None or self._register.table.log_at(position.file) is not None:
            return False
        if self._access.read_or_default(path, lambda: filesystem.stat(path).st_size, 0) <= position.offset:
            return True
        file = self._access.open_if(path, lambda file: self._access.is_file_of(file, position))
        if file is not None:
            with closed_on_error(file):
                self._follower.apply(Revive(origin), path, file, now)
        return False

    def _assign_early(self, path: str, status: os.stat_result, now: float) -> None:
        """A path of the globs with a file that no log has is found now: it may be compressed before a walk comes."""
        if path not in self._register.by_path and self._register.table.log_at(inode_of(status)) is None:
            self.assign(path, now)

    def _is_rotated(self, sibling: str, path: str) -> bool:
        return folders.is_numbered(sibling, path) and not self._globs.excludes(sibling.removesuffix(".gz"))

    def _take_sibling(self, base: str, path: str, now: float) -> None:
        file = self._access.try_open(path)
        if file is not None:
            self._settle(base, file, self._possible_originals(base), now)

    def _possible_originals(self, path: str) -> list[Log]:
        """The log that a path leads to, and those that have left it and may be on their way into a copy."""
        named = self._register.by_path.get(path)
        leaving = [log for log in self._register.table.logs_of(path) if log.is_leaving and log is not named]
        return [named, *leaving] if named is not None else leaving

    def _recheck_path(self, path: str, now: float, *others: Log | None) -> None:
        """Check which log a path leads to now, and all that it led to, before a file beside it is assigned."""
        logs = [*others, *self._register.table.logs_of(path), self._register.by_path.get(path)]
        for log in dict.fromkeys(log for log in logs if log is not None):
            self._recheck(log, now)
        if path in self._register.by_path or (filesystem.is_there(path) and self._globs.match(path)):
            self.assign(path, now)

    def _recheck(self, log: Log, now: float) -> None:
        """See whether a log still is where it was."""
        if not self._register.table.knows(log):
            return
        self._follower.visit(log, now)
        if log.activity.changed and log.next_step not in (NextStep.ARCHIVES, NextStep.NOTHING):
            self._follower.read(log, 0, now)


def _has_grown(paused: LogPosition, status: os.stat_result) -> bool:
    """Whether the file of a log that lost its place is not what it was then."""
    return paused.modified != status.st_mtime_ns or status.st_size < paused.offset
