"""What stands in the folders of logs: each listed once a poll, for all that ask."""

from __future__ import annotations

import math
import os
from functools import partial

from exporter.sources.files import rotation
from exporter.sources.files.access import Access
from exporter.sources.files.rotation import Folder
from exporter.sources.files.tail import Log


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

    def siblings_of(self, log: Log) -> list[str]:
        """Paths that rotation may have given to a log, by any of its names."""
        known = (log.base, log.position.path, log.position.place, *log.position.called)
        names = {os.path.basename(path) for path in known if path}
        folder = self.of(log)
        return list(dict.fromkeys(path for name in sorted(names) for path in folder.siblings(name)))

    def _folders_in(self, path: str) -> list[str]:
        if path not in self._within:
            self._within[path] = self._access.tells(path, partial(rotation.folders_in, path), [])
        return self._within[path]


def _folder_of(log: Log) -> str:
    return os.path.dirname(log.position.place or log.position.path)
