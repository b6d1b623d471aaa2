"""Compressed files beside a log: what rotation packed before it was seen, or after it was read."""

from __future__ import annotations

import os
from functools import partial

from exporter.sources.files import comparison, rotation
from exporter.sources.files.access import Access
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.follow import Follower
from exporter.sources.files.gzip_reader import GzipReader
from exporter.sources.files.identity import Version, inode_of, version_of
from exporter.sources.files.log_values import Position
from exporter.sources.files.register import Register
from exporter.sources.files.states import Unreached
from exporter.sources.files.tail import Log

MAX_TAKEN = 1024


class Archives:
    """Takes those that no log was read from."""

    def __init__(self, register: Register, globs: Globs, follower: Follower, access: Access) -> None:
        self._register = register
        self._globs = globs
        self._follower = follower
        self._access = access
        self._taken: dict[Version, None] = {}

    def take(self, base: str, path: str, now: float, log: Log | None) -> None:
        """Read a compressed file at `path`, which was the log or one of the logs of `base`, unless it has been read; `log` is,
        or has been, called `base`.
        """
        if not path.endswith(".gz") or path.endswith(".tar.gz"):
            self._access.refusals.note(path, "rotated_compressed")
            return
        if self._access.file_at(path.removesuffix(".gz")) is not None:
            return  # compressing it has not ended, and may never end; it is read as it is
        file = self._access.try_open(path)
        if file is None:
            return
        unpacked = GzipReader(file)
        with closed_on_error(unpacked):
            taken = self._is_taken(base, unpacked, log, now)
            origin = None if taken else self._begun_as(base, unpacked)
        if taken:
            unpacked.close()
            return
        self._taken[version_of(unpacked.status)] = None
        if len(self._taken) > MAX_TAKEN:
            del self._taken[next(iter(self._taken))]
        if origin is None:
            late = self._register.new(base, Position(path=path, modified=unpacked.status.st_mtime_ns), now)
        else:
            late = self._register.revive(origin, now)
            self._register.place(late, late.lose_file)
        late.reader = unpacked
        late.observe(Unreached(now))

    def _is_taken(self, base: str, unpacked: GzipReader, log: Log | None, now: float) -> bool:
        """Whether what was compressed is what a log of a path has in another form, or was read to its end."""
        if version_of(unpacked.status) in self._taken:
            return True
        kin = self._register.table.kin_of(base) if self._globs.match(unpacked.path.removesuffix(".gz")) else ()
        for other in dict.fromkeys([*self._register.table.logs_of(base), *kin, *([log] if log is not None else [])]):
            if other.left is None and comparison.same_head(unpacked, other.position.mark):
                look = partial(self._follower.read, other, 0, now)  # whether its file still holds what was read
                self._access.tells(other.position.path, look, None)
            reader, mark = other.reader, other.position.mark
            if isinstance(reader, OpenFile):
                taken = comparison.is_packed_copy(unpacked, reader)
            elif isinstance(reader, GzipReader):
                taken = inode_of(reader.status) == inode_of(unpacked.status)
            elif taken := not other.over and comparison.may_hold(unpacked, mark):  # it is looked for, and found here
                self._follower.look_again(base, other, other.position.modified)
            if taken:
                return True
        marks = [self._register.table.at(origin).mark for origin in self._register.table.done_of(base)]
        folder = os.path.dirname(base)  # in which it may have been read under another name, and moved on since
        marks += [
            at.mark for at in self._register.table.read_to(unpacked.trailer()[1]) if os.path.dirname(at.path) == folder
        ]
        return any(comparison.is_packed_whole(unpacked, mark) for mark in marks)

    def _begun_as(self, base: str, unpacked: GzipReader) -> str | None:
        """The log that was finished too early: more of it is here. Rotation may have compressed it under another name."""
        for origin in (
            done for name in (base, *rotation.originals(base)) for done in self._register.table.done_of(name)
        ):
            mark = self._register.table.at(origin).mark
            if mark.length <= comparison.COMPARED_BYTES and comparison.may_hold(unpacked, mark):
                return origin
        return None
