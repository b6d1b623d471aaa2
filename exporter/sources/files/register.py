"""The logs that are known: by key, by inode, by path; those that are done with; and what of that is not stored yet.

A log that is done with is remembered, so that a copy that turns up under a new name counts nothing twice and the next
log of its path gets a number of its own. Touches no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from exporter.core.model import Job
from exporter.core.text.stored_values import from_json, to_json
from exporter.sources.files import rotation
from exporter.sources.files.clock import SetBack
from exporter.sources.files.identity import NOWHERE, Inode
from exporter.sources.files.skipped_files import Counted
from exporter.sources.files.stored_paths import restored, storable
from exporter.sources.files.tail import Log, Position

MAX_DONE = 8192  # a node that sees 100,000 job logs a day remembers two hours of them, in 5 MB

MAX_LINGERING = 256  # 1 ms every ten seconds, a few more on a network
MAX_LOOKED_BACK = 32  # logs of one path; logrotate keeps fewer files

Index = dict[int, list[Position]]

_NUMBERED = re.compile(r"(?P<base>.*)#(?P<number>\d+)", re.DOTALL)
_DONE = "done:"
_REFUSED = "refused:"
_SECOND_NS = 10**9
_FIRST = "first"
_SINCE = "since"


def origin_of(base: str, number: int) -> str:
    """How the `number`th log of a path is called in incident ids: the path itself for the first one."""
    return base if number == 0 and not _NUMBERED.fullmatch(base) else f"{base}#{number}"


def split_origin(origin: str) -> tuple[str, int]:
    """What `origin_of` was given."""
    numbered = _NUMBERED.fullmatch(origin)
    return (numbered["base"], int(numbered["number"])) if numbered else (origin, 0)


class Register:
    """All logs of one source. Keys begin with the source's name, so that they differ between sources."""

    def __init__(self, name: str, stored: Mapping[str, str], job_of: Callable[[str], Job | None]) -> None:
        self.logs: dict[str, Log] = {}
        self.by_file: dict[Inode, Log] = {}
        self.by_path: dict[str, Log] = {}
        self.unreadable_rows: list[str] = []
        self.born: list[Log] = []  # logs that nobody has been told of
        self.stirred: dict[Log, None] = {}  # logs that something was done to
        self._prefix = f"{name}:"
        self._job_of = job_of
        self._called: dict[str, dict[str, None]] = {}  # path to origins of logs, done with or not, that were called so
        self._done: dict[str, Position] = {}  # by origin, the longest done first
        self.lingering: dict[str, None] = {}  # origins of those to whose files somebody may write on
        self._done_by_file: dict[Inode, list[str]] = {}  # several, where the number was used again
        self._indexes: tuple[Index, Index] | None = None  # in this poll, if somebody has asked
        self._kin: dict[str, list[Log]] | None = None  # by what their names may have been before rotation; as well
        self._numbers: dict[str, int] = {}
        self._set_back: SetBack | None = None
        self._changed: set[str] = set()
        self._told: set[str] = set()
        self.first = self._prefix + _FIRST in stored
        since = stored.get(self._prefix + _SINCE, "")
        self.since = int(since) if since.isdecimal() else 0
        refused = self._prefix + _REFUSED
        self.refused = Counted(
            {restored(key.removeprefix(refused)): why for key, why in stored.items() if key.startswith(refused)},
            lambda path: self._changed.add(refused + storable(path)),
        )
        positions = [
            (key, position) for key, text in stored.items() if (position := self._parsed(key, text)) is not None
        ]
        for key, position in sorted(positions, key=lambda item: item[1].modified):
            rest = key.removeprefix(self._prefix)
            if rest.startswith(_DONE):
                self._remember(rest.removeprefix(_DONE), position)
            else:
                log = self._add(rest, position)
                log.take_up()
                log.unconfirmed = True

    def begin_first(self) -> None:
        """Record that existing files are being skipped, so that a crash does not make them new."""
        self.first = True
        self._changed.add(self._prefix + _FIRST)

    def end_first(self) -> None:
        if self.first:
            self.first = False
            self._changed.add(self._prefix + _FIRST)

    def begin(self, now: float) -> None:
        """From now on, if not for longer, files are looked at: one that was written since and is not known was not read.

        Who forgets a log forgets that up to its time.
        """
        now_ns = int(now * 1e9)
        self._set_back = self._set_back or SetBack(now_ns)
        self._set_back.look(now_ns)
        self._know_since(self.since or now_ns)
        self._indexes = self._kin = None

    def time_after(self, stamp: int) -> int:
        """The earliest time of files that were written after one with that time."""
        return self._set_back.since(stamp) if self._set_back else stamp

    def _know_since(self, since: int) -> None:
        if since != self.since:
            self.since = since
            self._changed.add(self._prefix + _SINCE)

    def new(self, base: str, position: Position, now: float) -> Log:
        """The next log of a path."""
        number = self._numbers.get(base, -1) + 1
        log = self._add(origin_of(base, number), position)
        log.grew = now
        self.save(log)
        return log

    def name(self, log: Log, path: str) -> None:
        """A path of the globs leads to a log."""
        self.unname(path)
        self.by_path[path] = log
        log.name(path)
        self._call(log.origin, log.position)

    def unname(self, path: str) -> None:
        log = self.by_path.pop(path, None)
        if log is not None:
            log.names = tuple(name for name in log.names if name != path)

    def place(self, log: Log, change: Callable[[], None]) -> None:
        """Let `change` give a log another file."""
        self.release(log)
        change()
        if log.position.file != NOWHERE:
            self.by_file[log.position.file] = log
        self.save(log)

    def release(self, log: Log) -> None:
        """A log's file, which was not found, may be another log's by its number."""
        if self.by_file.get(log.position.file) is log:
            del self.by_file[log.position.file]

    def give_back(self, file: Inode) -> None:
        """A number that was another log's by mistake is that of the log, if any, that was stored with it as well."""
        for log in self.logs.values():
            if log.position.file == file and not log.over:
                self.by_file[file] = log

    def save(self, log: Log) -> None:
        """A log's position has to be stored."""
        self._changed.add(log.key)
        self.stirred[log] = None

    def knows(self, log: Log) -> bool:
        """Whether a log is still followed."""
        return self.logs.get(log.key) is log

    def last_of(self, base: str) -> Position | None:
        """Where the last log of a path was read to, done with or not."""
        if base not in self._numbers:
            return None
        origin = origin_of(base, self._numbers[base])
        log = self.logs.get(self._prefix + origin)
        return log.position if log else self._done.get(origin)

    def logs_of(self, base: str) -> list[Log]:
        """The logs that are followed still, of the last few that were found under a path or have been called so."""
        keys = [self._prefix + origin for origin in self._last_origins(base)]
        return [self.logs[key] for key in keys if key in self.logs]

    def done_of(self, base: str) -> list[str]:
        """Origins of those among them that are done with."""
        return [origin for origin in self._last_origins(base) if origin in self._done]

    def _last_origins(self, base: str) -> list[str]:
        last = self._numbers.get(base, -1)
        origins = [origin_of(base, number) for number in range(last, max(-1, last - MAX_LOOKED_BACK), -1)]
        return origins + [origin for origin in self._called.get(base, ()) if origin not in origins]

    def kin_of(self, base: str) -> Iterator[Log]:
        """The logs that are followed, of those whose names rotation may have made of a path, or of what that was made of."""
        if self._kin is None:
            self._kin = {}
            for log in self.logs.values():
                self._add_kin(log)
        for name in {base, *(name for name in rotation.originals(base) if name in self._numbers)}:
            yield from (log for log in self._kin.get(name, ()) if self.knows(log))

    def finish(self, log: Log) -> None:
        """A log is done with."""
        log.drop_reader()
        self.drop(log)
        self._remember(log.origin, log.position)
        self._changed.add(self._prefix + _DONE + log.origin)

    def drop(self, log: Log) -> None:
        """Forget a log as if it had not been one."""
        for path in log.names:
            self.unname(path)
        self._uncall(log.origin, log.position)
        self.release(log)
        del self.logs[log.key]
        self.save(log)

    def done_with(self, path: str, file: Inode) -> Iterator[str]:
        """Origins of logs that were done with and that a file may be.

        By inode; by path after a mount came back; and those that were given up, whose bytes may turn up after all.
        """
        yield from list(self._done_by_file.get(file, ()))
        last = origin_of(path, self._numbers.get(path, 0))
        if last in self._done and self._done[last].inode == file[1]:
            yield last
        for origin in self._last_origins(path):
            if origin in self._done and self._done[origin].file == NOWHERE:
                yield origin

    def done_position(self, origin: str) -> Position:
        return self._done[origin]

    def written_at(self, modified: int) -> Iterator[Position]:
        """Where logs were read to, done with or not, that were last written to at a time; one in whole seconds is that of
        all within the second, as an archive keeps it.
        """
        yield from self._index()[0].get(modified, ())

    def read_to(self, length: int) -> Iterator[Position]:
        """Where logs were read to, done with or not, if that is so far (modulo 2**32, as gzip tells it)."""
        yield from self._index()[1].get(length, ())

    def _index(self) -> tuple[Index, Index]:
        if self._indexes is None:
            by_time, by_length = self._indexes = {}, {}
            for time, position in [
                *((log.modified, log.position) for log in self.logs.values()),
                *((position.modified, position) for position in self._done.values()),
            ]:
                for key in {time, time // _SECOND_NS * _SECOND_NS}:
                    by_time.setdefault(key, []).append(position)
                by_length.setdefault(position.offset % 2**32, []).append(position)
        return self._indexes

    def revive(self, origin: str, now: float) -> Log:
        """A log that was done with goes on."""
        position = self._done[origin]
        self._forget_done(origin)
        log = self._add(origin, position)
        log.grew = now
        self.save(log)
        return log

    def unsaved(self) -> dict[str, str | None]:
        self._told |= self._changed
        self._changed = set()
        return {key: self._row(key) for key in self._told}

    def saved(self) -> None:
        self._told = set()

    def _row(self, key: str) -> str | None:
        if key in self.logs:
            return _to_json(self.logs[key].position)
        rest = key.removeprefix(self._prefix)
        if rest == _FIRST:
            return "{}" if self.first else None
        if rest == _SINCE:
            return str(self.since)
        if rest.startswith(_REFUSED):
            return self.refused.get(restored(rest.removeprefix(_REFUSED)))
        done = self._done.get(rest.removeprefix(_DONE)) if rest.startswith(_DONE) else None
        return _to_json(done) if done else None

    def _parsed(self, key: str, text: str) -> Position | None:
        rest = key.removeprefix(self._prefix)
        if rest == key or rest in (_FIRST, _SINCE) or rest.startswith(_REFUSED):
            return None
        try:
            return _with_paths(from_json(Position, text), restored)
        except ValueError:
            self.unreadable_rows.append(key)
            self._changed.add(key)
            return None

    def _add(self, origin: str, position: Position) -> Log:
        base, number = split_origin(origin)
        log = Log(self._prefix + origin, origin, base, number, position, job=self._job_of(base))
        self.logs[log.key] = log
        self._call(origin, position)
        if self._kin is not None:
            self._add_kin(log)
        self.born.append(log)
        self.stirred[log] = None
        if position.file != NOWHERE:
            self.by_file[position.file] = log
        self._numbers[base] = max(self._numbers.get(base, 0), number)
        return log

    def _add_kin(self, log: Log) -> None:
        assert self._kin is not None
        for name in {log.base, *rotation.originals(log.base)}:
            self._kin.setdefault(name, []).append(log)

    def _call(self, origin: str, position: Position) -> None:
        for path in position.called:
            self._called.setdefault(path, {})[origin] = None

    def _uncall(self, origin: str, position: Position) -> None:
        for path in position.called:
            origins = self._called.get(path, {})
            origins.pop(origin, None)
            if not origins:
                self._called.pop(path, None)

    def _remember(self, origin: str, position: Position) -> None:
        base, number = split_origin(origin)
        self._done[origin] = position
        self._call(origin, position)
        self._numbers[base] = max(self._numbers.get(base, 0), number)
        if position.file != NOWHERE:
            self.lingering[origin] = None
            if len(self.lingering) > MAX_LINGERING:
                del self.lingering[next(iter(self.lingering))]
            self._done_by_file.setdefault(position.file, []).append(origin)
        while len(self._done) > MAX_DONE:
            oldest = next(iter(self._done))
            self._know_since(max(self.since, self._done[oldest].modified))
            self._forget_done(oldest)

    def _forget_done(self, origin: str) -> None:
        position = self._done.pop(origin)
        self._uncall(origin, position)
        self.lingering.pop(origin, None)
        same_file = self._done_by_file.get(position.file, [])
        if origin in same_file:
            same_file.remove(origin)
            if not same_file:
                del self._done_by_file[position.file]
        base, number = split_origin(origin)
        if self._numbers.get(base) == number and self._prefix + origin not in self.logs:
            del self._numbers[base]
        self._changed.add(self._prefix + _DONE + origin)


def _to_json(position: Position) -> str:
    return to_json(_with_paths(position, storable))


def _with_paths(position: Position, change: Callable[[str], str]) -> Position:
    called = tuple(change(path) for path in position.called)
    return replace(position, path=change(position.path), place=change(position.place), called=called)
