"""Skipped files and the reasons: counted once for each file, over restarts too, and logged once for each reason."""

from collections import UserDict
from collections.abc import Callable, Mapping

from exporter.sources.base import SourceStats

MAX_REMEMBERED = 10_000
LOGGED_PATHS = 5  # examples a reason; the counter tells how many there are

_WHY = {
    "another_users_file": "leads by one user's link to another user's file",
    "binary": "not a text file",
    "device": "is a device",
    "directory": "is a folder; write the pattern as …/** to look into it",
    "fifo": "is a FIFO; only regular files are read",
    "folder_unreadable": "cannot be listed; give gpufault read and search permission",
    "folder_vanished": "was deleted while it was being listed",
    "gone_unread": "was deleted or moved away before it was read to its end",
    "gone_while_closed": "went while it was closed, idle or one of too many; nobody can tell whether more was written to it",
    "gone_while_down": "went while gpufault did not run; nobody can tell whether more was written to it",
    "io_error": "cannot be read: input/output error",
    "link_loop": "is a symbolic link that leads in a circle",
    "name_not_utf8": "has a name that is not UTF-8; rename it",
    "outside_roots": "leads outside the folders of paths; add the folder to allow_roots if that is meant",
    "perhaps_read_twice": "may be a copy of a log, and nobody can tell; its lines are read, perhaps again",
    "perhaps_truncated": "begins otherwise than what was read of it, and goes on the same: written over there, or begun anew",
    "position_unreadable": "has a stored position that cannot be read; it is taken for a new file",
    "rotated_compressed": "was compressed before it was seen, and not by gzip; rotate with delaycompress",
    "socket": "is a socket",
    "stale": "is on a network file system whose server has forgotten it",
    "too_many_files": "is one log too many; narrow paths",
    "too_many_open": "cannot be opened: too many open files; raise LimitNOFILE",
    "truncated_unread": "was truncated before it was read to its end, and no copy of it was found",
    "unreadable": "cannot be opened; give gpufault read permission",
}


class StoredTexts(UserDict[str, str]):
    """Texts by path; `changed` is told of each path whose row has to be stored."""

    def __init__(self, stored: Mapping[str, str], changed: Callable[[str], object]) -> None:
        super().__init__()
        self._changed = changed
        self.data.update(stored)

    def __setitem__(self, path: str, reason: str) -> None:
        super().__setitem__(path, reason)
        self._changed(path)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        self._changed(path)

    def become(self, texts: Mapping[str, str]) -> None:
        """Change as little as it takes to hold these."""
        for path in [path for path in self.data if path not in texts]:
            del self[path]
        self.update({path: text for path, text in texts.items() if self.get(path) != text})


class SkippedFiles:
    """Counts into the statistics of the moment, which the daemon may exchange.

    What was counted is stored with the counters, so a restart counts nothing again; each process says it again.
    """

    def __init__(self, stats: Callable[[], SourceStats], log: Callable[[str], None], counted: StoredTexts) -> None:
        self._stats = stats
        self._log = log
        self._counted = counted
        self._reasons: dict[str, str] = {}  # that were noted since the start
        self._logged: dict[str, int] = {}

    def note(self, path: str, reason: str) -> None:
        """Count a skipped path; the same reason again is ignored."""
        if self._reasons.get(path) == reason:
            return
        self._reasons[path] = reason
        if len(self._reasons) > MAX_REMEMBERED:
            del self._reasons[next(iter(self._reasons))]
        if self._counted.get(path) != reason:
            self._counted[path] = reason
            self._stats().drop(reason)
            if len(self._counted) > MAX_REMEMBERED:
                del self._counted[next(iter(self._counted))]
        self._log_once(path, reason)

    def count(self, path: str, reason: str) -> None:
        self._stats().drop(reason)
        self._log_once(path, reason)

    def forget(self, path: str) -> None:
        """A path is read after all."""
        self._reasons.pop(path, None)
        self._counted.pop(path, None)

    def _log_once(self, path: str, reason: str) -> None:
        self._logged[reason] = self._logged.get(reason, 0) + 1
        if self._logged[reason] <= LOGGED_PATHS:
            self._log(f"{path!r} {_WHY.get(reason, f'cannot be read: {reason}')}")
