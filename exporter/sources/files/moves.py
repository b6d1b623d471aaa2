"""What becomes of a file that was found: one move, chosen from the table of logs and from what the file holds.

Changes nothing: `follow` makes the move. Raises OSError where a disk or a server gives no answer; then there is no move, and
the same may be asked again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from exporter.sources.files import contents
from exporter.sources.files.access import Access
from exporter.sources.files.contents import HEAD_BYTES, NOWHERE, GzipReader, Inode, inode_of
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import TICK_NS, OpenFile
from exporter.sources.files.folders import originals
from exporter.sources.files.log import Log
from exporter.sources.files.register import Register
from exporter.sources.files.resolver import Resolver


@dataclass(frozen=True, slots=True)
class Leave:
    """A log of this source or of another one has it, or it waits already."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """It holds the bytes of a log that is looked for, or whose file was deleted when this copy took its place."""

    log: Log


@dataclass(frozen=True, slots=True)
class Revive:
    """A log that was done with goes on in it."""

    origin: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """It was moved here out of the folders of another source, which has this register."""

    register: Register
    log: Log


@dataclass(frozen=True, slots=True)
class Begin:
    """A new log is read from an offset on; None: from its last, incomplete line on."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class BeginUnlessCopied:
    """A new log is read from its first byte, unless it is a copy of a log beside it.

    again: it begins with all that was read of a log whose file was deleted, and that is too little to be sure.
    """

    again: bool = False


Move = Leave | GoOn | Revive | TakeOver | Begin


@dataclass(eq=False)
class Planner:
    """Chooses the moves of one source."""

    _register: Register
    _globs: Globs
    _access: Access
    _resolver: Resolver
    _begin_of: Callable[[str], int | None]  # where another node was that read a log before us
    others: list[Planner] = field(default_factory=list)  # of other sources, whose logs may move to this one's folders

    def plan(self, base: str, file: OpenFile, owner: Log | None, waiting: Container[Inode]) -> Move | BeginUnlessCopied:
        """The move for a file that was found as one of `base`. `owner` is the log whose file it is, if any."""
        if owner is not None:
            return GoOn(owner) if owner.missing else Leave()
        names = dict.fromkeys([base, *originals(file.path)])
        logs = (log for name in names if name != file.path for log in self._register.table.logs_of(name))
        if (log := self.log_in(file, logs)) is not None:
            return GoOn(log)
        if (origin := self._done_in(file, base)) is not None:
            return Revive(origin)
        for other in self.others:
            if (log := other.log_of(file)) is not None:
                is_ours = self._globs.match(file.path) and not other.leads_to(log)
                return TakeOver(other._register, log) if is_ours else Leave()
        if inode_of(file.status()) in waiting:
            return Leave()
        return self._begin_at_its_path(file) if file.path == base else BeginUnlessCopied()

    def kin_of(self, archive: GzipReader, base: str, log: Log | None) -> list[Log]:
        """The logs that an archive may repeat. It was found as one of `base`; `log` is, or has been, called so."""
        table = self._register.table
        kin = table.kin_of(base) if self._globs.match(archive.path.removesuffix(".gz")) else ()
        return list(dict.fromkeys([*table.logs_of(base), *kin, *([log] if log is not None else [])]))

    def plan_archive(self, archive: GzipReader, base: str, kin: Iterable[Log]) -> Leave | GoOn | Revive | Begin:
        """The move for a gzip file that was found as one of `base`; it may repeat a log of `kin`."""
        for log in kin:
            if isinstance(log.reader, OpenFile):
                repeats = contents.is_packed_copy(archive, log.reader)
            elif isinstance(log.reader, GzipReader):
                repeats = inode_of(log.reader.status) == inode_of(archive.status)
            elif not log.over and contents.may_hold(archive, log.position.mark):
                return GoOn(log)
            else:
                repeats = False
            if repeats:
                return Leave()
        table = self._register.table
        marks = [table.at(origin).mark for origin in table.done_of(base)]
        folder = os.path.dirname(base)  # in which it may have been read under another name, and moved on since
        marks += [at.mark for at in table.with_length(archive.trailer()[1]) if os.path.dirname(at.path) == folder]
        if any(contents.is_packed_whole(archive, mark) for mark in marks):
            return Leave()
        # Of one that was finished too early, more is here. Rotation may have compressed it under another name.
        for origin in (done for name in (base, *originals(base)) for done in table.done_of(name)):
            mark = table.at(origin).mark
            if mark.length <= contents.COMPARED_BYTES and contents.may_hold(archive, mark):
                return Revive(origin)
        return Begin(0)

    def log_in(self, file: OpenFile, logs: Iterable[Log]) -> Log | None:
        """Which of some logs a file that nobody has holds the bytes of: one that is looked for, or one whose file was
        deleted when a copy took its place.
        """
        for log in logs:
            mark = log.position.mark
            replaced = (
                log.reader is not None and log.left is not None and log.stat.unlinked and mark.length >= HEAD_BYTES
            )
            has_bytes = mark.length > 0 and (log.missing or replaced) and self._access.holds(file, mark)
            if has_bytes and (log.missing or self._resolver.is_all_in(log, file)):
                return log
        return None

    def log_of(self, file: OpenFile) -> Log | None:
        log = self._register.table.log_at(inode_of(file.status()))
        return log if log is not None and self._access.has(log, file) else None

    def leads_to(self, log: Log) -> bool:
        """Whether a path of this source's globs leads to a log still."""
        paths = {log.position.path, *log.position.called, *log.names}
        return any(self._globs.match(path) and self._access.file_at(path) == log.position.file for path in paths)

    def _begin_at_its_path(self, file: OpenFile) -> Begin | BeginUnlessCopied:
        size = file.status().st_size
        if (begin := self._begin_of(file.path)) is not None:
            return Begin(begin if begin <= size else 0)
        if self._register.is_initial_scan:  # it was there before us
            return Begin(None)
        if self._is_copy_with_its_time(file):
            return Begin(size)
        return BeginUnlessCopied(any(self._may_replace(log, file) for log in self._register.table.logs_of(file.path)))

    def _done_in(self, file: OpenFile, base: str) -> str | None:
        """The origin of the log that a file is of those that were done with; it was found as a log of `base`."""
        for origin in self._register.table.done_with(base, inode_of(file.status())):
            position = self._register.table.at(origin)
            copied = position.file == NOWHERE and file.path != base and self._access.holds(file, position.mark)
            has_identity = position.mark.length > 0 or position.generation is not None
            if has_identity and (copied or self._access.is_file_of(file, position)):
                return origin
        return None

    def _may_replace(self, log: Log, file: OpenFile) -> bool:
        too_little = 0 < log.position.mark.length < HEAD_BYTES and log.left is not None and log.stat.unlinked
        return too_little and self._access.holds(file, log.position.mark)

    def _is_copy_with_its_time(self, file: OpenFile) -> bool:
        """Whether somebody has given a file the time of a log, and it holds all that was read of that and no more: what `mv`
        makes on another disk, rsync, `cp -p` and a restore anywhere. Two logs that say the same have times of their own.
        """
        status = file.status()
        if status.st_ctime_ns - status.st_mtime_ns <= TICK_NS:
            return False
        positions = self._register.table.written_at(status.st_mtime_ns)
        return any(0 < at.offset == status.st_size and self._access.holds(file, at.mark) for at in positions)
