"""Incidents: which matches belong together. Knows nothing of causes, files or clocks.

Matches of one signature and scope are one incident while the silence between them is shorter than the window. Merging
is associative and commutative, so any order of arrival gives the same incidents: online and offline agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from exporter.core.decoding.jobs import name_of
from exporter.core.facts.pci import normalise_pci
from exporter.core.model import KEPT_MATCHES, Action, Incident, Match, Verdict

Key = tuple[str, str, str | None, bool]  # scope, signature, GPU, whether the vendor's table calls it critical
# Where an incident is found: its scope or its source (a scope's name has a space), and what GPU it names: an address,
# NO_GPU, or ANY_GPU for all that are there.
Place = tuple[str, str]
Cell = tuple[Place, int, int]  # place; length as level; number

ANY_GPU, NO_GPU = "any", "none"
KEPT_RANKS = 4096  # ranks named in a record; the number of lines stays exact beyond it
MAX_OPEN = 4096  # incidents that wait to settle, or that may still grow: 8 MiB; 10,000 a minute are 2,500 in 15 s
_ROUNDING = 0.001  # seconds: differences of times round, and at the edge of a cell that would matter


def scope_of(match: Match) -> str:
    """Whose episode a match belongs to: one boot of a kernel, a job, or a log where the job is not known."""
    if match.source == "kernel":
        return f"kernel {match.origin}"
    return name_of(match.job, match.path) if match.job else f"log {match.path}"


def condense(matches: Iterable[Match], window: float) -> list[Incident]:
    """The incidents of some matches taken by themselves: a flood of lines becomes a few values in one pass."""
    by_key: dict[Key, list[Match]] = {}
    for match in matches:
        gpu = match.gpu if match.source == "kernel" else None
        by_key.setdefault((scope_of(match), match.signature, gpu, match.grave), []).append(match)
    incidents = []
    for key, found in by_key.items():
        found.sort(key=lambda m: (m.order, m.origin))
        start, last = 0, found[0].last_time
        for index, match in enumerate(found):
            if match.time - last > window:
                incidents.append(_of(key, found[start:index], last))
                start = index
            last = max(last, match.last_time)
        incidents.append(_of(key, found[start:], last))
    return incidents


def _of(key: Key, matches: Sequence[Match], last_time: float) -> Incident:
    """The incident of matches in canonical order without a long silence between them."""
    return Incident(
        scope=key[0],
        signature=key[1],
        gpu=key[2],
        matches=tuple(_alone(match) for match in matches[:KEPT_MATCHES]),
        lines=sum(match.lines for match in matches),
        last_time=last_time,
        first_read=min(m.read_at for m in matches),
        last_read=max(m.read_at for m in matches),
        ranks=_bounded(frozenset(m.rank for m in matches if m.rank).union(*(m.ranks for m in matches))),
        grave=key[3],
    )


def _alone(match: Match) -> Match:
    """A match without those that it stood for, which its incident has counted."""
    return match if match.lines == 1 else replace(match, lines=1, until=None, ranks=frozenset())


def merge(a: Incident, b: Incident) -> Incident:
    """Both as one incident. Neither the order of the two nor that of earlier merges matters."""
    matches = sorted(
        {(m.order, m.origin): m for m in (*a.matches, *b.matches)}.values(), key=lambda m: (m.order, m.origin)
    )
    return replace(
        a,
        matches=tuple(matches[:KEPT_MATCHES]),
        lines=a.lines + b.lines,
        last_time=max(a.last_time, b.last_time),
        first_read=min(a.first_read, b.first_read),
        last_read=max(a.last_read, b.last_read),
        ranks=_bounded(a.ranks | b.ranks),
    )


def _bounded(ranks: frozenset[str]) -> frozenset[str]:
    return ranks if len(ranks) <= KEPT_RANKS else frozenset(sorted(ranks)[:KEPT_RANKS])


def touch(a: Incident, b: Incident, window: float) -> bool:
    """Whether the silence between two incidents is at most `window` seconds."""
    return a.first.time - b.last_time <= window and b.first.time - a.last_time <= window


def near(a: Incident, b: Incident, window: float, *, live: bool = True) -> bool:
    """Whether one may explain the other: close in time, of one scope or one of them the kernel's, of no two GPUs.

    Between a job and the kernel, times decide. `live` says that the time of reading will do where a log has none.
    """
    if not touch(a, b, window):
        return False
    if a.scope != b.scope:
        if a.first.source == b.first.source:
            return False
        if not live and "observed" in (a.first.time_source, b.first.time_source):
            return False
    gpu_a, gpu_b = gpu_of(a), gpu_of(b)
    return gpu_a is None or gpu_b is None or gpu_a == gpu_b


def gpu_of(incident: Incident) -> str | None:
    """The GPU that an incident names: the kernel's by its key, a job's by the first match that knows one."""
    return incident.gpu or next((m.gpu for m in incident.matches if m.gpu), None)


def device_of(incident: Incident) -> str | None:
    """The PCI address that an incident names: of a GPU, or of another device."""
    devices = (normalise_pci(m.captures["device"]) for m in incident.matches if "device" in m.captures)
    return gpu_of(incident) or next((device for device in devices if device), None)


def group(matches: Iterable[Match], window: float) -> list[Incident]:
    """The incidents of a finished set of matches, in canonical order."""
    episodes = OpenIncidents(window)
    for incident in condense(matches, window):
        episodes.join(incident)
    return sorted((entry.incident for entry in episodes), key=lambda i: (i.order, i.first.origin))


@dataclass(frozen=True, slots=True)
class Reported:
    """What has been counted and journalled of an incident. Later evidence changes none of it but `lines`."""

    id: str
    root_id: str
    role: Literal["root", "cascade", "context"]
    root_cause: str
    lines: int
    verdict: Verdict = "unclear"  # this and what follows: of later versions
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An open incident; `told` once it has settled: it has been counted and will not be again."""

    number: int
    incident: Incident
    told: Reported | None = None

    @property
    def order(self) -> tuple[tuple[float, str, int, str], str]:
        """Sorts incidents the same way whatever order they arrived in."""
        return (self.incident.order, self.incident.first.origin)


