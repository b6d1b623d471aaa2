"""The logs of a source: which path leads to which, what becomes of them, and what of that is not stored yet.

Touches no file.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from exporter.core.model import Job
from exporter.core.text.stored_values import from_json, to_json
from exporter.sources.files.checkpoints import Checkpoints, split_origin
from exporter.sources.files.discovery import Globs
from exporter.sources.files.filesystem import monotonic
from exporter.sources.files.log import Log
from exporter.sources.files.skipped_files import StoredTexts
from exporter.sources.files.states import LogPosition

SECOND_NS = 10**9  # by less, a clock is corrected every now and then
MINUTE_NS = 60 * SECOND_NS  # in which ours is looked at a hundred times, and by which a server's may be ahead of it
MAX_DONE = 8192  # a node that sees 100,000 job logs a day remembers two hours of them, in 5 MB
MAX_PAUSED = 50_000  # of those that are there and not followed: as many as are followed, 30 MB

REFUSED = "refused:"  # paths, and why they are not read
RECHECKS = "vacated:"  # paths that are to be looked at, and since when others may have had them
_DONE = "done:"
_PAUSED = "paused:"
_FIRST = "first"
_SINCE = "since"
# Before a path that is not UTF-8: a log may be moved to any name. No other path begins so, as all are absolute.
_BYTES = "bytes:"


class SetBack:
    """Between which times the wall clock has been twice, since it was set back: of two files with times in there, nobody can
    tell which one was written first.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._low = self._high = now - MINUTE_NS

    def observe(self, now: int) -> None:
        """See what time it is."""
        if now < self._now - SECOND_NS:
            low, high = now - MINUTE_NS, self._now + MINUTE_NS
            again = low <= self._high and self._low <= high
            self._low, self._high = (min(self._low, low), max(self._high, high)) if again else (low, high)
        self._now = now

    def since(self, stamp: int) -> int:
        """The earliest time that a file can have which was written after one with the time `stamp`."""
        set_back_unseen = stamp > self._now + MINUTE_NS
        return self._low if set_back_unseen or self._low < stamp <= self._high else stamp


