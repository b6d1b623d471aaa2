"""Where the bytes of a log are now: the one place that searches for them.

The order is always the same: a file with the log's inode, then a file with its bytes, then a compressed one. Changes no
log; `follow` does, by what was found here.

Raises OSError where a disk or a server gives no answer. Then nothing was concluded, and the same may be asked again.
"""

import errno
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from exporter.sources.files import filesystem, folders
from exporter.sources.files.access import Access
from exporter.sources.files.checkpoints import Checkpoints
from exporter.sources.files.contents import (
    HEAD_BYTES,
    NOWHERE,
    TAIL_BYTES,
    Fingerprint,
    GzipReader,
    Search,
    Version,
    holds_all_of,
    inode_of,
    same_head,
    version_of,
)
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import OpenFile, closed_on_error
from exporter.sources.files.folders import COMPRESSED, Folder
from exporter.sources.files.log import Log
from exporter.sources.files.states import LogPosition

MAX_SIBLINGS = 64  # the newest; logrotate keeps fewer, and a thousand ranks named job-N are not a rotation

Suits = Callable[[Log, OpenFile], bool]
Siblings = Sequence[tuple[str, os.stat_result]]  # paths and what a stat told of them, the newest first


class Folders:
    """The snapshots that somebody has asked for since `begin`."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._folders: dict[str, Folder] = {}
        self._within: dict[str, list[str]] = {}

    def begin(self) -> None:
        self._folders.clear()
        self._within.clear()

    def at(self, path: str, since: float = math.inf) -> Folder:
        """What stands in a folder now, or stood there at some time `since` (of the monotonic clock).

        Read again only if that is not known: logrotate moves a thousand logs at once, and a thousand ranks make theirs.
        """
        folder = self._folders.get(path)
        if folder is None or not (folder.begun >= since or folder.is_current()):
            folder = self._folders[path] = self._access.read_or_default(
                path, partial(folders.snapshot, path), Folder(path)
            )
        return folder

    def of(self, log: Log) -> Folder:
        """The folder that a log's file is in."""
        return self.at(_folder_of(log))

    def near_to(self, log: Log) -> list[str]:
        """The folders to which a log may have been moved while nobody had it open: in its folder, and beside that."""
        folder = _folder_of(log)
        return [*self._folders_in(folder), *self._folders_in(os.path.dirname(folder))]

    def siblings_of(self, log: Log) -> Siblings:
        """The files that rotation may have made of a log, by any of its names."""
        paths = [path for path in (log.base, log.position.path, log.position.place, *log.position.called) if path]
        folder = self.of(log)
        return self.newest_first({path for name in folders.names_of(paths) for path in folder.siblings(name)})

    def newest_first(self, paths: Iterable[str]) -> Siblings:
        """The files among some siblings, as many as rotation may have left."""
        statuses = (
            (path, self._access.read_or_default(path, partial(filesystem.stat, path), None)) for path in sorted(paths)
        )
        current = [(path, status) for path, status in statuses if status is not None]  # else renamed on
        return sorted(current, key=lambda item: item[1].st_mtime_ns, reverse=True)[:MAX_SIBLINGS]

    def _folders_in(self, path: str) -> list[str]:
        if path not in self._within:
            self._within[path] = self._access.read_or_default(path, partial(folders.folders_in, path), [])
        return self._within[path]


