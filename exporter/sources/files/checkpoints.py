"""The table of all logs that are known, by origin: those that are followed, and where those were read to that are done
with. Finds them by key, by inode, by the paths that they have had, by time and by length.

A log that is done with is remembered, so that a copy that turns up under a new name counts nothing twice and the next
log of its path gets a number of its own. Touches no file.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from exporter.sources.files import folders
from exporter.sources.files.contents import NOWHERE, Inode
from exporter.sources.files.log import Log
from exporter.sources.files.states import LogPosition

MAX_LINGERING = 256  # the newest: 1 ms every ten seconds, a few more on a network
MAX_RECENT_LOGS = 32  # logs of one path; logrotate keeps fewer files
Row = Log | LogPosition  # a log that is followed, or where one was read to that is done with
Index = dict[int, list[LogPosition]]
_NUMBERED = re.compile(r"(?P<base>.*)#(?P<number>\d+)", re.DOTALL)
_SECOND_NS = 10**9

K = TypeVar("K")


def origin_of(base: str, number: int) -> str:
    """How the `number`th log of a path is called in incident ids: the path itself for the first one."""
    return base if number == 0 and not _NUMBERED.fullmatch(base) else f"{base}#{number}"


def split_origin(origin: str) -> tuple[str, int]:
    """What `origin_of` was given."""
    numbered = _NUMBERED.fullmatch(origin)
    return (numbered["base"], int(numbered["number"])) if numbered else (origin, 0)


class Origins(dict[K, tuple[str, ...]]):
    """Origins by something that several of them may have."""

    def add(self, key: K, origin: str) -> None:
        if origin not in (others := self.get(key, ())):
            self[key] = (*others, origin)

    def remove(self, key: K, origin: str) -> None:
        if left := tuple(other for other in self.pop(key, ()) if other != origin):
            self[key] = left


class Checkpoints:
    """One row for each log."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._done: dict[str, bool] = {}  # and whether somebody may write on to its file; the longest done first
        self._paused: dict[str, None] = {}  # the longest paused first
        self._numbers: dict[str, int] = {}  # of the last log of each path
        self._by_file: Origins[Inode] = Origins()  # several, where the number was used again: the last has it
        self._called: Origins[str] = Origins()  # by paths that led to them
        self._indexes: tuple[Index, Index] | None = None  # in this poll, if somebody has asked
        self._kin: dict[str, list[Log]] | None = None  # by what their names may have been before rotation; as well

    def begin(self) -> None:
        self._indexes = self._kin = None

    # -- rows

    def put(self, origin: str, row: Row, *, paused: bool = False) -> None:
        """A log is followed, or done with; or another log has its place until it grows."""
        self.remove(origin)
        base, number = split_origin(origin)
        self._numbers[base] = max(self._numbers.get(base, 0), number)
        self._rows[origin] = row
        if paused:
            self._paused[origin] = None
        elif isinstance(row, LogPosition):
            self._done[origin] = row.file != NOWHERE
        elif self._kin is not None:
            self._add_kin(row)
        self.set_file(origin, self.at(origin))
        self.add_names(origin, self.at(origin))

    def remove(self, origin: str) -> None:
        row = self._rows.pop(origin, None)
        if row is not None:
            self._done.pop(origin, None)
            self._paused.pop(origin, None)
            self.release(origin, _position_of(row))
            for path in _position_of(row).called:
                self._called.remove(path, origin)

    def forget_oldest_done(self, most: int) -> Iterator[tuple[str, LogPosition]]:
        """Forget the logs that were done with first, if there are more than so many."""
        while len(self._done) > most:
            origin = next(iter(self._done))
            position = self.at(origin)
            self.remove(origin)
            base, number = split_origin(origin)
            if self._numbers.get(base) == number:
                del self._numbers[base]
            yield origin, position

    def set_file(self, origin: str, position: LogPosition) -> None:
        """A log, if it is in the table, has the file that its position tells."""
        if origin in self._rows and position.file != NOWHERE:
            self._by_file.add(position.file, origin)

    def add_names(self, origin: str, position: LogPosition) -> None:
        """A log, if it is in the table, has been called what its position tells."""
        for path in position.called if origin in self._rows else ():
            self._called.add(path, origin)

    def release(self, origin: str, position: LogPosition) -> None:
        """The number of a log's file may be another log's."""
        self._by_file.remove(position.file, origin)

    # -- what is in it

    def get(self, origin: str) -> Row | None:
        return self._rows.get(origin)

    def at(self, origin: str) -> LogPosition:
        """Where a log that is in the table was read to."""
        return _position_of(self._rows[origin])

    def next_origin(self, base: str) -> str:
        """The origin of the next log of a path."""
        return origin_of(base, self._numbers.get(base, -1) + 1)

    def log_at(self, file: Inode) -> Log | None:
        """The log that has the number of a file: that got it last of those that are followed."""
        rows = (self._rows[origin] for origin in reversed(self._by_file.get(file, ())))
        return next((row for row in rows if isinstance(row, Log)), None)

    def knows(self, log: Log) -> bool:
        return self._rows.get(log.origin) is log

    def followed(self) -> Iterator[Log]:
        return (row for row in self._rows.values() if isinstance(row, Log))

    @property
    def followed_count(self) -> int:
        return len(self._rows) - len(self._done) - len(self._paused)

    @property
    def paused_count(self) -> int:
        return len(self._paused)

    def longest_paused(self, most: int) -> list[str]:
        """Origins of the logs that were paused first, if there are more than so many."""
        return list(islice(self._paused, max(0, len(self._paused) - most)))

    def paused_at(self, file: Inode) -> LogPosition | None:
        """Where the paused log that has the number of a file was read to."""
        return next((self.at(origin) for origin in self._by_file.get(file, ()) if origin in self._paused), None)

    def last_of(self, base: str) -> LogPosition | None:
        """Where the last log of a path was read to, done with or not."""
        row = self._rows.get(origin_of(base, self._numbers[base])) if base in self._numbers else None
        return _position_of(row) if row is not None else None

    def logs_of(self, base: str) -> list[Log]:
        """The logs that are followed still, of the last few that were found under a path or have been called so."""
        return [row for origin in self._last_origins(base) if isinstance(row := self._rows.get(origin), Log)]

    def done_of(self, base: str) -> list[str]:
        """Origins of those among them that are done with."""
        return [origin for origin in self._last_origins(base) if self._is_done(origin)]

    def _is_done(self, origin: str) -> bool:
        return origin in self._done or self.is_paused(origin)

    def is_paused(self, origin: str) -> bool:
        return origin in self._paused

    def _last_origins(self, base: str) -> list[str]:
        last = self._numbers.get(base, -1)
        origins = [origin_of(base, number) for number in range(last, max(-1, last - MAX_RECENT_LOGS), -1)]
        return origins + [origin for origin in self._called.get(base, ()) if origin not in origins]

    def kin_of(self, base: str) -> Iterator[Log]:
        """The logs that are followed, of those whose names rotation may have made of a path, or of what that was made of."""
        if self._kin is None:
            self._kin = {}
            for log in self.followed():
                self._add_kin(log)
        for name in dict.fromkeys([base, *(name for name in folders.originals(base) if name in self._kin)]):
            yield from (log for log in self._kin.get(name, ()) if self.knows(log))

    def done_with(self, path: str, file: Inode) -> Iterator[str]:
        """Origins of logs that were done with and that a file may be.

        By inode; by path after a mount came back; and those that were given up, whose bytes may turn up after all.
        """
        yield from (origin for origin in self._by_file.get(file, ()) if self._is_done(origin))
        last = origin_of(path, self._numbers.get(path, 0))
        if self._is_done(last) and self.at(last).inode == file[1]:
            yield last
        yield from (origin for origin in self.done_of(path) if self.at(origin).file == NOWHERE)

    def lingering(self) -> list[str]:
        """Origins of logs that are done with, to whose files somebody may write on."""
        return [origin for origin, lingers in reversed(self._done.items()) if lingers][:MAX_LINGERING]

    def end_lingering(self, origin: str) -> None:
        if origin in self._done:
            self._done[origin] = False

    def written_at(self, modified: int) -> Iterator[LogPosition]:
        """Where logs were read to, done with or not, that were last written to at a time; one in whole seconds is that of
        all within the second, as an archive keeps it.
        """
        yield from self._index()[0].get(modified, ())

    def with_length(self, length: int) -> Iterator[LogPosition]:
        """Where logs were read to, done with or not, if that is so far (modulo 2**32, as gzip tells it)."""
        yield from self._index()[1].get(length, ())

    def _index(self) -> tuple[Index, Index]:
        if self._indexes is None:
            by_time, by_length = self._indexes = {}, {}
            for row in self._rows.values():
                position = _position_of(row)
                time = row.stat.modified if isinstance(row, Log) else row.modified
                for key in {time, time // _SECOND_NS * _SECOND_NS}:
                    by_time.setdefault(key, []).append(position)
                by_length.setdefault(position.offset % 2**32, []).append(position)
        return self._indexes

    def _add_kin(self, log: Log) -> None:
        assert self._kin is not None
        called = {log.base, log.position.path, *log.position.called}
        for name in {name for path in called for name in (path, *folders.originals(path))}:
            self._kin.setdefault(name, []).append(log)


def _position_of(row: Row) -> LogPosition:
    return row.position if isinstance(row, Log) else row
