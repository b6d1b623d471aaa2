"""Quarantine: which rules are not tried on which logs for a while, since they took too much time there.

A rule that is slow on the texts of one log stays enabled for all others: the writer of a log can disable a rule only
there. Knows no patterns; the clock that times searches is an argument.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

MAX_TIMEOUTS = 3  # of a rule on a log: with four tries each, a bad one costs 0.6 s of a block's time at most
SECONDS = 600.0  # then it is tried again: a slow pattern takes a thousandth of the time at most
SLOW_SECONDS = 0.0005  # of one search: of 7,385 searches in long ordinary lines one took longer, the mean 8 µs
LOG_SECONDS = 3.0  # of slow searches in one log: 6,000 of them at least. Then those rules are not tried there
MAX_LOGS = 1024  # that a rule has run out of time on; the one that was read longest ago is forgotten

_NONE: frozenset[str] = frozenset()


class Quarantined(NamedTuple):
    """A rule that is not tried on a log until a time."""

    id: str
    path: str
    until: float

    def __str__(self) -> str:
        return f"{self.id} takes too long on {self.path}: not searched for in this log until {self._time}Z"

    @property
    def unnamed(self) -> str:
        """The same without the log's name, which is its owner's."""
        return (
            f"{self.id} takes too long on a log: not searched for in it until {self._time}Z; the daemon's log names it"
        )

    @property
    def _time(self) -> str:
        return f"{datetime.fromtimestamp(self.until, UTC):%H:%M:%S}"


class _Entry(NamedTuple):
    id: str
    timeouts: int
    until: float


class Quarantine:
    """The rules and logs in question. Lines are read for one log at a time: `begin` says for which.

    A key stands for what is tried: the id of a rule, or one pattern of an echo.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`clock` tells seconds, from anywhere; without one, no search is timed."""
        self.clock = clock
        self._spent: dict[
            str, tuple[float, dict[str, tuple[str, float]]]
        ] = {}  # by log: since when; id, seconds by key
        self.timeouts: Counter[str] = Counter()  # by id
        self.unsure = 0  # verdicts that a timeout or a quarantine has a part in: none of them is to be remembered
        self.off = _NONE  # keys that are not to be tried on the log that is read
        self._log = self._path = ""
        self._now = 0.0
        self._logs: dict[str, tuple[str, dict[str, _Entry]]] = {}  # by log: its path, and its entries by key
        self._begun: list[Quarantined] = []

    def begin(self, log: str, path: str, now: float) -> None:
        """The lines that come next are those of a log."""
        self._log, self._path, self._now = log, path, now
        if log not in self._logs:
            self.off = _NONE
            return
        _, entries = self._logs.pop(log)
        entries = {key: entry for key, entry in entries.items() if _holds(entry, now)}
        if entries:
            self._logs[log] = path, entries
        self.off = frozenset(key for key, entry in entries.items() if entry.timeouts >= MAX_TIMEOUTS)

    def is_off(self, key: str) -> bool:
        """Whether something is not to be tried; to ask says that it would have been."""
        if key not in self.off:
            return False
        self.unsure += 1
        return True

    def ran_out(self, key: str, id: str) -> None:  # noqa: A002 (the field's word)
        """A search ran out of time in the log that is read."""
        self.timeouts[id] += 1
        self.unsure += 1
        path, entries = self._logs.setdefault(self._log, (self._path, {}))
        before = entries[key].timeouts if key in entries else 0
        entries[key] = _Entry(id, before + 1, self._now + SECONDS)
        if before + 1 == MAX_TIMEOUTS:
            self._begin(key, entries[key], path)
        _drop_oldest(self._logs)

    def took(self, key: str, id: str, seconds: float) -> None:  # noqa: A002 (the field's word)
        """A search in the log that is read took so long, and came to its end."""
        if seconds < SLOW_SECONDS:
            return
        since, spent = self._spent.get(self._log, (self._now, {}))
        if not since <= self._now < since + SECONDS:
            since, spent = self._now, {}
        spent[key] = id, seconds + (spent[key][1] if key in spent else 0.0)
        self._spent[self._log] = since, spent
        _drop_oldest(self._spent)
        if sum(seconds_spent for _, seconds_spent in spent.values()) > LOG_SECONDS:
            del self._spent[self._log]
            path, entries = self._logs.setdefault(self._log, (self._path, {}))
            for slow, (name, _) in spent.items():
                entries[slow] = _Entry(name, MAX_TIMEOUTS, self._now + SECONDS)
                self._begin(slow, entries[slow], path)
            _drop_oldest(self._logs)

    def _begin(self, key: str, entry: _Entry, path: str) -> None:
        self.off |= {key}
        self._begun.append(Quarantined(entry.id, path, entry.until))

    def begun(self) -> tuple[Quarantined, ...]:
        """What was quarantined since this was last asked."""
        begun, self._begun = tuple(self._begun), []
        return begun

    def at(self, now: float) -> tuple[Quarantined, ...]:
        """What is quarantined."""
        return tuple(
            Quarantined(entry.id, path, entry.until)
            for path, entries in self._logs.values()
            for entry in entries.values()
            if entry.timeouts >= MAX_TIMEOUTS and _holds(entry, now)
        )

    def forget(self, log: str) -> None:
        """A log is gone."""
        self._logs.pop(log, None)
        self._spent.pop(log, None)


def _drop_oldest(logs: dict[str, Any]) -> None:
    if len(logs) > MAX_LOGS:
        del logs[next(iter(logs))]


def _holds(entry: _Entry, now: float) -> bool:
    return entry.until - SECONDS <= now < entry.until  # a clock that was set back holds nothing back for longer