def _folder_of(log: Log) -> str:
    return os.path.dirname(log.position.place or log.position.path)


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

    def file_of(self, log: Log, *, far: bool) -> OpenFile | None:
        """The first file with the bytes of a log that no other log has, open: one with its inode, what copytruncate made, or
        a rotated one.

        `far`: its inode is looked for in the folders near its own, too.
        """
        for path in sorted(self._with_inode(log, far=far), key=self._globs.match, reverse=True):
            if (file := self.file_at(path, log, self._is_free_for)) is not None:
                return file
        siblings = self.folders.siblings_of(log)
        if (file := self._copy_of(log, siblings, self._is_free_for)) is not None:
            return file
        nobodys = [item for item in siblings if self._table.log_at(inode_of(item[1])) is None]
        self.short_copies.record(log.position.mark, log.last_read.recent_bytes, nobodys)
        return None

    def is_copied(self, log: Log) -> bool:
        """Whether a file beside a log's holds what was read of it."""
        copy = self._copy_of(log, self.folders.siblings_of(log))
        if copy is not None:
            copy.close()
        return copy is not None

    def file_at(self, path: str, log: Log, suits: Suits = lambda _log, _file: True) -> OpenFile | None:
        """A path's file, open, if it is a log's file, by its inode and by what was read of it."""
        position = log.position

        def is_its_file(file: OpenFile) -> bool:
            same_number = file.status().st_ino == position.inode
            return same_number and self._access.is_file_of(file, position) and suits(log, file)

        return self._access.open_if(path, is_its_file)

    def replacement_of(self, log: Log) -> OpenFile | None:
        """The file at a log's path, open, if it is a copy that took the place of the log's file: as rsync and editors make
        it, a restore, or a move to another disk.
        """
        mark = log.position.mark

        def replaces(file: OpenFile) -> bool:
            return self._access.holds(file, mark) and self._is_free_for(log, file) and self.is_all_in(log, file)

        return self._access.open_if(log.position.path, replaces) if mark.length >= HEAD_BYTES else None

    def archives_of(self, log: Log, modified: int) -> Search | None:
        """The gzip files beside a log that begin as it does and may hold what was written at `modified` or later: gzip keeps
        the time.
        """
        mark = log.position.mark
        since = modified - 10**9  # whole seconds, where utimensat(2) is not used
        candidates: list[GzipReader] = []
        with ExitStack() as opened:
            for path, status in self.folders.siblings_of(log):
                may_hold = path.endswith(".gz") and status.st_mtime_ns >= since
                file = self._access.try_open(path) if may_hold else None
                if file is None:
                    continue
                unpacked = GzipReader(file)
                opened.enter_context(closed_on_error(unpacked))
                if self._access.read_or_default(path, partial(mark.begins_like, unpacked.read), False):
                    candidates.append(unpacked)
                else:
                    unpacked.close()
        return Search(mark, candidates) if candidates else None

    def current_path(self, position: LogPosition) -> str | None:
        """Where the file of a log that is done with is now: its inode alone tells."""
        path = position.place or position.path
        if self._access.file_at(path) == position.file:
            return path
        names = self.folders.at(os.path.dirname(path)).with_inode(position.inode)
        return next((name for name in names if self._access.file_at(name) == position.file), None)

    def is_all_in(self, log: Log, copy: OpenFile) -> bool:
        """Whether a log's file is gone, and whatever it held, as far as we can still see, is in a copy of it."""
        for path in self.folders.of(log).with_inode(log.position.inode):
            if (file := self.file_at(path, log)) is not None:
                file.close()
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

    def _with_inode(self, log: Log, *, far: bool) -> list[str]:
        inode = log.position.inode
        paths = self.folders.of(log).with_inode(inode)
        if paths or not far or log.position.file == NOWHERE:
            return paths
        moved = [path for folder in self.folders.near_to(log) for path in self.folders.at(folder).with_inode(inode)]
        return [path for path in moved if not self._globs.excludes(path)]  # else it may be another source's

    def _copy_of(self, log: Log, siblings: Siblings, suits: Suits = lambda _log, _file: True) -> OpenFile | None:
        mark = log.position.mark
        for path, status in siblings if mark.length else ():
            if status.st_size >= mark.length and not path.endswith(COMPRESSED):
                file = self._access.open_if(path, lambda file: self._access.holds(file, mark) and suits(log, file))
                if file is not None:
                    return file
        return None

    def _is_free_for(self, log: Log, file: OpenFile) -> bool:
        other = self._table.log_at(inode_of(file.status()))
        return other is None or other is log or not self._access.has(other, file)


class ShortCopies:
    """Siblings of logs whose bytes are gone, that were perhaps copied before all was written that had been read.

    Between the end of a copy and the truncation a writer may add to a log, and we may read it. Logs share banners, so the
    end of the copy is compared with the last bytes that were read, as far as they are kept. Where that is not far enough,
    nobody can tell: the copy is read, since a crash that is counted twice is better than one that is missed.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._read: dict[Version, int] = {}  # how much of each file; 0 where nobody can tell

    def record(self, mark: Fingerprint, kept: bytes, siblings: Siblings) -> None:
        """Look at files that nobody has, after a log was lost of which `mark` tells, with `kept` as its last bytes."""
        start = mark.length - len(kept)
        for path, status in siblings:
            size = status.st_size
            if not HEAD_BYTES <= size < mark.length or path.endswith(COMPRESSED):
                continue
            is_comparable = size - start >= TAIL_BYTES
            end = kept[: size - start] if is_comparable else b""
            file = self._access.open_if(path, partial(self._ends_with, mark, size, end))
            if file is not None:
                file.close()
                self._read[version_of(status)] = size if is_comparable else 0
                if len(self._read) > MAX_SHORT_COPIES:
                    del self._read[next(iter(self._read))]

    def _ends_with(self, mark: Fingerprint, size: int, end: bytes, file: OpenFile) -> bool:
        """Whether a file of this size begins as `mark` tells, and ends so."""
        read = partial(file.read, len(end), size - len(end))
        return self._access.read_or_default(file.path, lambda: same_head(file, mark) and read() == end, False)

    def read_of(self, file: OpenFile) -> int:
        """How much of a new file was read before. Where nobody can tell, that is counted."""
        read = self._read.pop(version_of(file.status()), None)
        if read == 0:
            self._access.refusals.count(file.path, "perhaps_read_twice")
        return read or 0
