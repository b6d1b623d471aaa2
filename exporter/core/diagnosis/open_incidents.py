"""The open incidents: what more matches may still join, indexed so that a storm costs no more for each than ten do.

Knows nothing of causes, files or clocks.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from exporter.core.diagnosis.incidents import (
    NO_REPEATS,
    are_on_two_gpus,
    condense,
    gpu_of,
    jobs_of,
    lent_process,
    merge,
    shares_job,
    within_window,
)
from exporter.core.model import Action, Domain, Incident, Match, Verdict
from exporter.core.shares import most_first

IndexKey = tuple[str, str]  # scope or source (a scope contains a space); GPU address, NO_GPU, or ANY_GPU for all
IndexCell = tuple[IndexKey, int, int]  # key, length of the cell as a level, number of the cell

ANY_GPU, NO_GPU = "any", "none"
MAX_OPEN = 4096  # unsettled or growing incidents: 8 MiB; 10,000 a minute are 2,500 in 15 s
_ROUNDING = 0.001  # seconds; protects against rounding at the edge of a cell
_OTHER_SOURCE: dict[str, str] = {"job": "kernel", "kernel": "job"}


def group(matches: Iterable[Match], window: float, repeats: Mapping[str, float] = NO_REPEATS) -> list[Incident]:
    """The incidents of a finished set of matches, in canonical order."""
    incidents = OpenIncidents(window, repeats=repeats)
    for incident in condense(matches, window, repeats):
        incidents.join(incident)
    return [entry.incident for entry in sorted(incidents, key=lambda e: e.order)]


@dataclass(frozen=True, slots=True)
class Reported:
    """What was counted and journalled of an incident. Later evidence changes only `lines`."""

    id: str
    root_id: str
    role: Literal["root", "cascade", "context"]
    root_cause: str
    lines: int
    verdict: Verdict = "unclear"  # this and the next fields were added in later versions
    action: Action | None = None
    domain: Domain = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """An open incident; `reported` is set once it has settled and was counted."""

    number: int
    incident: Incident
    reported: Reported | None = None

    @property
    def order(self) -> tuple[tuple[float, str, int, str], str]:
        """A sort key that does not depend on the order of arrival."""
        return (self.incident.order, self.incident.first.origin)


class IndexedEntry(NamedTuple):
    """An entry with its sort key and the values that decide whether it is nearby."""

    order: tuple[tuple[float, str, int, str], str]
    number: int
    entry: Entry
    first: float
    last: float
    stamped: bool


LinkedOf = Callable[[Entry], Sequence[Entry]]  # the incidents that may explain one, or be explained by it


class OpenIncidents:
    """The incidents that more matches may still join.

    They are indexed by scope, source, GPU and time, so 10,000 incidents cost no more each than ten. An incident is in
    one or two cells; the length of a cell is the smallest power of two windows that exceeds the incident. Users write
    the times in logs: an incident may last for a century.
    """

    def __init__(
        self,
        window: float,
        entries: Iterable[Entry] = (),
        *,
        live: bool = True,
        repeats: Mapping[str, float] = NO_REPEATS,
    ) -> None:
        self.window = window
        self.repeats = repeats
        self._live = live
        self._entries: dict[int, Entry] = {}
        self._waiting: dict[int, None] = {}  # numbers of unreported entries
        self._cells: dict[IndexCell, set[int]] = {}
        self._levels: set[int] = set()  # lengths of cells ever used, as powers of two windows
        self._changed: set[int] = set()
        self._rows: dict[tuple[IndexKey, tuple[range, ...]], list[IndexedEntry]] = {}
        self._raisers: dict[tuple[str, str], Incident] = {}  # by scope and block: whose process raised it
        self._number = 0
        self._first_waiting = self._first_settled = math.inf  # lower bounds of the times of reading
        for entry in entries:
            self._number = max(self._number, entry.number)
            self._put(entry)
            self._note_raiser(entry.incident)
        self._changed.clear()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> list[Entry]:
        """The unreported entries."""
        return [self._entries[number] for number in self._waiting]

    def join(self, incident: Incident) -> None:
        """Add new matches to their open incident, or open one. They may connect two open incidents."""
        self._join(incident, None)

    def _join(self, incident: Incident, reported: Reported | None) -> None:
        if raiser := self._raisers.get((incident.scope, incident.raised_by or "")):
            incident = lent_process(incident, raiser)
        number, silence = 0, self._silence_in(incident)
        for other in self._around(incident, (incident.scope, _gpu_in_key(incident)), silence):
            if other.incident.key == incident.key and within_window(other.incident, incident, silence):
                incident = merge(other.incident, incident)
                reported = _earlier_report(reported, other.reported)
                if number:
                    self.remove(other)
                number = number or other.number
        if not number:
            self._number += 1
            number = self._number
        self._put(Entry(number, incident, reported))
        for block in self._note_raiser(incident):
            for entry in self._around(incident, (incident.scope, _gpu_in_key(incident)), self.window):
                if entry.incident.raised_by == block:
                    self.remove(entry)
                    self._join(entry.incident, entry.reported)

    def _note_raiser(self, incident: Incident) -> list[str]:
        """The blocks whose process an incident tells, as far as that is news."""
        news = [block for block in sorted(incident.closes) if (incident.scope, block) not in self._raisers]
        self._raisers.update({(incident.scope, block): incident for block in news})
        return news

    def nearby(self, entry: Entry) -> list[Entry]:
        """The other open incidents that may explain this one or be explained by it, sorted."""
        a = entry.incident
        gpu, first, last, window = gpu_of(a), a.first.time, a.last_time, self.window
        runs: list[list[IndexedEntry]] = []
        for base in (a.scope, _OTHER_SOURCE[a.first.source]):
            any_time = base == a.scope or self._live  # the rule of `may_explain`
            if not any_time and not a.first.is_stamped:
                continue
            has_jobs = base == a.scope and a.raised_by is not None and bool(jobs_of(a))
            for names in (gpu, NO_GPU) if gpu and not has_jobs else (ANY_GPU,):
                run = [
                    row
                    for row in self._rows_around(a, (base, names))
                    if first - row.last <= window
                    and row.first - last <= window
                    and (any_time or row.stamped)
                    and (
                        not has_jobs or not are_on_two_gpus(a, row.entry.incident) or shares_job(a, row.entry.incident)
                    )
                ]
                if run:
                    runs.append(run)
        rows = runs[0] if len(runs) == 1 else sorted(itertools.chain.from_iterable(runs))
        return [row.entry for row in rows if row.number != entry.number]

    def due(self, now: float, settle: float, linked: LinkedOf) -> list[Entry]:
        """The incidents to settle: those read `settle` seconds ago, with all linked; in a storm also the oldest.

        Ages are absolute: a clock set back must not silence incidents.
        """
        too_many = max(0, len(self._waiting) - MAX_OPEN)
        if not self._waiting or not (too_many or abs(now - self._first_waiting) >= settle):
            return []
        waiting = _in_order_of_leaving(self.waiting) if too_many else list(self.waiting)
        self._first_waiting = min(e.incident.first_read for e in waiting)
        ripe = [e for e in waiting[too_many:] if abs(now - e.incident.first_read) >= settle]
        ripe = [e for e in ripe if not _awaits_the_kernel(e, now, settle, linked)]
        return _with_linked(waiting[:too_many] + ripe, linked)

    def due_before_removal(self, remaining: Container[str], linked: LinkedOf) -> list[Entry]:
        """The incidents to settle before all signatures but the `remaining` ones are removed, with all linked."""
        return _with_linked([e for e in self.waiting if e.incident.signature not in remaining], linked)

    def mark_reported(self, entry: Entry, reported: Reported) -> None:
        self._put(replace(entry, reported=reported))

    def expired(self, now: float) -> list[Entry]:
        """The settled incidents that no match can join any more; in a storm also the oldest."""
        if len(self) <= MAX_OPEN and abs(now - self._first_settled) <= self.window:
            return []
        settled = sorted((e for e in self if e.reported), key=lambda e: e.incident.last_read)
        self._first_settled = settled[0].incident.last_read if settled else math.inf
        gone = [e for e in settled if abs(now - e.incident.last_read) > self._silence_in(e.incident)]
        kept = [e for e in settled if abs(now - e.incident.last_read) <= self._silence_in(e.incident)]
        too_many = max(0, len(self) - len(gone) - MAX_OPEN)
        return gone + _in_order_of_leaving(kept)[:too_many] if too_many else gone

    def remove(self, entry: Entry) -> None:
        self._leave_cells(entry)
        for block in entry.incident.closes:
            self._raisers.pop((entry.incident.scope, block), None)
        del self._entries[entry.number]
        self._waiting.pop(entry.number, None)
        self._changed.add(entry.number)

    def unsaved(self) -> dict[int, Entry | None]:
        """The entries changed since `saved`, by number; None if removed."""
        return {number: self._entries.get(number) for number in self._changed}

    def saved(self) -> None:
        self._changed.clear()

    def _put(self, entry: Entry) -> None:
        if entry.number in self._entries:
            self._leave_cells(self._entries[entry.number])
        self._rows.clear()
        for cell in self._cells_of(entry.incident):
            self._cells.setdefault(cell, set()).add(entry.number)
            self._levels.add(cell[1])
        self._entries[entry.number] = entry
        self._changed.add(entry.number)
        if entry.reported is None:
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

    def _cells_of(self, incident: Incident) -> list[IndexCell]:
        first, last = incident.first.time, incident.last_time
        level = max(0, math.frexp((last - first) / self.window)[1])
        return [(key, level, number) for key in _keys(incident) for number in self._numbers(level, first, last)]

    def _silence_in(self, incident: Incident) -> float:
        """The longest silence between two lines of an incident, in seconds."""
        return max(self.window, self.repeats.get(incident.signature, 0.0))

    def _span(self, incident: Incident, silence: float) -> tuple[float, float]:
        """The times at which another incident may be so close to one."""
        margin = silence + _ROUNDING
        return incident.first.time - margin, incident.last_time + margin

    def _around(self, incident: Incident, key: IndexKey, silence: float) -> list[Entry]:
        """The entries under a key that may be so close to an incident, each once."""
        entry_numbers: set[int] = set()
        for level in self._levels:
            numbers = self._numbers(level, *self._span(incident, silence))
            if len(numbers) > len(self):
                return [entry for entry in self if key in _keys(entry.incident)]
            entry_numbers.update(*(self._cells.get((key, level, number), ()) for number in numbers))
        return [self._entries[number] for number in sorted(entry_numbers)]

    def _rows_around(self, incident: Incident, key: IndexKey) -> list[IndexedEntry]:
        """The same, sorted and cached until something changes: in a storm thousands ask for the same ones."""
        span = self._span(incident, self.window)
        cached = (key, tuple(self._numbers(level, *span) for level in self._levels))
        if cached not in self._rows:
            self._rows[cached] = sorted(_row(entry) for entry in self._around(incident, key, self.window))
        return self._rows[cached]

    def _numbers(self, level: int, first: float, last: float) -> range:
        """The numbers of the cells at one level that overlap a span of time."""
        length = math.ldexp(self.window, level)
        return range(math.floor(first / length), math.floor(last / length) + 1)


def _awaits_the_kernel(entry: Entry, now: float, settle: float, linked: LinkedOf) -> bool:
    """Whether a job incident waits, once more for `settle`, for an unripe kernel incident."""
    if _is_of_kernel(entry) or abs(now - entry.incident.first_read) >= 2 * settle:
        return False
    kernel = (e for e in linked(entry) if e.reported is None and _is_of_kernel(e))
    return any(abs(now - e.incident.first_read) < settle for e in kernel)


def _with_linked(ripe: list[Entry], linked: LinkedOf) -> list[Entry]:
    """These incidents and all that are linked, directly or not. A job never settles a kernel incident early."""
    due = {e.number: e for e in ripe}
    for entry in ripe:  # grows during the loop
        for other in linked(entry):
            is_new = other.reported is None and other.number not in due
            if is_new and (_is_of_kernel(entry) or not _is_of_kernel(other)):
                due[other.number] = other
                ripe.append(other)
    return sorted(ripe, key=lambda e: e.order)


def _row(entry: Entry) -> IndexedEntry:
    i = entry.incident
    return IndexedEntry(entry.order, entry.number, entry, i.first.time, i.last_time, i.first.is_stamped)


def _in_order_of_leaving(entries: Iterable[Entry]) -> list[Entry]:
    """In a storm, incidents of the user who has most go first, and those of the kernel last."""
    of_kernel: dict[bool, list[Entry]] = {False: [], True: []}
    for entry in entries:
        of_kernel[_is_of_kernel(entry)].append(entry)
    return [*most_first(of_kernel[False], lambda entry: entry.incident.first.uid), *of_kernel[True]]


def _is_of_kernel(entry: Entry) -> bool:
    return entry.incident.first.source == "kernel"


def _keys(incident: Incident) -> list[IndexKey]:
    return list(itertools.product((incident.scope, incident.first.source), (gpu_of(incident) or NO_GPU, ANY_GPU)))


def _gpu_in_key(incident: Incident) -> str:
    """The GPU index for all incidents with its key. A job's key has no GPU, but its matches may name one."""
    return ANY_GPU if incident.first.source == "job" else incident.gpu or NO_GPU


def _earlier_report(a: Reported | None, b: Reported | None) -> Reported | None:
    """Of two reported incidents that turn out to be one, the report with the smaller id."""
    return min((report for report in (a, b) if report), key=lambda report: report.id, default=None)
