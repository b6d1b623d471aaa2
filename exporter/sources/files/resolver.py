"""Where the bytes of a log are now, and whose bytes a file holds: the one place that searches for them.

The order is always the same: a file with the log's inode, then a file with its bytes, then a compressed one. Changes no
log; `follow` does, by what was found here.

Raises OSError where a disk or a server gives no answer. Then nothing was concluded, and the same may be asked again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial

from exporter.sources.files.access import Access
from exporter.sources.files.checkpoints import Checkpoints
from exporter.sources.files.clock import TICK_NS
from exporter.sources.files.comparison import holds_all_of, same_head
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.folders import Folders, Siblings
from exporter.sources.files.gzip_reader import GzipReader, Search
from exporter.sources.files.identity import HEAD_BYTES, NOWHERE, TAIL_BYTES, Fingerprint, Version, inode_of, version_of
from exporter.sources.files.log_values import Position
from exporter.sources.files.rotation import COMPRESSED
from exporter.sources.files.tail import Log

MAX_SHORT_COPIES = 1024


class Resolver:
    """Searches for the bytes of logs."""

    def __init__(self, table: Checkpoints, globs: Globs, access: Access) -> None:
        self.folders = Folders(access)
        self.short_copies = ShortCopies(access)
        self._table = table
        self._globs = globs
        self._access = access

    # -- where a log's bytes are

    def files_of(self, log: Log, *, far: bool) -> Iterator[OpenFile]:
        """Files with the bytes of a log, open: those with its inode, then what copytruncate made, or a rotated file.

        `far`: its inode is looked for in the folders near its own, too.
        """
        for path in sorted(self._with_inode(log, far=far), key=self._globs.match, reverse=True):
            if (file := self.file_at(path, log)) is not None:
                yield file
        yield from self._copies_of(log)
        nobodys = [item for item in self.folders.siblings_of(log) if self._table.log_at(inode_of(item[1])) is None]
        self.short_copies.look(log.position.mark, log.last_read.kept, nobodys)

    def is_copied(self, log: Log) -> bool:
        """Whether a file beside a log's holds what was read of it."""
        for copy in self._copies_of(log):
            copy.close()
            return True
        return False

    def file_at(self, path: str, log: Log) -> OpenFile | None:
        """A path's file, open, if it is a log's file, by its inode and by what was read of it."""
        return self._access.open_if(path, lambda file: self._is_its_file(file, log.position))

    def replacement_of(self, log: Log) -> OpenFile | None:
        """The file at a log's path, open, if it is a copy that took the place of the log's file: as rsync and editors make
        it, a restore, or a move to another disk.
        """
        mark = log.position.mark

        def replaces(file: OpenFile) -> bool:
            return self._access.holds(file, mark) and self._is_free_for(log, file) and self._is_all_in(log, file)

        return self._access.open_if(log.position.path, replaces) if mark.length >= HEAD_BYTES else None

    def archives_of(self, log: Log, modified: int) -> Search | None:
        """The gzip files beside a log that begin as it does and may hold what was written at `modified` or later: gzip keeps
        the time.
        """
        mark = log.position.mark
        since = modified - 10**9  # whole seconds, where utimensat(2) is not used
        found: list[GzipReader] = []
        with ExitStack() as opened:
            for path, status in self.folders.siblings_of(log):
                may_hold = path.endswith(".gz") and status.st_mtime_ns >= since
                file = self._access.try_open(path) if may_hold else None
                if file is None:
                    continue
                unpacked = GzipReader(file)
                opened.enter_context(closed_on_error(unpacked))
                if self._access.tells(path, partial(mark.begins_like, unpacked.read), False):
                    found.append(unpacked)
                else:
                    unpacked.close()
        return Search(mark, found) if found else None

    def place_of(self, position: Position) -> str | None:
        """Where the file of a log that is done with is now: its inode alone tells."""
        place = position.place or position.path
        if self._access.file_at(place) == position.file:
            return place
        names = self.folders.at(os.path.dirname(place)).with_inode(position.inode)
        return next((name for name in names if self._access.file_at(name) == position.file), None)

    # -- whose bytes are in a file

    def has(self, log: Log, file: OpenFile) -> bool:
        """Whether a file with the inode's number of a log is the log's."""
        return isinstance(log.reader, OpenFile) or self._access.is_file_of(file, log.position)

    def log_in(self, file: OpenFile, logs: Iterable[Log]) -> Log | None:
        """Which of some logs a file that nobody has holds the bytes of: one that is looked for, or one whose file was
        deleted when a copy took its place.
        """
        for log in logs:
            mark = log.position.mark
            replaced = (
                log.reader is not None and log.left is not None and log.stat.unlinked and mark.length >= HEAD_BYTES
            )
            found = mark.length > 0 and (log.missing or replaced) and self._access.holds(file, mark)
            if found and (log.missing or self._is_all_in(log, file)):
                return log
        return None

    def may_replace(self, log: Log, file: OpenFile) -> bool:
        """Whether a file begins with all that was read of a log whose file was deleted, and that is too little to be sure."""
        too_little = 0 < log.position.mark.length < HEAD_BYTES and log.left is not None and log.stat.unlinked
        return too_little and self._access.holds(file, log.position.mark)

    def done_in(self, file: OpenFile, base: str) -> str | None:
        """The origin of the log that a file is of those that were done with; it was found as a log of `base`."""
        for origin in self._table.done_with(base, inode_of(file.status())):
            position = self._table.at(origin)
            copied = position.file == NOWHERE and file.path != base and self._access.holds(file, position.mark)
            is_known = position.mark.length > 0 or position.generation is not None
            if is_known and (copied or self._access.is_file_of(file, position)):
                return origin
        return None

    def is_copy_with_its_time(self, file: OpenFile) -> bool:
        """Whether somebody has given a file the time of a log, and it holds all that was read of that and no more: what `mv`
        makes on another disk, rsync, `cp -p` and a restore anywhere. Two logs that say the same have times of their own.
        """
        status = file.status()
        if status.st_ctime_ns - status.st_mtime_ns <= TICK_NS:
            return False
        positions = self._table.written_at(status.st_mtime_ns)
        return any(0 < at.offset == status.st_size and self._access.holds(file, at.mark) for at in positions)

    # --

    def _with_inode(self, log: Log, *, far: bool) -> list[str]:
        inode = log.position.inode
        paths = self.folders.of(log).with_inode(inode)
        if paths or not far or log.position.file == NOWHERE:
            return paths
        moved = [path for folder in self.folders.near_to(log) for path in self.folders.at(folder).with_inode(inode)]
        return [path for path in moved if not self._globs.excludes(path)]  # else it may be another source's

    def _copies_of(self, log: Log) -> Iterator[OpenFile]:
        mark = log.position.mark
        siblings = self.folders.siblings_of(log) if mark.length else []
        for path, status in siblings:
            if status.st_size >= mark.length and not path.endswith(COMPRESSED):
                file = self._access.open_if(path, lambda file: self._access.holds(file, mark))
                if file is not None:
                    yield file

    def _is_its_file(self, file: OpenFile, position: Position) -> bool:
        return file.status().st_ino == position.inode and self._access.is_file_of(file, position)

    def _is_free_for(self, log: Log, file: OpenFile) -> bool:
        """Whether no other log has a file."""
        other = self._table.log_at(inode_of(file.status()))
        return other is None or other is log or not self.has(other, file)

    def _is_all_in(self, log: Log, copy: OpenFile) -> bool:
        """Whether a log's file is gone, and whatever it held, as far as we can still see, is in a copy of it."""
        for path in self.folders.of(log).with_inode(log.position.inode):
            if (found := self.file_at(path, log)) is not None:
                found.close()
                return False
        if not isinstance(log.reader, OpenFile):
            return True
        try:
            status = log.reader.status()
            return status.st_nlink == 0 and holds_all_of(copy, log.reader, status.st_size)
        except OSError as error:
            if error.errno == errno.ESTALE:
                return True
            raise