class Register:
    """All logs of one source. Keys begin with the source's name, so that they differ between sources."""

    def __init__(self, name: str, stored: Mapping[str, str], job_of: Callable[[str], Job | None]) -> None:
        self.table = Checkpoints()
        self.by_path: dict[str, Log] = {}
        self.unreadable_rows: list[str] = []
        self.added: list[Log] = []  # logs that nobody has been told of
        self.changed: dict[Log, None] = {}  # logs that something was done to
        self._prefix = f"{name}:"
        self._job_of = job_of
        self._set_back: SetBack | None = None
        self._unsaved_keys: dict[str, bool] = {}  # keys, and whether `unsaved` has reported them
        self.is_initial_scan = self._prefix + _FIRST in stored
        since = stored.get(self._prefix + _SINCE, "")
        self.since = int(since) if since.isdecimal() else 0
        self.texts = {kind: self._by_path(kind, stored) for kind in (REFUSED, RECHECKS)}
        positions = [
            (key, position) for key, text in stored.items() if (position := self._parsed(key, text)) is not None
        ]
        for key, position in sorted(positions, key=lambda item: item[1].modified):
            rest = key.removeprefix(self._prefix)
            if rest.startswith(_DONE):
                self._put_done(rest.removeprefix(_DONE), position)
            elif rest.startswith(_PAUSED):
                self.table.put(rest.removeprefix(_PAUSED), position, paused=True)
            else:
                log = self._add(rest, position)
                log.resume(confirmed=False)

    def start_initial_scan(self) -> None:
        """Record that existing files are being skipped, so that a crash does not make them new."""
        self.is_initial_scan = True
        self._mark_unsaved(self._prefix + _FIRST)

    def end_initial_scan(self) -> None:
        if self.is_initial_scan:
            self.is_initial_scan = False
            self._mark_unsaved(self._prefix + _FIRST)

    def start_poll(self, now: float) -> None:
        """From now on, if not for longer, files are looked at: one that was written since and is not known was not read.

        Who forgets a log forgets that up to its time.
        """
        now_ns = int(now * 1e9)
        self._set_back = self._set_back or SetBack(now_ns)
        self._set_back.observe(now_ns)
        self._know_since(self.since or now_ns)
        self.table.begin()

    def time_after(self, stamp: int) -> int:
        """The earliest time of files that were written after one with that time."""
        return self._set_back.since(stamp) if self._set_back else stamp

    def _know_since(self, since: int) -> None:
        if since != self.since:
            self.since = since
            self._mark_unsaved(self._prefix + _SINCE)

    def new(self, base: str, position: LogPosition, now: float) -> Log:
        return self._new_log(self.table.next_origin(base), position, now)

    def name(self, log: Log, path: str) -> None:
        """A path of the globs leads to a log."""
        self.unname(path)
        self.by_path[path] = log
        log.name(path)
        self.table.add_names(log.origin, log.position)

    def unname(self, path: str) -> None:
        log = self.by_path.pop(path, None)
        if log is not None:
            log.unname(path)

    def move(self, log: Log, change: Callable[[], None]) -> None:
        """Let `change` give a log another file."""
        self.release(log)
        change()
        self.table.set_file(log.origin, log.position)
        self.save(log)

    def release(self, log: Log) -> None:
        """A log's file, which was not found, may be another log's by its number."""
        self.table.release(log.origin, log.position)

    def save(self, log: Log) -> None:
        """A log's position has to be stored."""
        self._mark_unsaved(log.key)
        self.changed[log] = None

    def finish(self, log: Log) -> None:
        self.drop(log)
        self._put_done(log.origin, log.position)
        self._mark_unsaved(self._prefix + _DONE + log.origin)

    def pause(self, log: Log) -> None:
        """A log that stays where it is makes room for another; if there is more to read, as soon as there is room again."""
        self.drop(log)
        modified = 0 if log.unseen else log.stat.modified
        self.table.put(log.origin, replace(log.position, modified=modified), paused=True)
        self._mark_unsaved(self._prefix + _PAUSED + log.origin)
        for origin in self.table.longest_paused(MAX_PAUSED):
            self._mark_unsaved(self._prefix + _PAUSED + origin)
            self._mark_unsaved(self._prefix + _DONE + origin)
            self._put_done(origin, self.table.at(origin))

    def drop(self, log: Log) -> None:
        """Forget a log as if it had not been one."""
        log.close()
        for path in log.names:
            self.unname(path)
        self.table.remove(log.origin)
        self.save(log)

    def revive(self, origin: str, now: float) -> Log:
        """A log that was done with goes on."""
        for kind in (_DONE, _PAUSED):
            self._mark_unsaved(self._prefix + kind + origin)
        return self._new_log(origin, self.table.at(origin), now)

    def log(self, key: str) -> Log:
        log = self.table.get(key.removeprefix(self._prefix))
        assert isinstance(log, Log)
        return log

    def unsaved(self) -> dict[str, str | None]:
        self._unsaved_keys = dict.fromkeys(self._unsaved_keys, True)
        return {key: self._row(key) for key in self._unsaved_keys}

    def saved(self) -> None:
        self._unsaved_keys = {key: is_reported for key, is_reported in self._unsaved_keys.items() if not is_reported}

    def _mark_unsaved(self, key: str) -> None:
        self._unsaved_keys[key] = False

    def _row(self, key: str) -> str | None:
        rest = key.removeprefix(self._prefix)
        if rest == _FIRST:
            return "{}" if self.is_initial_scan else None
        if rest == _SINCE:
            return str(self.since)
        for kind, texts in self.texts.items():
            if rest.startswith(kind):
                return texts.get(restored(rest.removeprefix(kind)))
        kind = next((kind for kind in (_DONE, _PAUSED) if rest.startswith(kind)), "")
        origin = rest.removeprefix(kind)
        row = self.table.get(origin)
        if kind and (kind == _PAUSED) != self.table.is_paused(origin):
            return None
        if kind:
            return _to_json(row) if isinstance(row, LogPosition) else None
        return _to_json(row.position) if isinstance(row, Log) else None

    def _by_path(self, kind: str, stored: Mapping[str, str]) -> StoredTexts:
        prefix = self._prefix + kind
        texts = {restored(key.removeprefix(prefix)): text for key, text in stored.items() if key.startswith(prefix)}
        return StoredTexts(texts, lambda path: self._mark_unsaved(prefix + storable(path)))

    def _parsed(self, key: str, text: str) -> LogPosition | None:
        rest = key.removeprefix(self._prefix)
        if rest == key or rest in (_FIRST, _SINCE) or rest.startswith((REFUSED, RECHECKS)):
            return None
        try:
            return _with_paths(from_json(LogPosition, text), restored)
        except ValueError:
            self.unreadable_rows.append(key)
            self._mark_unsaved(key)
            return None

    def _add(self, origin: str, position: LogPosition) -> Log:
        base, _ = split_origin(origin)
        log = Log(self._prefix + origin, origin, base, position, job=self._job_of(base))
        self.table.put(origin, log)
        self.added.append(log)
        self.changed[log] = None
        return log

    def _new_log(self, origin: str, position: LogPosition, now: float) -> Log:
        log = self._add(origin, position)
        log.mark_grown(now)
        self.save(log)
        return log

    def _put_done(self, origin: str, position: LogPosition) -> None:
        self.table.put(origin, position)
        for forgotten, at in self.table.forget_oldest_done(MAX_DONE):
            self._know_since(max(self.since, at.modified))
            self._mark_unsaved(self._prefix + _DONE + forgotten)


