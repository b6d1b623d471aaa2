"""New files that are so far the same as a log beside them: perhaps copies, to be followed by a truncation of the log.

Reading one at once would count its lines twice; not reading it would lose those of a rank whose banner is the same. So
they wait until they differ, or until the log has been truncated, or until nothing has happened for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporter.sources import rotation
from exporter.sources.follow import Follower, file_at
from exporter.sources.identity import HEAD_BYTES, Inode
from exporter.sources.opening import OpenFile
from exporter.sources.register import Register
from exporter.sources.tail import Log

COPY_SECONDS = 5.0  # a copy that grows no more is truncated within milliseconds, or was no copytruncate


@dataclass(slots=True)
class _Suspect:
    log: Log
    file: Inode  # of the log
    size: int
    since: float


class Copies:
    """The files that wait, by path."""

    def __init__(self, register: Register, follower: Follower) -> None:
        self._register = register
        self._follower = follower
        self._suspects: dict[str, _Suspect] = {}

    def is_suspect(self, path: str) -> bool:
        return path in self._suspects

    def suspect(self, path: str, file: OpenFile, beside: Sequence[Log], now: float) -> bool:
        """Whether a new file has to wait, since all of it may be a copy of one of the logs `beside` it."""
        size = file.status().st_size
        for log in beside:
            if log.left is None and self._same(file, log, size, now):
                self._suspects[path] = _Suspect(log, log.position.file, size, now)
                return True
        return False

    def settled(self, now: float) -> Iterator[tuple[str, int]]:
        """The files that need not wait any longer, and from where on each is to be read."""
        for path, suspect in list(self._suspects.items()):
            known = file_at(path)
            if known is None or known in self._register.by_file:
                del self._suspects[path]  # deleted, or what the log goes on in
                continue
            offset = self._judge(path, suspect, now)
            if offset is not None:
                del self._suspects[path]
                yield path, offset

    def _judge(self, path: str, suspect: _Suspect, now: float) -> int | None:
        """From where on to read a file; None while that cannot be told."""
        file = self._follower.open(path)
        if file is None:
            return None
        try:
            size = file.status().st_size
            if suspect.log.position.file != suspect.file:
                return size  # the log was truncated, after more had been read of it than was copied
            if not self._same(file, suspect.log, size, now):
                return 0
        finally:
            file.close()
        if size != suspect.size:
            suspect.size, suspect.since = size, now
        if now - suspect.since < COPY_SECONDS:
            return None
        return size if size >= HEAD_BYTES else 0  # what is shorter may be the same by chance, and costs little

    def _same(self, file: OpenFile, log: Log, size: int, now: float) -> bool:
        self._follower.read(log, 0, now)
        return isinstance(log.reader, OpenFile) and rotation.same_beginning(file, log.reader, size)
