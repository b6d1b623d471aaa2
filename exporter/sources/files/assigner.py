"""Whose file a path leads to: a known log's, that of a log that was done with, a copy's that is being made, or a new
log's.

A new log is read from its first byte, but for what is there at the very first start. Files that rotation has moved on
before they were seen are found here too.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace

from exporter.sources.files import filesystem, folders
from exporter.sources.files.access import Access
from exporter.sources.files.admission import Quota
from exporter.sources.files.contents import (
    HEAD_BYTES,
    Fingerprint,
    Inode,
    format_of,
    inode_of,
    line_at,
    looks_binary,
    start_of_last_line,
)
from exporter.sources.files.copies import Archives, Copies, Suspect
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import KINDS, OpenFile, Refused, closed_on_error
from exporter.sources.files.folders import COMPRESSED
from exporter.sources.files.follow import Follower, Recheck
from exporter.sources.files.log import Log
from exporter.sources.files.register import Register
from exporter.sources.files.resolver import Resolver
from exporter.sources.files.states import LogPosition, NextStep, Unreached

MAX_BINARIES = 10_000  # beyond that, some are opened again in every walk


class Assigner:
    """Gives each path of the globs its log."""

    def __init__(
        self,
        register: Register,
        globs: Globs,
        follower: Follower,
        resolver: Resolver,
        access: Access,
        *,
        begin_of: Callable[[str], int | None],
        line_bytes: int,
    ) -> None:
        self.others: list[Assigner] = []  # those of other sources, whose logs may move to this one's folders
        self._register = register
        self._globs = globs
        self._follower = follower
        self._resolver = resolver
        self._access = access
        self._begin_of = begin_of  # where another node was that read a log before us
        self._line_bytes = line_bytes
        self._archives = Archives(register, globs, follower, access)
        self._copies = Copies(register, follower, resolver, access)
        self._quota = Quota(register)
        self._binaries: dict[str, tuple[Inode, int]] = {}

    def begin(self) -> None:
        """A poll begins."""
        self._quota.begin()

    def assign(self, path: str, now: float) -> None:
        """A path of the globs is there, as far as the folder tells."""
        status = self._status(path)
        if status is None:
            if path not in self._register.by_path and not filesystem.is_there(path):
                # it was there, and has been moved on
                self._read_missed_rotations(path, self._modified(path), now, None)
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
                register.unname(path)  # was a second name of the owner's file
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
            self._read_missed_rotations(path, self._modified(path), now, log)

    def recheck(self, path: str, recheck: Recheck, now: float) -> None:
        """Read the files that were at a queued path unseen, and assign the one that is there now."""
        log, modified, since = recheck
        self._read_missed_rotations(path, modified, now, log, since if modified is None else math.inf)

    def settle_copies(self, now: float) -> None:
        """See what has become of the files that may be copies."""

        def start(suspect: Suspect, offset: int) -> None:
            file, log = suspect.file, suspect.log
            if self._register.table.knows(log) and self._resolver.log_in(file, [log]) is not None:
                self._follower.take_file(log, file, now)
            else:
                self._start(suspect.base, file, offset, now)

        self._copies.settle(start, now)

    def resume(self, now: float) -> None:
        """Logs that rotation has moved out of the globs, and that were quiet for so long that they were done with, may be
        written to all the same: by a job that opened its log once.
        """
        for origin in self._register.table.lingering():
            position = self._register.table.at(origin)
            with self._access.counting_errors(position.path):
                if not self._is_quiet(origin, position, now):
                    self._register.table.end_lingering(origin)

    def refuse_binary(self, log: Log) -> None:
        """Give up a log whose first bytes are binary."""
        self.give_up(log)
        self._refuse_binary(log.position.path, log.position.file, log.stat.size)

    def close(self) -> None:
        """Let go of the files that wait."""
        self._copies.close()

    def _refuse_binary(self, path: str, file: Inode, size: int) -> None:
        self._access.refusals.note(path, "binary")
        self._binaries[path] = (file, size)
        if len(self._binaries) > MAX_BINARIES:
            del self._binaries[next(iter(self._binaries))]

    def _status(self, path: str) -> os.stat_result | None:
        """A path's status, if it leads to a file that may be read."""
        try:
            path.encode()
            status = self._access.roots.status_of(path)
        except UnicodeEncodeError:
            self._access.refusals.note(path, "name_not_utf8")
            return None
        except Refused as refused:
            self._access.refusals.note(path, str(refused))
            return None
        except FileNotFoundError:
            return None  # gone again, or a link to nowhere
        except OSError as error:
            self._access.failed(path, error)
            return None
        if not stat.S_ISREG(status.st_mode):
            self._access.refusals.note(path, KINDS.get(stat.S_IFMT(status.st_mode), "special"))
            return None
        binary = self._binaries.get(path)
        if binary is not None:
            if binary[0] == inode_of(status) and binary[1] <= status.st_size:
                return None
            del self._binaries[path]
        return status

    def _adopt(self, path: str, now: float) -> None:
        """A path leads to a file that no log has."""
        for earlier in self._register.table.logs_of(path):  # one of them may go on in this file
            self._recheck(earlier, now)
        originals = list(folders.originals(path))
        for original in originals:
            self._recheck_path(original, now)
        candidates = [log for original in originals for log in self._possible_originals(original)]
        if path in self._register.by_path:
            return  # it is what the log beside it goes on in
        file = self._access.open(path)
        if file is None:
            return
        modified = self._modified(path)
        with closed_on_error(file):
            if self._is_assigned(path, file, now):
                return
            if (begin := self._begin_of(path)) is not None:
                self._start(path, file, begin if begin <= file.status().st_size else 0, now)
                return
            if self._register.is_initial_scan:  # it was there before us
                self._start(path, file, None, now)
                return
            if self._resolver.is_copy_with_its_time(file):
                self._start(path, file, file.status().st_size, now)
                return
            if any(self._resolver.may_replace(log, file) for log in self._register.table.logs_of(path)):
                self._access.refusals.count(path, "perhaps_read_twice")
            if not self._start_unless_copied(path, file, candidates, now):
                return
        log = self._register.by_path.get(path)
        if log is not None and modified is None:
            self._follower.rechecks.add(path, log, None)  # with others that are new, for one look at their folder
        else:
            self._read_missed_rotations(path, modified, now, log)

    def _start_unless_copied(self, base: str, file: OpenFile, candidates: Sequence[Log], now: float) -> bool:
        """Read a new file from its beginning, if it has not to wait, since it may be a copy of one of `candidates`."""
        suspected = self._copies.suspect(base, file.path, file, candidates, now)
        if not suspected:
            self._start(base, file, self._resolver.short_copies.read_of(file), now)
        return not suspected

    def _start(self, base: str, file: OpenFile, offset: int | None, now: float) -> None:
        """The next log of `base`, in an open file, from `offset` on; None: from its last, incomplete line on."""
        status = file.status()
        if self._register.table.log_at(inode_of(status)) is not None:
            file.close()  # since it was looked at, a log has found its bytes there
            return
        head = file.read(HEAD_BYTES, 0)
        if offset is None:
            offset = start_of_last_line(file.read, status.st_size, self._line_bytes)
        position = LogPosition(
            path=file.path,
            device=status.st_dev,
            inode=status.st_ino,
            generation=file.generation(),
            modified=status.st_mtime_ns,
            offset=offset,
            line=line_at(file.read, offset),
            mark=Fingerprint.taken(file.read, offset or len(head)),  # of what it began with when it was found
            format=format_of(base, head) if offset else None,
        )
        if looks_binary(head):
            file.close()
            self._refuse_binary(file.path, inode_of(status), status.st_size)
            return
        log = self._register.new(base, position, now)
        if offset and offset == status.st_size:
            log.resume(confirmed=True)  # skipped to its end: nothing to read yet
        log.set_text_known(bool(head.strip(b"\0")))
        self._take(log, file, now)

    def _take(self, log: Log, file: OpenFile, now: float) -> None:
        self._follower.take_file(log, file, now)
        if file.path not in log.names:
            log.observe(Unreached(now))
        self._access.refusals.forget(file.path)

    def _is_assigned(self, base: str, file: OpenFile, now: float) -> bool:
        """Whether a file is a log's, one goes on in it, or it waits already. It is closed then, or the log's."""
        register, path = self._register, file.path
        owner = self._follower.owner_of(file, now)
        if owner is not None and not owner.missing:
            file.close()
            return True
        for name in {base, *folders.originals(path)} - {path}:
            owner = owner or self._resolver.log_in(file, register.table.logs_of(name))
        if owner is not None:  # its folder may have another name, too
            self._follower.take_file(owner, file, now)
            return True
        if (origin := self._resolver.done_in(file, base)) is not None:
            self._take(register.revive(origin, now), file, now)
            return True
        if self._is_anothers(base, file, now):
            return True
        if waits := self._copies.wait_for(inode_of(file.status())):
            file.close()
        return waits

    def _is_anothers(self, base: str, file: OpenFile, now: float) -> bool:
        """Whether another source has a file's log. If it was moved out of that one's folders, it goes on in this one."""
        for other in self.others:
            log = other.log_of(file)
            if log is None:
                continue
            if self._globs.match(file.path) and not other.leads_to(log):
                position = replace(log.position, called=())
                other.give_up(log)
                late = self._register.new(base, position, now)
                late.set_text_known(position.offset > 0)
                self._take(late, file, now)
            else:
                file.close()
            return True
        return False

    def log_of(self, file: OpenFile) -> Log | None:
        """The log of this source that a file is, if any."""
        log = self._register.table.log_at(inode_of(file.status()))
        return log if log is not None and self._resolver.has(log, file) else None

    def leads_to(self, log: Log) -> bool:
        """Whether a path of this source's globs leads to a log still."""
        paths = {log.position.path, *log.position.called, *log.names}
        return any(self._globs.match(path) and self._access.file_at(path) == log.position.file for path in paths)

    def give_up(self, log: Log) -> None:
        """A log goes on in another source."""
        log.close()
        self._register.drop(log)

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
                self._take(self._register.revive(origin, now), file, now)
        return False

    def _modified(self, path: str) -> int | None:
        last = self._register.table.last_of(path)
        return last.modified if last is not None else None

    def _read_missed_rotations(
        self, path: str, modified: int | None, now: float, log: Log | None, listed: float = math.inf
    ) -> None:
        """Files that were at `path` since its last log was `modified`, and have been moved on before they were seen,
        oldest first.

        Where it had no log, other programs' files may have names that begin alike, and only a number or a date tells of
        rotation. `log` is, or has been, called `path`. What its folder held at some time since `listed` tells all.
        """
        folders = self._resolver.folders
        since = self._register.time_after(self._register.since if modified is None else modified)
        try:
            self._recheck_path(path, now, log)
            folder, name = os.path.split(path)
            siblings = folders.at(folder, listed).siblings(name)
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

    def _assign_early(self, path: str, status: os.stat_result, now: float) -> None:
        """A path of the globs with a file that no log has is found now: it may be compressed before a walk comes."""
        if path not in self._register.by_path and self._register.table.log_at(inode_of(status)) is None:
            self.assign(path, now)

    def _is_rotated(self, sibling: str, path: str) -> bool:
        return folders.is_numbered(sibling, path) and not self._globs.excludes(sibling.removesuffix(".gz"))

    def _take_sibling(self, base: str, path: str, now: float) -> None:
        file = self._access.try_open(path)
        if file is not None:
            with closed_on_error(file):
                if not self._is_assigned(base, file, now):
                    self._start_unless_copied(base, file, self._possible_originals(base), now)

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
