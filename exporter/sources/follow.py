"""Which file a log goes on in: renamed, copied and truncated, compressed, unlinked, linked elsewhere, mounted again.

One rule for all of it: a log is the bytes that were read. It moves to the file that holds them; what stands at its
path then is the next log of that path. Opens and compares files; decides nothing about lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from exporter.sources import rotation
from exporter.sources.access import GONE, Access, OtherBytes, is_file_of
from exporter.sources.base import SourceStats
from exporter.sources.discovery import Globs
from exporter.sources.identity import HEAD_BYTES, NOWHERE, Inode, generation, inode_of
from exporter.sources.opening import OpenFile, reason_of
from exporter.sources.register import Register
from exporter.sources.rotation import Folder, Siblings
from exporter.sources.tail import Log, Position
from exporter.sources.unpacked import Search

SEARCH_STEPS = 2  # a poll: unpacking takes 30 to 60 ms each
MISSING_SECONDS = 30.0  # an NFS client may show an old folder for as long (acdirmin of nfs(5))

T = TypeVar("T")


class Follower:
    """Keeps each log of a register with its bytes."""

    def __init__(self, register: Register, globs: Globs, access: Access, stats: Callable[[], SourceStats]) -> None:
        self.vacated: dict[str, tuple[Log, Position]] = {}  # by path, see `vacate`
        self.short_copies: dict[Inode, int] = {}  # files that hold only what was read before, and how much of it
        self._register = register
        self._globs = globs
        self._access = access
        self._stats = stats
        self._folders: dict[str, Folder] = {}
        self._steps = SEARCH_STEPS

    def begin(self) -> None:
        """A poll begins."""
        self._folders.clear()
        self._steps = SEARCH_STEPS

    # -- looking

    def visit(self, log: Log, now: float) -> None:
        """See where a log's file is, and how long it is now."""
        if log.over:
            return
        if log.left is not None:
            self._visit_left(log, now)
            return
        path = log.position.path
        try:
            status = os.stat(path)
        except GONE:
            self._displaced(log, None, now)
        except OSError as error:
            self._access.refusals.note(path, reason_of(error))
            self._access.see(log, now)
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
        return self._try(log, now, lambda: self._access.read(log, count, now))

    def claim(self, log: Log, path: str, now: float) -> bool:
        """A path leads to the inode of a known log. False if only the number is the same."""
        if not isinstance(log.reader, OpenFile):
            file = self._same_file(log, path)
            if file is None:
                inode = log.position.file
                self._register.name(log, path)  # its bytes may be in a copy beside this name, too
                self._part(log, now)
                self._register.give_back(inode)
                return False
            self._access.open_logs.hold(log, file, now)
        old = log.position.path
        if old != path and file_at(old) != log.position.file:
            if self._register.by_path.get(old) is log:
                self._register.unname(old)
            self.vacate(old, log, log.position)
            self._settle_at(log, path)
            self._stats().rotations += log.left is None  # else it has been counted
        self._register.name(log, path)
        return True

    def owner_of(self, file: OpenFile, now: float) -> Log | None:
        """The log whose file this is. A log that only has its inode's number, from before, loses that."""
        inode = inode_of(file.status())
        while (log := self._register.by_file.get(inode)) is not None:
            if isinstance(log.reader, OpenFile) or is_file_of(file, log.position):
                break
            self._part(log, now)
            self._register.give_back(inode)
        return log

    def vacate(self, path: str, log: Log, last: Position) -> None:
        """A path led to a log, when that was at `last`; other files may have had the path since, or have it now."""
        self.vacated.setdefault(path if self._globs.match(path) else log.base, (log, last))

    def take_vacated(self) -> Iterator[tuple[str, tuple[Log, Position]]]:
        """What was vacated. What is vacated meanwhile comes with it, but no path twice: a folder may never rest."""
        again: dict[str, tuple[Log, Position]] = {}
        taken = set()
        while self.vacated:
            path, what = self.vacated.popitem()
            if path in taken:
                again[path] = what
            else:
                taken.add(path)
                yield path, what
        self.vacated = again

    # -- leaving a path

    def _displaced(self, log: Log, status: os.stat_result | None, now: float) -> None:
        """The path of a log leads to another file (`status`) or to none."""
        register, position = self._register, log.position
        if register.by_path.get(position.path) is log:
            register.unname(position.path)
        for other in sorted({*log.names, *position.called}):
            if file_at(other) == position.file:
                self.vacate(position.path, log, position)
                self._settle_at(log, other)
                self.visit(log, now)
                return
            if other in log.names:
                register.unname(other)
            self.vacate(other, log, position)
        if status is not None and self._goes_on_at_its_path(log, now):
            return
        self._leave(log, now)
        self._visit_left(log, now)
        if status is not None or _linked(log):
            self._stats().rotations += 1
            self.vacate(position.path, log, position)

    def _try(self, log: Log, now: float, look: Callable[[], T]) -> T | None:
        """Look into a log's file, and part the log from it if it holds other bytes than were read."""
        try:
            return look()
        except OtherBytes as other:
            if other.reused:
                self._stats().rotations += 1
            else:
                self._stats().truncations += 1
            self._part(log, now)
            return None

    def _part(self, log: Log, now: float) -> None:
        """A log has lost its file, which stays where it is, for the next one to take."""
        for path in {*log.names, *log.position.called, log.base}:
            self.vacate(path, log, log.position)
            if path in log.names:
                self._register.unname(path)
        self._register.place(log, log.lose_file)
        self._leave(log, now)
        self._find(log, now)

    def _leave(self, log: Log, now: float) -> None:
        log.left = now
        self._register.save(log)

    def _visit_left(self, log: Log, now: float) -> None:
        if log.search is not None:
            self._search(log, now)
        elif log.reader is not None:
            self._access.see(log, now)
        elif now >= log.rest_until:
            self._find(log, now)

    # -- finding the bytes again

    def recover(self, path: str, file: OpenFile, logs: Iterable[Log], now: float) -> bool:
        """Whether a file that nobody has holds the bytes of one of some logs, which are looked for."""
        for log in logs:
            if log.missing and log.position.mark.length and file.begins_with(log.position.mark):
                self.take_file(log, path, file, now)
                return True
        return False

    def _find(self, log: Log, now: float) -> None:
        """A log's bytes may be under another name, in a copy, or compressed. If they stay nowhere, the log is over."""
        assert log.left is not None
        position, missed = log.position, now - log.left
        found = self._find_by_inode(log, now)
        siblings = [] if found else rotation.newest_first(self._siblings_of(log))
        if found or self._find_by_content(log, siblings, now):
            if missed:
                self.vacate(log.base, log, position)  # what came to its path meanwhile was not to be seen either
        elif missed >= MISSING_SECONDS or (position.file == NOWHERE and not position.mark.length):
            self._lose(log)
        else:
            log.rest_until = now + missed
            search = Search(position.mark, rotation.packed(siblings, position.modified, self._access))
            log.search = None if search.over else search

    def _find_by_inode(self, log: Log, now: float) -> bool:
        paths = self.folder_of(log).with_inode(log.position.inode)
        for path in sorted(paths, key=self._globs.match, reverse=True):
            file = self._same_file(log, path)
            if file is not None:
                self.take_file(log, path, file, now)
                return True
        return False

    def _find_by_content(self, log: Log, siblings: Siblings, now: float) -> bool:
        mark = log.position.mark
        if mark.length == 0:
            return False
        for path, file in rotation.copies_of(mark, siblings, self._access):
            if self.owner_of(file, now) is None:
                self.take_file(log, path, file, now)
                return True
            file.close()
        short = rotation.short_copy_of(mark, siblings, self._access)
        if short is not None:
            self.short_copies[short[0]] = short[1]
        return False

    def _search(self, log: Log, now: float) -> None:
        assert log.search is not None
        if self._steps == 0:
            return
        self._steps -= 1
        found = log.search.step()
        if found is not None:
            log.search, log.reader, log.changed, log.grew = None, found, True, now
        elif log.search.over:
            log.search = None

    def _lose(self, log: Log) -> None:
        if log.unseen:
            reason = "truncated_unread" if log.position.file == NOWHERE else "gone_unread"
            self._access.refusals.count(log.position.path, reason)
        self._register.release(log)
        log.over = True

    def _goes_on_at_its_path(self, log: Log, now: float) -> bool:
        """Whether the path leads to the log's file still, under another device number, or to a copy that took its place:
        as rsync and editors make it, a restore, or a move to another disk.
        """
        path, mark = log.position.path, log.position.mark
        file = self._access.try_open(path) if mark.length else None
        if file is None:
            return False
        if file.status().st_ino == log.position.inode and is_file_of(file, log.position):
            self.take_file(log, path, file, now)
            return True
        if mark.length >= HEAD_BYTES and file.begins_with(mark) and self._is_all_in(log, file):
            self.take_file(log, path, file, now)
            self._stats().rotations += 1
            return True
        file.close()
        return False

    def _is_all_in(self, log: Log, copy: OpenFile) -> bool:
        """Whether a log's file is gone, and whatever it held, as far as we can still see, is in a copy of it."""
        if any(file_at(path) == log.position.file for path in self.folder_of(log).with_inode(log.position.inode)):
            return False
        if not isinstance(log.reader, OpenFile):
            return True
        try:
            status = log.reader.status()
        except OSError:
            return True
        return status.st_nlink == 0 and rotation.same_beginning(copy, log.reader, status.st_size)

    def take_file(self, log: Log, path: str, file: OpenFile, now: float) -> None:
        """A log's bytes are in `file` now, which is open."""
        status = file.status()
        place = file.location()
        log.rest_until = 0.0
        self._access.open_logs.hold(log, file, now)
        self._register.place(log, lambda: log.move_to(inode_of(status), generation(file.descriptor), path, place))
        log.see(status, now)
        if self._globs.match(path):
            self._register.name(log, path)

    def _settle_at(self, log: Log, path: str) -> None:
        """A log's file is called differently now."""
        position = log.position
        place = log.reader.location() if isinstance(log.reader, OpenFile) else os.path.realpath(path)
        self._register.place(log, lambda: log.move_to(position.file, position.generation, path, place))

    def _name(self, log: Log, path: str, now: float) -> None:
        """A path leads to a log. If no glob has it (the configuration changed), the log is read to its end and left."""
        if self._globs.match(path):
            self._register.name(log, path)
        else:
            self._leave(log, now)

    # -- files

    def folder_of(self, log: Log) -> Folder:
        return self.folder(os.path.dirname(log.position.place or log.position.path))

    def folder(self, path: str) -> Folder:
        """What stands in a folder now; read again only if it changed, since logrotate moves a thousand logs at once."""
        known = self._folders.get(path)
        if known is None or not known.is_current():
            known = self._folders[path] = Folder(path)
        return known

    def _siblings_of(self, log: Log) -> list[str]:
        known = (log.base, log.position.path, log.position.place, *log.position.called)
        names = {os.path.basename(path) for path in known if path}
        folder = self.folder_of(log)
        return list(dict.fromkeys(path for name in sorted(names) for path in folder.siblings(name)))

    def _same_file(self, log: Log, path: str) -> OpenFile | None:
        """A path's file, open, if it is a log's file, by its inode and by what was read of it."""
        file = self._access.try_open(path)
        if file is None:
            return None
        if file.status().st_ino == log.position.inode and is_file_of(file, log.position):
            return file
        file.close()
        return None


def file_at(path: str) -> Inode | None:
    """Which file a path leads to."""
    try:
        return inode_of(os.stat(path))
    except OSError:
        return None


def _linked(log: Log) -> bool:
    """Whether a log's file, as far as it is open, has a name in some folder still."""
    try:
        return isinstance(log.reader, OpenFile) and log.reader.status().st_nlink > 0
    except OSError:
        return False