class ShortCopies:
    """Siblings of logs whose bytes are gone, that were perhaps copied before all was written that had been read.

    Between the end of a copy and the truncation a writer may add to a log, and we may read it. Logs share banners, so the
    end of the copy is compared with the last bytes that were read, as far as they are kept. Where that is not far enough,
    nobody can tell: the copy is read, since a crash that is counted twice is better than one that is missed.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._read: dict[Version, int] = {}  # how much of each file; 0 where nobody can tell

    def look(self, mark: Fingerprint, kept: bytes, siblings: Siblings) -> None:
        """Look at files that nobody has, after a log was lost of which `mark` tells, with `kept` as its last bytes."""
        start = mark.length - len(kept)
        for path, status in siblings:
            size = status.st_size
            if not HEAD_BYTES <= size < mark.length or path.endswith(COMPRESSED):
                continue
            file = self._access.try_open(path)
            if file is None:
                continue
            with closed_on_error(file):
                alike = self._access.tells(path, partial(same_head, file, mark), False)
                known = size - start >= TAIL_BYTES
                end = self._access.tells(path, partial(file.read, size - start, start), b"") if known else b""
            file.close()
            if alike and (not known or end == kept[: size - start]):
                self._read[version_of(status)] = size if known else 0
                if len(self._read) > MAX_SHORT_COPIES:
                    del self._read[next(iter(self._read))]

    def read_of(self, file: OpenFile) -> int:
        """How much of a new file was read before. Where nobody can tell, that is counted."""
        read = self._read.pop(version_of(file.status()), None)
        if read == 0:
            self._access.refusals.count(file.path, "perhaps_read_twice")
        return read or 0
