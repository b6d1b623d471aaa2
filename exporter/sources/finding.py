"""Whose file a path leads to: a known log's, that of a log that was done with, a copy's that is being made, or a new
log's.

A new log is read from its first byte, but for what is there at the very first start. Files that rotation has moved on
before they were seen are found here too.
"""

from __future__ import annotations

import os
import stat

from exporter.sources import rotation
from exporter.sources.access import Access, is_file_of
from exporter.sources.carriers import format_of
from exporter.sources.copies import Copies
from exporter.sources.discovery import Globs
from exporter.sources.follow import Follower, file_at
from exporter.sources.identity import HEAD_BYTES, NOWHERE, Fingerprint, Inode, inode_of
from exporter.sources.opening import KINDS, OpenFile, looks_binary, reason_of
from exporter.sources.register import Register
from exporter.sources.skipping import line_at, start_of_last_line
from exporter.sources.tail import Log, Position
from exporter.sources.unpacked import Unpacked

MAX_PACKED = 1024
MAX_BINARIES = 10_000  # beyond that, some are opened again in every walk
MAX_FILES = 50_000  # 250 MB; a job that writes a million files named *.log must not take the node's memory


class Finder:
    """Gives each path of the globs its log."""

    def __init__(
        self,
        register: Register,
        globs: Globs,
        follower: Follower,
        access: Access,
        *,
        line_bytes: int,
    ) -> None:
        self.skipping = False  # whether files that are found now were there before us
        self._register = register
        self._globs = globs
        self._follower = follower
        self._access = access
        self._line_bytes = line_bytes
        self._packed: dict[tuple[Inode, int], None] = {}  # compressed files that were taken, and their times
        self._copies = Copies(register, follower)
        self._binaries: dict[str, tuple[Inode, int]] = {}

    def found(self, path: str, now: float) -> None:
        """A path of the globs is there, as far as the folder tells."""
        status = self._status(path)
        if status is None:
            return
        register, file = self._register, inode_of(status)
        owner = register.by_path.get(path)
        if owner is not None:
            if owner.position.file == file:
                return
            if owner.position.path != path:
                self._make_sure(owner, now)
                if register.by_path.get(path) is owner:
                    register.unname(path)  # was a second name of the owner's file
            else:
                self._follower.visit(owner, now)
                if register.by_path.get(path) is owner:
                    return
        known = register.by_file.get(file)
        if known is None or not self._follower.claim(known, path, now):
            self._adopt(path, now)
        elif (last := register.last_of(path)) is not known.position:
            self._take_unseen(path, last, now, known)

    def vacated(self, path: str, log: Log, last: Position, now: float) -> None:
        """Since a path led to a log, when that was at `last`, it may have led to others, and may lead to one now."""
        self._make_sure(log, now)
        if self._globs.match(path):
            self.found(path, now)
        self._take_unseen(path, last, now, log)

    def settle_copies(self, now: float) -> None:
        """See what has become of the files that may be copies."""
        for suspect, offset in self._copies.settled(now):
            path = suspect.path
            if file_at(path) != inode_of(suspect.file.status()):
                path = suspect.file.location()
            self._start(suspect.base, path, suspect.file, offset, now)

    def refuse_binary(self, log: Log) -> None:
        """A log's first bytes are no text."""
        log.drop_reader()
        self._register.drop(log)
        self._refuse_binary(log.position.path, log.position.file, log.size)

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
            status = os.stat(path)
        except UnicodeEncodeError:
            self._access.refusals.note(path, "name_not_utf8")
            return None
        except FileNotFoundError:
            return None  # gone again, or a link to nowhere
        except OSError as error:
            self._access.refusals.note(path, reason_of(error))
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
        if len(self._register.logs) >= MAX_FILES:
            self._access.refusals.note(os.path.dirname(path), "too_many_files")
            return
        beside = [log for original in rotation.originals(path) if (log := self._now_at(original, now)) is not None]
        if path in self._register.by_path:
            return  # it is what the log beside it goes on in
        file = self._access.open(path, now)
        if file is None:
            return
        inode = inode_of(file.status())
        if self._follower.owner_of(file, now) is not None or self._copies.wait_for(inode):
            file.close()
        elif self._known(path, path, file, now):
            pass
        elif self.skipping:
            self._start(path, path, file, None, now)
        elif not self._copies.suspect(path, path, file, beside, now):
            last = self._register.last_of(path)
            self._start(path, path, file, self._follower.short_copies.pop(inode, 0), now)
            self._take_unseen(path, last, now)

    def _start(self, base: str, path: str, file: OpenFile, offset: int | None, now: float) -> None:
        """The next log of `base`, in an open file, from `offset` on; None: from its last, incomplete line on."""
        status = file.status()
        if inode_of(status) in self._register.by_file:  # since it was looked at, a log has found its bytes there
            file.close()
            return
        try:
            head = file.read(HEAD_BYTES, 0)
            if offset is None:
                offset = start_of_last_line(file.read, status.st_size, self._line_bytes)
            position = Position(
                path=path,
                modified=status.st_mtime_ns,
                offset=offset,
                line=line_at(file.read, offset),
                mark=Fingerprint.taken(file.read, offset),
                format=format_of(base, head) if offset else None,
            )
        except OSError as error:
            file.close()
            self._access.refusals.note(path, reason_of(error))
            return
        if looks_binary(head):
            file.close()
            self._refuse_binary(path, inode_of(status), status.st_size)
            return
        log = self._register.new(base, position, now)
        if offset and offset == status.st_size:
            log.take_up()  # passed over to its end: there is nothing to read yet
        log.judged = bool(head.strip(b"\0"))
        self._take(log, path, file, now)

    def _take(self, log: Log, path: str, file: OpenFile, now: float) -> None:
        self._follower.take_file(log, path, file, now)
        if path not in log.names:
            log.left = now
        self._access.refusals.forget(path)

    def _known(self, base: str, path: str, file: OpenFile, now: float) -> bool:
        """Whether a log goes on in a file: one whose bytes were looked for, or one that was done with."""
        register, inode = self._register, inode_of(file.status())
        for name in {base, *rotation.originals(path)}:
            if name != path and self._follower.recover(path, file, register.logs_of(name), now):
                return True
        for origin in register.done_with(base, inode):
            position = register.done_position(origin)
            copied = position.file == NOWHERE and path != base and file.begins_with(position.mark)
            told = position.mark.length > 0 or position.generation is not None
            if told and (copied or is_file_of(file, position)):
                self._take(register.revive(origin, position, now), path, file, now)
                return True
        return False

    def _take_unseen(self, path: str, last: Position | None, now: float, log: Log | None = None) -> None:
        """Files that were at `path` since its log was at `last` and have been moved on before they were seen, oldest first.

        `log` has been called `path`, if it was not found there.
        """
        if last is None:
            return
        self._now_at(path, now)
        folder, name = os.path.split(path)
        siblings = self._follower.folder(folder).siblings(name)
        for sibling, status in reversed(rotation.newest_first(siblings)):
            ours = not self._globs.match(sibling.removesuffix(".gz"))  # else the walks find it, or have found it
            if ours and status.st_mtime_ns >= last.modified and stat.S_ISREG(status.st_mode):
                if sibling.endswith(rotation.COMPRESSED):
                    self._take_packed(path, sibling, now, log)
                else:
                    self._take_sibling(path, sibling, now)
        if log is not None and self._follower.folder(folder).siblings(name) != siblings:
            self._follower.vacate(path, log, last)  # they were moved on while they were looked at

    def _take_sibling(self, base: str, path: str, now: float) -> None:
        file = self._access.try_open(path)
        if file is None:
            return
        if self._follower.owner_of(file, now) is not None:
            file.close()
            return
        if self._known(base, path, file, now):
            return
        inode = inode_of(file.status())
        current = self._register.by_path.get(base)
        if self._copies.wait_for(inode):
            file.close()
        elif current is None or not self._copies.suspect(base, path, file, [current], now):
            self._start(base, path, file, self._follower.short_copies.pop(inode, 0), now)

    def _take_packed(self, base: str, path: str, now: float, log: Log | None) -> None:
        """A sibling was compressed: before it was seen, or after it was read."""
        if not path.endswith(".gz"):
            self._access.refusals.note(path, "rotated_compressed")
            return
        file = self._access.try_open(path)
        if file is None:
            return
        status = file.status()
        unpacked = Unpacked(file)
        if (inode_of(status), status.st_mtime_ns) in self._packed or self._was_read(base, unpacked, log):
            unpacked.close()
            return
        self._packed[inode_of(status), status.st_mtime_ns] = None
        if len(self._packed) > MAX_PACKED:
            del self._packed[next(iter(self._packed))]
        late = self._register.new(base, Position(path=path, modified=status.st_mtime_ns), now)
        late.reader, late.left = unpacked, now

    def _was_read(self, base: str, unpacked: Unpacked, log: Log | None) -> bool:
        """Whether a compressed file begins as `log` does, or as one of the last logs of a path."""
        logs = [*self._register.logs_of(base), *([log] if log is not None else [])]
        marks = [log.position.mark for log in logs] + self._register.marks_of(base)
        files = [log.reader for log in logs if isinstance(log.reader, OpenFile)]
        heads: list[Fingerprint | OpenFile] = [*marks, *files]
        return any(rotation.same_head(unpacked, other) for other in heads)

    def _now_at(self, path: str, now: float) -> Log | None:
        """The log that a path leads to, looked up now, like all that it led to: before a file beside it is judged."""
        named = self._register.by_path.get(path)
        for log in {*self._register.logs_of(path), *([named] if named else [])}:
            self._make_sure(log, now)
        if path not in self._register.by_path and os.path.lexists(path) and self._globs.match(path):
            self.found(path, now)
        return self._register.by_path.get(path)

    def _make_sure(self, log: Log, now: float) -> None:
        """See whether a log still is where it was."""
        if not self._register.knows(log):
            return
        self._follower.visit(log, now)
        if log.changed and not log.over and log.search is None:
            self._follower.read(log, 0, now)
