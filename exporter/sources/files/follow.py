"""Makes the moves that were planned, and moves each log to the file that its bytes are in: renamed, copied and truncated,
compressed, unlinked, linked elsewhere, mounted again. Nothing else gives a log a file or a name.

One rule for all of it: a log is the bytes that were read. It moves to the file that holds them, which `resolver` finds;
what stands at its path then is the next log of that path. Decides nothing about lines.

Raises OSError where a disk or a server gives no answer. Then nothing was concluded, and the same may be asked again.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from exporter.sources.base import SourceStats
from exporter.sources.files import contents, filesystem
from exporter.sources.files.access import GONE, Access, OtherBytes
from exporter.sources.files.contents import HEAD_BYTES, NOWHERE, Fingerprint, GzipReader, inode_of
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.log import Log
from exporter.sources.files.moves import Begin, GoOn, Leave, Move, Revive, TakeOver
from exporter.sources.files.register import RecheckQueue, Register
from exporter.sources.files.resolver import Resolver
from exporter.sources.files.states import (
    Gone,
    LogPosition,
    MaybePacked,
    NextStep,
    Nowhere,
    Searched,
    Searching,
    Unreached,
)

SEARCH_STEPS = 2  # a poll: unpacking takes 30 to 60 ms each

T = TypeVar("T")


class Follower:
    """Keeps each log of a register with its bytes."""

    def __init__(
        self,
        register: Register,
        globs: Globs,
        access: Access,
        resolver: Resolver,
        stats: Callable[[], SourceStats],
        line_bytes: int,
    ) -> None:
        self.rechecks = RecheckQueue(register, globs)
        self._register = register
        self._globs = globs
        self._access = access
        self._resolver = resolver
        self._stats = stats
        self._line_bytes = line_bytes
        self._steps = SEARCH_STEPS

    def begin(self) -> None:
        self._resolver.folders.begin()
        self._steps = SEARCH_STEPS

    # -- moves

    def apply(self, move: Move, base: str, file: OpenFile, now: float) -> None:
        """Make the move that was planned for an open file, found as one of `base`: a log has it then, or it is closed."""
        match move:
            case Leave():
                file.close()
            case GoOn(log):
                self.take_file(log, file, now)
            case Revive(origin):
                self._take_new(self._register.revive(origin, now), file, now)
            case TakeOver(register, log):
                register.drop(log)
                late = self._register.new(base, replace(log.position, called=()), now)
                late.set_text_known(log.position.offset > 0)
                self._take_new(late, file, now)
            case Begin(offset):
                self._begin(base, file, offset, now)

    def _begin(self, base: str, file: OpenFile, offset: int | None, now: float) -> None:
        """The next log of `base`, in an open file, from `offset` on; None: from its last, incomplete line on."""
        status = file.status()
        if self._register.table.log_at(inode_of(status)) is not None:
            file.close()  # since it was looked at, a log has found its bytes there
            return
        head = file.read(HEAD_BYTES, 0)
        if offset is None:
            offset = contents.start_of_last_line(file.read, status.st_size, self._line_bytes)
        position = LogPosition(
            path=file.path,
            device=status.st_dev,
            inode=status.st_ino,
            generation=file.generation(),
            modified=status.st_mtime_ns,
            offset=offset,
            line=contents.line_at(file.read, offset),
            mark=Fingerprint.taken(file.read, offset or len(head)),  # of what it began with when it was found
            format=contents.format_of(base, head) if offset else None,
        )
        if contents.looks_binary(head):
            file.close()
            self._access.refuse_binary(file.path, inode_of(status), status.st_size)
            return
        log = self._register.new(base, position, now)
        if offset and offset == status.st_size:
            log.resume(confirmed=True)  # skipped to its end: nothing to read yet
        log.set_text_known(bool(head.strip(b"\0")))
        self._take_new(log, file, now)

    def _take_new(self, log: Log, file: OpenFile, now: float) -> None:
        self.take_file(log, file, now)
        if file.path not in log.names:
            log.observe(Unreached(now))
        self._access.refusals.forget(file.path)

    def apply_archive(self, move: Leave | GoOn | Revive | Begin, base: str, archive: GzipReader, now: float) -> None:
        """Make the move that was planned for an archive, found as one of `base`: a log has it then, or it is closed."""
        match move:
            case Leave():
                archive.close()
                return
            case GoOn(log):  # its own search finds it
                archive.close()
                self.rechecks.add(base, log, log.position.modified)
                return
            case Revive(origin):
                log = self._register.revive(origin, now)
                self._register.move(log, log.lose_file)
            case Begin():
                position = LogPosition(path=archive.path, modified=archive.status.st_mtime_ns)
                log = self._register.new(base, position, now)
        log.attach(archive)
        log.observe(Unreached(now))

    def refuse_binary(self, log: Log) -> None:
        """Give up a log whose first bytes are binary."""
        self._register.drop(log)
        self._access.refuse_binary(log.position.path, log.position.file, log.stat.size)

    def unname(self, log: Log, path: str) -> None:
        """A path does not lead to a log, if it ever did."""
        if self._register.by_path.get(path) is log:
            self._register.unname(path)

    # -- looking

    def visit(self, log: Log, now: float) -> None:
        """See where a log's file is, and how long it is now."""
        step = log.next_step
        if step is NextStep.PATH:
            self._visit_path(log, now)
        elif step is NextStep.FILE:
            self._access.see(log, now)
        elif step is NextStep.ARCHIVES:
            self._search(log, now)
        elif step is NextStep.FOLDERS and now >= log.activity.rest_until:
            self._find(log, now)

    def _visit_path(self, log: Log, now: float) -> None:
        path = log.position.path
        try:
            status = filesystem.stat(path)
        except GONE:
            self._displaced(log, None, now)
        except OSError:
            self._access.see(log, now)
            raise
        else:
            if inode_of(status) != log.position.file:
                self._displaced(log, status, now)
            else:
                log.see(status, now)
                if path not in log.names:  # the first visit since a restart
                    self._name(log, path, now)
                    if log.reader is None and self._access.open_logs.has_room:
                        self._try(log, now, lambda: self._access.reopen(log, now))  # deleting it will not end it then

    def read(self, log: Log, count: int, now: float) -> tuple[bytes, int] | None:
        """Bytes of a log, as `Access.read` gives them. None, too, if they have just been found to be elsewhere."""
        return self._try(log, now, lambda: self._access.read(log, count, now, self._resolver.is_copied))

    def claim(self, log: Log, path: str, now: float) -> bool:
        """A path leads to the inode of a known log. False if only the number is the same."""
        if not isinstance(log.reader, OpenFile):
            file = self._resolver.file_at(path, log)
            if file is None:
                self._give_up_number(log, path, now)
                return False
            self._access.open_logs.hold(log, file, now)
        old = log.position.path
        if old != path and self._access.file_at(old) != log.position.file:
            self._settle_at(log, path)
            self.unname(log, old)
            self.rechecks.add_left(old, log)
            self._stats().rotations += log.left is None  # else it has been counted
        self._register.name(log, path)
        return True

    def owner_of(self, file: OpenFile, now: float) -> Log | None:
        """The log whose file this is. A log that only has its inode's number, from before, loses that."""
        inode = inode_of(file.status())
        while (log := self._register.table.log_at(inode)) is not None:
            if self._access.has(log, file):
                break
            self._give_up_number(log, None, now)
        return log

    def _give_up_number(self, log: Log, path: str | None, now: float) -> None:
        """The inode's number of a log is another file's, which may be at a path of the globs."""
        if log.left is not None or not self._goes_on_at_its_path(log, now):
            if path is not None:
                self._register.name(log, path)  # its bytes may be in a copy beside this name, too
            self._part(log, now)

    # -- leaving a path

    def _displaced(self, log: Log, status: os.stat_result | None, now: float) -> None:
        """The path of a log leads to another file (`status`) or to none."""
        path, file = log.position.path, log.position.file
        others = [other for other in sorted({*log.names, *log.position.called}) if other != path]
        elsewhere = next((other for other in others if self._access.file_at(other) == file), None)
        if elsewhere is None and status is not None and self._goes_on_at_its_path(log, now):
            return
        if elsewhere is not None:
            self._settle_at(log, elsewhere)
        for other in [path, *others[: others.index(elsewhere) if elsewhere else None]]:
            self.unname(log, other)
            if other != path:
                self.rechecks.add_left(other, log)
        if elsewhere is not None:
            self.rechecks.add_left(path, log)
            self.visit(log, now)
            return
        self._leave(log, now, closed=log.reader is None)
        try:
            self.visit(log, now)
        finally:
            if status is not None or self._access.is_linked(log):
                self._stats().rotations += 1
                self.rechecks.add_left(path, log)

    def _try(self, log: Log, now: float, read: Callable[[], T]) -> T | None:
        """Look into a log's file, and part the log from it if it holds other bytes than were read."""
        try:
            return read()
        except OtherBytes as other:
            if other.reused and self._goes_on_at_its_path(log, now):
                return None
            if other.reused:
                self._stats().rotations += 1
            else:
                self._stats().truncations += 1
            self._part(log, now)
            return None

    def _part(self, log: Log, now: float) -> None:
        """A log has lost its file, which stays where it is, for the next one to take."""
        self.settle_where_it_is(log)  # a copy of it is beside its last name
        closed = log.reader is None
        paths = {*log.names, *log.position.called, log.position.path, log.base}
        last = log.position.path  # what comes last is looked at first
        for path in sorted(paths, key=lambda path: (path == last, path)):
            self.rechecks.add_left(path, log)
            self.unname(log, path)
        self._register.move(log, log.lose_file)
        self._leave(log, now, closed=closed)
        self._find(log, now)

    def _leave(self, log: Log, now: float, *, closed: bool = False) -> None:
        log.observe(Unreached(now, closed))
        log.pause(0.0)  # of its path; its bytes are looked for at once
        self._register.save(log)

    # -- finding the bytes again

    def _find(self, log: Log, now: float) -> None:
        """A log's bytes may be under another name, in a copy, or compressed. If they stay nowhere, the log is over."""
        assert log.left is not None
        missed = now - log.left
        file = self._resolver.file_of(log, far=not missed)
        if file is not None:
            with closed_on_error(file):
                self.owner_of(file, now)
                self.take_file(log, file, now)
            if missed:  # then files that came to its path meanwhile were missed, too
                self.rechecks.add_left(log.base, log)
            return
        log.observe(Nowhere(now, unknowable=log.position.file == NOWHERE and not log.position.mark.length))
        if isinstance(log.state, Gone):
            self._lose(log, log.state)
        else:
            if archives := self._resolver.archives_of(log, self._register.time_after(log.position.modified)):
                log.observe(MaybePacked(archives))
            log.pause(now + missed)

    def _goes_on_at_its_path(self, log: Log, now: float) -> bool:
        """Whether the path leads to the log's file still, under another device number, or to a copy that took its place."""
        same = self._resolver.file_at(log.position.path, log) if log.position.mark.length else None
        file = same or self._resolver.replacement_of(log)
        if file is None:
            return False
        with closed_on_error(file):
            self.take_file(log, file, now)
        self._stats().rotations += same is None
        return True

    def take_file(self, log: Log, file: OpenFile, now: float) -> None:
        """A log's bytes are in `file` now, which is open."""
        status, generation, location = file.status(), file.generation(), file.location()
        log.locate()
        self._access.open_logs.hold(log, file, now)
        self._register.move(log, lambda: log.move_to(inode_of(status), generation, file.path, location))
        log.see(status, now)
        if self._globs.match(file.path):
            self._register.name(log, file.path)

    def _search(self, log: Log, now: float) -> None:
        assert isinstance(log.state, Searching)
        if self._steps == 0:
            return
        self._steps -= 1
        search = log.state.candidates
        try:
            reader = search.step()
        finally:
            if search.over:
                log.observe(Searched())
        if reader is not None:
            log.attach_archive(reader, now)

    def _lose(self, log: Log, gone: Gone) -> None:
        if log.unseen:
            reason = "truncated_unread" if log.position.file == NOWHERE else "gone_unread"
            self._access.refusals.count(log.position.path, reason)
        elif log.never_seen:
            self._access.refusals.count(log.position.path, "gone_while_down")
        elif gone.closed:
            self._access.refusals.count(log.position.path, "gone_while_closed")
        self._register.release(log)

    def settle_where_it_is(self, log: Log) -> None:
        """A log that has left its path may have been moved on since, anywhere."""
        if log.left is not None and not log.stat.unlinked and isinstance(log.reader, OpenFile):
            self._settle_at(log, log.reader.location())

    def _settle_at(self, log: Log, path: str) -> None:
        """A log's file is called differently now."""
        position = log.position
        location = log.reader.location() if isinstance(log.reader, OpenFile) else filesystem.realpath(path)
        self._register.move(log, lambda: log.move_to(position.file, position.generation, path, location))

    def _name(self, log: Log, path: str, now: float) -> None:
        """A path leads to a log. If no glob has it (the configuration changed), the log is read to its end and left."""
        if self._globs.match(path):
            self._register.name(log, path)
        else:
            self._leave(log, now)