class Recheck(NamedTuple):
    """A path that led to a log; files that were there since its last log was `modified` may be unread.

    since: of the monotonic clock; other files may have been moved on from the path since.
    """

    log: Log | None  # None after a restart
    modified: int | None  # None if the path had no log before
    since: float


class RecheckQueue:
    """Paths to check again for files that were there unseen. Stored, so that a later process checks them first."""

    def __init__(self, register: Register, globs: Globs) -> None:
        self._stored = register.texts[RECHECKS]
        self._globs = globs
        self._pending = {
            path: Recheck(None, int(modified) if modified.isdecimal() else None, monotonic())
            for path, modified in self._stored.items()
        }

    def add(self, path: str, log: Log | None, modified: int | None) -> None:
        """Check a path that leads to `log`, or did; if it is queued, the earlier time counts."""
        if log is not None and not self._globs.match(path):
            path = log.base
        since = monotonic()
        pending = self._pending.get(path)
        if pending is None or (modified is not None and pending.modified is not None and modified < pending.modified):
            self._pending[path] = Recheck(log, modified, since)
        else:
            self._pending[path] = pending._replace(since=since)

    def add_left(self, path: str, log: Log) -> None:
        """Check a path that led to a log as it is known now."""
        self.add(path, log, log.position.modified)

    def pop(self) -> Iterator[tuple[str, Recheck]]:
        """All that are queued, and what is added meanwhile, but no path twice: a folder may change all the time."""
        again: dict[str, Recheck] = {}
        popped = set()
        while self._pending:
            path, recheck = self._pending.popitem()
            if path in popped:
                again[path] = recheck
            else:
                popped.add(path)
                yield path, recheck
        self._pending = again

    def store(self) -> None:
        """Let the register store what is queued still: in a folder that changes all the time, or after an error."""
        self._stored.become({path: str(recheck.modified or "") for path, recheck in self._pending.items()})


def _to_json(position: LogPosition) -> str:
    return to_json(_with_paths(position, storable))


def _with_paths(position: LogPosition, change: Callable[[str], str]) -> LogPosition:
    called = tuple(change(path) for path in position.called)
    return replace(position, path=change(position.path), place=change(position.place), called=called)


def storable(path: str) -> str:
    """A path as the state keeps it, which is in UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + os.fsencode(path).decode("latin-1")
    return path


def restored(text: str) -> str:
    """What `storable` was given; something else for what it never gave."""
    return os.fsdecode(text.removeprefix(_BYTES).encode("latin-1", "replace")) if text.startswith(_BYTES) else text
