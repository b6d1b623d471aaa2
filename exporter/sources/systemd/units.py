"""Output of systemd units in the journal, as one log per unit. Uses `exporter.sources.systemd.libsystemd`."""

import fnmatch
import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from exporter.core.model import Chunk
from exporter.sources.backlog import Backlog, changes
from exporter.sources.base import SourceStats
from exporter.sources.node_jobs import NodeJobs
from exporter.sources.systemd.libsystemd import JournalEntry, JournalReader, OpenJournal, SystemdJournal

ENTRIES_A_POLL = 1000  # an entry costs 50 to 100 microseconds of libsystemd and Python
BACKLOG_BYTES = 4 << 20  # of all units together
MAX_UNITS = 1024  # whose positions are kept: as many scopes as a large node has jobs and services
RETRY_SECONDS = 30.0
LAST_US = 253_402_300_799_999_999  # the end of the year 9999: a stamp beyond it is forged, and no date
_CURSOR = "cursor"  # the key of its position; every other key is a log's name


@dataclass(slots=True)
class _Held:
    """An entry with unconsumed lines: `done` lines are consumed, `left` are not. cursor: the position after it."""

    log: str
    cursor: str
    done: int
    left: int


@dataclass(slots=True)
class _Unit:
    """The log of one unit. consumed: how many of its next lines a previous process has consumed."""

    backlog: Backlog[_Held]
    consumed: int = 0


class JournaldSource:
    """The logs of all units, read with one cursor, which is just before the first unconsumed entry.

    The number of lines of each unit that are consumed after the cursor is stored with it, so a restart repeats none.
    """

    def __init__(
        self,
        units: Sequence[str],
        stored: Mapping[str, str],
        *,
        open_journal: OpenJournal = SystemdJournal,
        node_jobs: NodeJobs | None = None,
    ) -> None:
        self._node_jobs = node_jobs or NodeJobs()
        self.name = "journald"
        self.stats = SourceStats()
        self.overwritten = False
        self._globs = tuple(units)
        self._open_journal = open_journal
        self._journal: JournalReader | None = None
        self._rested: float | None = None
        self._current = self._saved = dict(stored)
        self._cursor = self._read_to = stored.get(_CURSOR, "")
        self._units = {log: _stored_unit(text) for log, text in stored.items() if log != _CURSOR}
        self._held: deque[_Held] = deque()
        self._polled = 0.0

    def poll(self, now: float) -> Sequence[Chunk]:
        was_open = self._journal is not None
        try:
            if not was_open and (self._rested is None or not 0 <= now - self._rested < RETRY_SECONDS):
                self._open()
            if self._journal:
                self._read(self._journal, now)
        except OSError as error:
            self.close()
            self.stats.down_reason = (
                f"{error.strerror or error}; needs the group systemd-journal and the host's journal"
            )
            self._rested = None if was_open else now  # "Bad message" comes and goes with rotation (systemd#36247)
        self._polled = now
        self._measure()
        shares = self._node_jobs.several()
        units = self._units.items()
        return [chunk for log, unit in units if (chunk := _chunk(log, unit.backlog, now, shares_node=shares))]

    def advance(self, log: str, consumed: int, lines: int) -> None:
        for held in self._units[log].backlog.advance(consumed, lines):
            held.done, held.left = held.done + 1, held.left - 1
        self._pass_by()
        self._measure()

    def unsaved(self) -> Mapping[str, str | None]:
        done: Counter[str] = Counter()
        for held in self._held:
            done[held.log] += held.done
        self._current = {
            log: json.dumps([unit.backlog.offset, unit.backlog.line, done[log] + unit.consumed])
            for log, unit in self._units.items()
        }
        if self._cursor:
            self._current[_CURSOR] = self._cursor
        return changes(self._current, self._saved)

    def saved(self) -> None:
        self._saved = self._current

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        if self._journal:
            self._journal.close()
        self._journal, self.stats.up = None, False

    def _open(self) -> None:
        self._journal = self._open_journal(None, None)
        if not self._read_to:
            self._cursor = self._read_to = self._journal.seek_end()
        elif not self._journal.seek(self._read_to):
            self.stats.drop("cursor_gone")
            for unit in self._units.values():
                unit.consumed = 0
        self._rested, self.stats.up, self.stats.down_reason = None, True, ""

    def _read(self, journal: JournalReader, now: float) -> None:
        room = BACKLOG_BYTES - sum(len(unit.backlog) for unit in self._units.values())
        for _ in range(ENTRIES_A_POLL):
            entry = journal.next() if room > 0 else None
            if entry is None:
                return
            room -= self._take(entry, now)
            self._read_to, self.stats.last_read = entry.cursor, now

    def _take(self, entry: JournalEntry, now: float) -> int:
        """Buffer the lines of an entry, if one of the units wrote it. Returns their number of bytes."""
        name = entry.fields.get("_SYSTEMD_UNIT", "")
        if not any(fnmatch.fnmatchcase(name, glob) for glob in self._globs):
            self._leave_out(entry.cursor)
            return 0
        log, lines = f"journal:{name}", cri_lines(entry)
        unit = self._units.get(log) or self._new_unit(log)
        consumed = min(unit.consumed, len(lines))
        unit.consumed -= consumed
        held = _Held(log, entry.cursor, consumed, len(lines) - consumed)
        self._held.append(held)
        for line in lines[consumed:]:
            unit.backlog.add(line, held, now)
        self._pass_by()
        size = sum(map(len, lines[consumed:]))
        self.stats.bytes_read += size
        return size

    def _measure(self) -> None:
        self.stats.files = len(self._units)
        self.stats.lag_bytes = sum(len(unit.backlog) for unit in self._units.values())
        self.stats.lag_seconds = max((unit.backlog.age(self._polled) for unit in self._units.values()), default=0.0)

    def _leave_out(self, cursor: str) -> None:
        """Skip an irrelevant entry together with the one before it."""
        if self._held:
            self._held[-1].cursor = cursor
        else:
            self._cursor = cursor

    def _pass_by(self) -> None:
        while self._held and not self._held[0].left:
            self._cursor = self._held.popleft().cursor

    def _new_unit(self, log: str) -> _Unit:
        if len(self._units) >= MAX_UNITS:
            held = {entry.log for entry in self._held}
            idle = [name for name, unit in self._units.items() if name not in held and not unit.consumed]
            for oldest in idle[:1]:
                del self._units[oldest]
        unit = self._units[log] = _Unit(Backlog())
        return unit


def cri_lines(entry: JournalEntry) -> list[bytes]:
    """The lines of an entry's message in CRI format."""
    seconds, us = divmod(min(entry.realtime_us, LAST_US), 1_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{us:06d}Z"
    texts = entry.fields.get("MESSAGE", "").split("\n")
    return [f"{stamp} stdout F {text}\n".encode("utf-8", "backslashreplace") for text in texts]


def _chunk(log: str, backlog: Backlog[_Held], now: float, *, shares_node: bool) -> Chunk | None:
    end = backlog.due(now)
    if end is None:
        return None
    return Chunk(
        log=log,
        origin=log,
        path=log,
        source="job",
        format="cri",
        offset=backlog.offset,
        line=backlog.line,
        data=backlog.data,
        read_at=now,
        end=end,
        shares_node=shares_node,
    )


def _stored_unit(text: str) -> _Unit:
    try:
        offset, line, consumed = map(int, json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _Unit(Backlog())
    return _Unit(Backlog(offset, line), consumed)