class Row(NamedTuple):
    """An entry in its place in the canonical order, with what decides whether it is near."""

    order: tuple[tuple[float, str, int, str], str]
    number: int
    entry: Entry
    first: float
    last: float
    stamped: bool


class OpenIncidents:
    """The incidents that more matches may still join. Holds values; only this collection changes.

    Found by place (a scope, or all of a source) and by time, so that each of 10,000 costs no more than one of ten: an
    incident is entered in the one or two cells that it lies in, cells of the smallest power of two windows that is
    longer than it. Times are what users write into logs: an incident may last for a century.
    """

    def __init__(self, window: float, entries: Iterable[Entry] = (), *, live: bool = True) -> None:
        self.window = window
        self._live = live
        self._entries: dict[int, Entry] = {}
        self._waiting: dict[int, None] = {}  # the numbers of those that have not been told of
        self._cells: dict[Cell, set[int]] = {}
        self._levels: set[int] = set()  # the lengths of cells that were ever in use, as powers of two windows
        self._changed: set[int] = set()
        self._rows: dict[tuple[Place, tuple[range, ...]], list[Row]] = {}
        self._number = 0
        self._first_waiting = self._first_settled = math.inf  # no one has been waiting, or is settled, for longer
        for entry in entries:
            self._number = max(self._number, entry.number)
            self._put(entry)
        self._changed.clear()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> list[Entry]:
        """Those that have not been told of."""
        return [self._entries[number] for number in self._waiting]

    def join(self, incident: Incident) -> None:
        """Let new matches join the incident that they belong to, or start one. They may join two that were apart."""
        told, number = None, 0
        for other in self._around(incident, (incident.scope, _gpu_in_key(incident))):
            if other.incident.key == incident.key and touch(other.incident, incident, self.window):
                incident = merge(other.incident, incident)
                told = _first_told(told, other.told)
                if number:
                    self.take(other)
                number = number or other.number
        if not number:
            self._number += 1
            number = self._number
        self._put(Entry(number, incident, told))

    def near(self, entry: Entry) -> list[Entry]:
        """The other open incidents that may explain this one, or be explained by it, in canonical order."""
        a = entry.incident
        gpu, first, last, window = gpu_of(a), a.first.time, a.last_time, self.window
        runs: list[list[Row]] = []
        for base in (a.scope, _OTHER_SOURCE[a.first.source]):
            any_time = base == a.scope or self._live  # as `near` has it
            if not any_time and a.first.time_source == "observed":
                continue
            for names in (gpu, NO_GPU) if gpu else (ANY_GPU,):
                run = [
                    row
                    for row in self._rows_around(a, (base, names))
                    if first - row.last <= window and row.first - last <= window and (any_time or row.stamped)
                ]
                if run:
                    runs.append(run)
        rows = runs[0] if len(runs) == 1 else sorted(itertools.chain.from_iterable(runs))
        return [row.entry for row in rows if row.number != entry.number]

    def due(self, now: float, settle: float) -> list[Entry]:
        """Incidents to settle: those whose first match is `settle` seconds old, with all that they are near to; and in a
        storm the oldest. An age below zero counts as an age: a clock set back must not silence anybody.
        """
        too_many = max(0, len(self._waiting) - MAX_OPEN)
        if not self._waiting or not (too_many or abs(now - self._first_waiting) >= settle):
            return []
        waiting = sorted(self.waiting, key=_is_of_kernel)  # in a storm of jobs' crashes the kernel's go last
        self._first_waiting = min(e.incident.first_read for e in waiting)
        ripe = [e for e in waiting[too_many:] if abs(now - e.incident.first_read) >= settle]
        return self._with_near(waiting[:too_many] + [e for e in ripe if not self._awaits_the_kernel(e, now, settle)])

    def _awaits_the_kernel(self, entry: Entry, now: float, settle: float) -> bool:
        """Whether a job's incident is better settled with a kernel's that is near and not ripe: it is, for so long again."""
        if _is_of_kernel(entry) or abs(now - entry.incident.first_read) >= 2 * settle:
            return False
        near = (e for e in self.near(entry) if e.told is None and _is_of_kernel(e))
        return any(abs(now - e.incident.first_read) < settle for e in near)

    def due_without(self, known: Container[str]) -> list[Entry]:
        """Incidents to settle before only the signatures that are `known` are left, with all that they are near to."""
        return self._with_near([e for e in self.waiting if e.incident.signature not in known])

    def _with_near(self, found: list[Entry]) -> list[Entry]:
        """These and all that are near to them, or to one that is. A job's line never hurries the kernel's."""
        due = {e.number: e for e in found}
        for entry in found:  # grows while it is walked: neighbours of neighbours settle together
            near = (e for e in self.near(entry) if e.told is None and e.number not in due)
            drawn = [e for e in near if _is_of_kernel(entry) or not _is_of_kernel(e)]
            due.update((e.number, e) for e in drawn)
            found += drawn
        return sorted(found, key=lambda e: e.order)

    def tell(self, entry: Entry, told: Reported) -> None:
        """Remember what has been told of an incident."""
        self._put(replace(entry, told=told))

    def leaving(self, now: float) -> list[Entry]:
        """The settled incidents that nothing can join any more; and in a storm the oldest."""
        if len(self) <= MAX_OPEN and abs(now - self._first_settled) <= self.window:
            return []
        settled = sorted((e for e in self if e.told), key=lambda e: e.incident.last_read)
        self._first_settled = settled[0].incident.last_read if settled else math.inf
        gone = [e for e in settled if abs(now - e.incident.last_read) > self.window]
        kept = [e for e in settled if abs(now - e.incident.last_read) <= self.window]
        kept.sort(key=_is_of_kernel)
        return gone + kept[: max(0, len(self) - len(gone) - MAX_OPEN)]

    def take(self, entry: Entry) -> None:
        """Let go of an incident."""
        self._leave_cells(entry)
        del self._entries[entry.number]
        self._waiting.pop(entry.number, None)
        self._changed.add(entry.number)

    def unsaved(self) -> dict[int, Entry | None]:
        """What changed since `saved`: the entry by its number, or None where it is gone."""
        return {number: self._entries.get(number) for number in self._changed}

    def saved(self) -> None:
        self._changed.clear()

    def _put(self, entry: Entry) -> None:
        """Take in an entry, or what became of it."""
        if entry.number in self._entries:
            self._leave_cells(self._entries[entry.number])
        self._rows.clear()
        for cell in self._cells_of(entry.incident):
            self._cells.setdefault(cell, set()).add(entry.number)
            self._levels.add(cell[1])
        self._entries[entry.number] = entry
        self._changed.add(entry.number)
        if entry.told is None:
            self._waiting[entry.number] = None
            self._first_waiting = min(self._first_waiting, entry.incident.first_read)
        else:
            self._waiting.pop(entry.number, None)
            self._first_settled = min(self._first_settled, entry.incident.last_read)

    def _leave_cells(self, entry: Entry) -> None:
        self._rows.clear()
        for cell in self._cells_of(entry.incident):
            self._cells[cell].discard(entry.number)
            if not self._cells[cell]:
                del self._cells[cell]

    def _cells_of(self, incident: Incident) -> list[Cell]:
        first, last = incident.first.time, incident.last_time
        level = max(0, math.frexp((last - first) / self.window)[1])
        return [
            (place, level, number)
            for place in itertools.product(
                (incident.scope, incident.first.source), (gpu_of(incident) or NO_GPU, ANY_GPU)
            )
            for number in self._numbers(level, first, last)
        ]

    def _around(self, incident: Incident, place: Place) -> list[Entry]:
        """The entries of a place that may lie within the window of an incident, each once."""
        beyond = self.window + _ROUNDING
        first, last = incident.first.time - beyond, incident.last_time + beyond
        found: set[int] = set()
        for level in self._levels:
            numbers = self._numbers(level, first, last)
            if len(numbers) > len(self):
                return [entry for entry in self if place in _places(entry.incident)]
            found.update(*(self._cells.get((place, level, number), ()) for number in numbers))
        return [self._entries[number] for number in sorted(found)]

    def _rows_around(self, incident: Incident, place: Place) -> list[Row]:
        """The same with their orders, kept until something changes: in a storm thousands ask for the same ones."""
        beyond = self.window + _ROUNDING
        first, last = incident.first.time - beyond, incident.last_time + beyond
        key = (place, tuple(self._numbers(level, first, last) for level in self._levels))
        if key not in self._rows:
            self._rows[key] = sorted(_row(entry) for entry in self._around(incident, place))
        return self._rows[key]

    def _numbers(self, level: int, first: float, last: float) -> range:
        """The numbers of the cells of one length that a span of time lies in."""
        length = math.ldexp(self.window, level)
        return range(math.floor(first / length), math.floor(last / length) + 1)


def _row(entry: Entry) -> Row:
    i = entry.incident
    return Row(entry.order, entry.number, entry, i.first.time, i.last_time, i.first.time_source != "observed")


def _is_of_kernel(entry: Entry) -> bool:
    return entry.incident.first.source == "kernel"


def _places(incident: Incident) -> list[Place]:
    return list(itertools.product((incident.scope, incident.first.source), (gpu_of(incident) or NO_GPU, ANY_GPU)))


def _gpu_in_key(incident: Incident) -> str:
    """What GPU all incidents of its key name; a job's key holds none, though its matches may name one."""
    return ANY_GPU if incident.first.source == "job" else incident.gpu or NO_GPU


_OTHER_SOURCE: dict[str, str] = {"job": "kernel", "kernel": "job"}


def _first_told(a: Reported | None, b: Reported | None) -> Reported | None:
    """Of two incidents that turn out to be one, both counted already, the one with the smaller id lives on."""
    return min((t for t in (a, b) if t), key=lambda t: t.id, default=None)
