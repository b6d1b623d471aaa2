"""What stands in the folders of logs: each listed once a poll, for all that ask."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, takewhile

from exporter.sources.files import filesystem, rotation
from exporter.sources.files.access import Access
from exporter.sources.files.clock import TICK_NS, monotonic, now_ns
from exporter.sources.files.filesystem import NO_ANSWER
from exporter.sources.files.tail import Log

LISTINGS = 3  # of a folder that changes all the time
MAX_FOLDERS = 32  # in a folder: a stat each for a log that went while nobody looked
MAX_SIBLINGS = 64  # the newest; logrotate keeps fewer, and a thousand ranks named job-N are not a rotation

Siblings = Sequence[tuple[str, os.stat_result]]  # paths and what a stat told of them, the newest first


class Folder:
    """What stood in a folder at one moment. A missing or unreadable folder is empty.

    Raises OSError where the disk or its server gives no answer. Without `listings`, it is taken to be empty.
    """

    def __init__(self, path: str, listings: int = LISTINGS) -> None:
        self.path = path
        self.begun = -math.inf  # when it was listed, by the monotonic clock
        self._stamp, self._settled = -1, False
        self._inodes: list[tuple[int, str]] = []
        for _ in range(listings):  # a name that is changed meanwhile may be in neither place
            self.begun, self._stamp = monotonic(), _stamp(path)
            self._settled = self._stamp < now_ns() - TICK_NS
            try:
                self._inodes = sorted((entry.inode(), entry.name) for entry in filesystem.entries(path))
            except OSError as error:
                if error.errno in NO_ANSWER:
                    raise
                break  # the log's own stat tells of it
            if _stamp(path) == self._stamp:
                break
        self._names = sorted((name, inode) for inode, name in self._inodes)

    def is_current(self) -> bool:
        """Whether this is, for sure, what stands there now."""
        return self._settled and _stamp(self.path) == self._stamp

    def with_inode(self, inode: int) -> list[str]:
        """Paths that have an inode: several, where it has hard links."""
        first = bisect_left(self._inodes, (inode, ""))
        same = takewhile(lambda item: item[0] == inode, islice(self._inodes, first, None))
        return [self._path(name) for _, name in same]

    def siblings(self, name: str) -> dict[str, int]:
        """Paths that rotation may have given to what was called `name`, compressed ones too, and their inodes."""
        found = rotation.siblings(name, self._beginning_with)
        return {self._path(name): inode for name, inode in found.items()}

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _beginning_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        return takewhile(
            lambda item: item[0].startswith(prefix), islice(self._names, bisect_left(self._names, (prefix, 0)), None)
        )


class Folders:
    """The folders that somebody has asked for since `begin`. Raises OSError where there is no answer."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._folders: dict[str, Folder] = {}
        self._within: dict[str, list[str]] = {}

    def begin(self) -> None:
        """A poll begins."""
        self._folders.clear()
        self._within.clear()

    def at(self, path: str, since: float = math.inf) -> Folder:
        """What stands in a folder now, or stood there at some time `since` (of the monotonic clock).

        Read again only if that is not known: logrotate moves a thousand logs at once, and a thousand ranks make theirs.
        """
        known = self._folders.get(path)
        if known is None or not (known.begun >= since or known.is_current()):
            known = self._access.tells(path, lambda: Folder(path), None) or Folder(path, listings=0)
            self._folders[path] = known
        return known

    def of(self, log: Log) -> Folder:
        """The folder that a log's file is in."""
        return self.at(_folder_of(log))

    def near_to(self, log: Log) -> list[str]:
        """The folders to which a log's may have been moved while nobody had it open: in its folder, and beside that."""
        folder = _folder_of(log)
        return [*self._folders_in(folder), *self._folders_in(os.path.dirname(folder))]

    def siblings_of(self, log: Log) -> Siblings:
        """The files that rotation may have made of a log, by any of its names."""
        known = [path for path in (log.base, log.position.path, log.position.place, *log.position.called) if path]
        known += [before for path in known for before in rotation.originals(path) if rotation.is_numbered(path, before)]
        names = {os.path.basename(path) for path in known}
        folder = self.of(log)
        return self.newest_first({path for name in names for path in folder.siblings(name)})

    def newest_first(self, paths: Iterable[str]) -> Siblings:
        """The files among some siblings, as many as rotation may have left."""
        looked = ((path, self._access.tells(path, partial(filesystem.stat, path), None)) for path in sorted(paths))
        found = [(path, status) for path, status in looked if status is not None]  # else renamed on
        return sorted(found, key=lambda item: item[1].st_mtime_ns, reverse=True)[:MAX_SIBLINGS]

    def _folders_in(self, path: str) -> list[str]:
        if path not in self._within:
            self._within[path] = self._access.tells(
                path, lambda: list(islice(filesystem.folders_in(path), MAX_FOLDERS)), []
            )
        return self._within[path]


def _stamp(path: str) -> int:
    status = filesystem.stat_or_none(path)
    return status.st_mtime_ns if status is not None else -1


def _folder_of(log: Log) -> str:
    return os.path.dirname(log.position.place or log.position.path)
