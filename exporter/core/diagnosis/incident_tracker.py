"""The incident tracker: from matches to open incidents to diagnoses, the same online and offline.

Knows no files or clocks: `now` is an argument, and node facts come from a function of time.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.diagnose import diagnose, incident_id, ultimate_root
from exporter.core.diagnosis.incidents import condense, device_of, ended_by_neighbour, jobs_of, timed_by_neighbour
from exporter.core.diagnosis.links import Nearby, is_of_process, names_process, split_by_link
from exporter.core.diagnosis.open_incidents import Entry, LinkedOf, OpenIncidents, Reported
from exporter.core.diagnosis.stored_incidents import EntryTexts, load_entry
from exporter.core.model import ACTIONS, UNKNOWN, UNRECOGNISED, Action, Incident, Match, Role, Severity

FactsAt = Callable[[float], Mapping[str, str]]
NearOf = Callable[[Entry], Nearby]


class IncidentTracker:
    """All open incidents, and their diagnoses when they settle."""

    def __init__(
        self,
        catalogue: Catalogue,
        node: str,
        *,
        window: float,
        settle: float,
        stored: Mapping[str, str] | None = None,
        live: bool = True,
    ) -> None:
        self._catalogue = catalogue
        self._node = node
        self._settle = settle
        entries, dropped = _load(stored or {}, catalogue)
        self._unreadable = list(dropped)
        # Unreported incidents whose signature is no longer in the catalogue.
        self.undiagnosable = [entry.incident for entry in dropped.values() if entry and not entry.reported]
        self._open = OpenIncidents(window, entries, live=live, repeats=catalogue.repeats)
        self._texts = EntryTexts()
        self._has_new_times = False  # whether new matches tell until when others were written
        self.shares_node = False  # whether several jobs are known to run here, whatever the matches say
        self.is_handled: Callable[[Incident], bool] = lambda _: False  # errors that their program survived

    def add(self, matches: Iterable[Match]) -> None:
        """Add matches to their incidents."""
        self.join(condense(matches, self._open.window, self._open.repeats))

    def join(self, incidents: Iterable[Incident]) -> None:
        """Add condensed matches to their incidents."""
        for incident in incidents:
            self._open.join(incident)
            self._has_new_times = self._has_new_times or any(match.untimed for match in incident.matches)

    def give_times(self) -> None:
        """Give incidents of finished logs the times that their places tell."""
        self._change(timed_by_neighbour)
        self._change(ended_by_neighbour)

    def _change(self, times: Callable[[list[Incident]], Iterable[tuple[Incident, Incident]]]) -> None:
        """Give unreported incidents other times."""
        entries = {id(entry.incident): entry for entry in self._open.waiting}
        for incident, timed in list(times([entry.incident for entry in entries.values()])):
            self._open.remove(entries[id(incident)])
            self._open.join(timed)

    def settle(self, now: float, facts_at: FactsAt, *, everything: bool = False) -> list[Diagnosis]:
        """The diagnoses that are due; each incident is reported once. `everything`: no more matches will come."""
        if self._has_new_times:
            self._change(ended_by_neighbour)
            self._has_new_times = False
        return self._report(
            self._open.due(now, float("-inf") if everything else self._settle, self._linked_of()), facts_at
        )

    def settle_before_removal(self, remaining: Container[str], facts_at: FactsAt) -> list[Diagnosis]:
        """The diagnoses to make before all signatures but the `remaining` ones are removed."""
        return self._report(self._open.due_before_removal(remaining, self._linked_of()), facts_at)

    def _report(self, due: list[Entry], facts_at: FactsAt) -> list[Diagnosis]:
        diagnosed = self._diagnose_entries(due, facts_at)
        for entry in due:
            lines = entry.incident.lines
            reported = Reported("", "", "context", "", lines)
            if d := diagnosed.get(entry.number):
                reported = Reported(
                    d.id, d.caused_by or d.id, d.role, d.root_cause, lines, d.verdict, d.action, d.domain
                )
            self._open.mark_reported(entry, reported)
        return [diagnosed[entry.number] for entry in due if entry.number in diagnosed]

    def provisional(self, facts_at: FactsAt, *, severity: Severity, at_most: int) -> list[Diagnosis]:
        """Diagnoses of unsettled kernel incidents of a severity; later evidence may change them."""
        kernels = (e for e in self._open.waiting if e.incident.first.source == "kernel")
        waiting = (e for e in kernels if self._catalogue.severity_of(e.incident) == severity)
        return list(self._diagnose_entries(itertools.islice(waiting, at_most), facts_at).values())

    def _diagnose_entries(self, entries: Iterable[Entry], facts_at: FactsAt) -> dict[int, Diagnosis]:
        """The diagnoses of incidents by number, without context incidents."""
        near_of = self._cached_near()
        diagnosed: dict[int, Diagnosis] = {}
        with_roots = [(entry, self._root(entry, near_of)) for entry in entries]
        # Roots first: consequences take over their causes.
        for entry, root in sorted(with_roots, key=lambda pair: pair[1] is not pair[0]):
            if self._role(entry.incident) == "context":
                continue
            if root is not entry and entry.incident.signature == UNRECOGNISED:
                continue  # a signature names the crash
            diagnosis = self._diagnose(entry, root, near_of, facts_at)
            if root is not entry:
                of_root = diagnosed.get(root.number) or (
                    None if root.reported else self._diagnose(root, root, near_of, facts_at)
                )
                diagnosis = _with_root_cause(diagnosis, root, of_root)
            diagnosed[entry.number] = diagnosis
        return diagnosed

    def diagnose_all(self, facts_at: FactsAt, order: Callable[[Incident, str], Any]) -> Iterator[Diagnosis]:
        """The diagnoses of all incidents but context, sorted by `order` of an incident and its id.

        They are made lazily: a diagnosis is several times as large as its incident.
        """
        near_of = self._cached_near()
        crashes = [entry for entry in self._open if self._role(entry.incident) != "context"]
        for entry in sorted(crashes, key=lambda e: order(e.incident, incident_id(e.incident, self._node))):
            root = self._root(entry, near_of)
            if root is not entry and entry.incident.signature == UNRECOGNISED:
                continue  # a signature names the crash
            diagnosis = self._diagnose(entry, root, near_of, facts_at)
            yield (
                diagnosis
                if root is entry
                else _with_root_cause(diagnosis, root, self._diagnose(root, root, near_of, facts_at))
            )

    def _root(self, entry: Entry, near_of: NearOf) -> Entry:
        return ultimate_root(entry, lambda other: near_of(other).linked, self._catalogue)

    def _diagnose(self, entry: Entry, root: Entry, near_of: NearOf, facts_at: FactsAt) -> Diagnosis:
        facts, near = facts_at(entry.incident.first.happened), near_of(entry)
        linked = near.linked
        if entry.incident.first.source == "kernel":  # a job may print anything: its lines explain none of the kernel's
            linked = [other for other in linked if other.incident.first.source == "kernel"]
            entry = self._with_job_of_log(entry)
        return diagnose(entry, linked, root, facts, self._catalogue, self._node, same_time=near.same_time)

    def _with_job_of_log(self, entry: Entry) -> Entry:
        """A kernel incident whose job the node does not know, with that of the only log that names its process's pid."""
        incident = entry.incident
        if not is_of_process(incident, self._catalogue) or jobs_of(incident) or any(m.claims for m in incident.matches):
            return entry
        logs = [e.incident for e in self._open.nearby(entry) if e.incident.first.source == "job"]
        named = {i.scope: i.first.job for i in logs if i.first.job and names_process(i, incident)}
        if len(named) != 1:
            return entry
        (job,) = named.values()
        assert job is not None
        first = replace(incident.first, claims=(replace(job, method="pid", confidence="low"),))
        return replace(entry, incident=replace(incident, matches=(first, *incident.matches[1:])))

    def _linked_of(self) -> LinkedOf:
        """A function for the incidents that settle with another: those that explain it, and those that it explains."""
        near_of = self._cached_near()

        def linked(entry: Entry) -> list[Entry]:
            linked = near_of(entry).linked
            if entry.incident.first.source == "job":
                return linked
            jobs = (other for other in self._open.nearby(entry) if other.incident.first.source == "job")
            numbers = {other.number for other in linked}
            explained = (other for other in jobs if any(e.number == entry.number for e in near_of(other).linked))
            return [*linked, *(other for other in explained if other.number not in numbers)]

        return linked

    def _cached_near(self) -> NearOf:
        """A function for the incidents near another, with a cache for one round."""
        answers: dict[int, Nearby] = {}

        def near(entry: Entry) -> Nearby:
            if entry.number not in answers:
                answers[entry.number] = split_by_link(
                    entry, self._open.nearby(entry), self._catalogue, shares_node=self.shares_node
                )
            return answers[entry.number]

        return near

    def close_expired(self, now: float, facts_at: FactsAt) -> list[Diagnosis]:
        """Close the incidents that no match can join any more; return those that grew since their report."""
        near_of = self._cached_near()
        expired = self._open.expired(now)
        grown = [  # before any is removed: they may be near each other
            self._diagnose(entry, entry, near_of, facts_at)
            for entry in expired
            if entry.reported and entry.reported.id and entry.incident.lines > entry.reported.lines
        ]
        for entry in expired:
            self._open.remove(entry)
        return grown

    def crashes_of(self, is_of_job: Callable[[Incident], bool]) -> list[Incident]:
        """A job's open crashes, settled or not, the earliest first."""
        crashes = (e.incident for e in sorted(self._open, key=lambda e: e.order) if self._role(e.incident) != "context")
        return [incident for incident in crashes if is_of_job(incident)]

    def still_growing(self) -> Iterator[tuple[str, float]]:
        """The reported kernel incidents that may still grow: id, and the time of the last line."""
        for entry in self._open:
            if entry.reported and entry.incident.first.source == "kernel":
                yield entry.reported.id, entry.incident.last_time

    def open_by_signature(self) -> Counter[str]:
        """The number of unsettled incidents by signature."""
        return Counter(e.incident.signature for e in self._open.waiting)

    def crashes(self) -> int:
        """The number of open incidents, without context."""
        return sum(self._role(incident) != "context" for incident in self.incidents())

    def incidents(self) -> list[Incident]:
        """All open incidents, settled or not."""
        return [entry.incident for entry in self._open]

    def context_warnings(self) -> list[Diagnosis]:
        """Context incidents of severity warning or above in scopes without a crash. They are not counted."""
        noted, crashed = [], {i.scope for i in self.incidents() if self._role(i) != "context"}
        for incident in self.incidents():
            signature = self._signature(incident)
            if signature.role == "context" and signature.severity != "info" and incident.scope not in crashed:
                noted.append(
                    Diagnosis(
                        incident=incident,
                        id=incident_id(incident, self._node),
                        role="context",
                        root_cause=UNKNOWN,
                        caused_by=None,
                        verdict="unclear",
                        severity=signature.severity,
                        remediation=signature.remediation,
                        references=tuple(signature.references),
                    )
                )
        return noted

    def _role(self, incident: Incident) -> Role:
        role = self._signature(incident).role
        return "context" if role != "context" and self.is_handled(incident) else role

    def _signature(self, incident: Incident) -> Signature:
        return self._catalogue.signatures[incident.signature]

    def unsaved(self) -> dict[str, str | None]:
        """The entries changed since `saved`: JSON by number, or None if removed."""
        changed: dict[str, str | None] = dict.fromkeys(self._unreadable)
        for number, entry in self._open.unsaved().items():
            if entry is None:
                self._texts.forget(number)
            changed[str(number)] = self._texts.of(entry) if entry else None
        return changed

    def saved(self) -> None:
        self._unreadable = []
        self._open.saved()


def _with_root_cause(cascade: Diagnosis, root: Entry, diagnosed: Diagnosis | None) -> Diagnosis:
    """A consequence with its root's cause; it keeps its action only if it asks for more than the root.

    If that is a stronger action, as an Xid 154 may ask for, it keeps its own cause too, whose advice fits the action.
    """
    if cascade.incident.first.source == "kernel" and root.incident.first.source == "job":
        return cascade  # a job's text decides nothing about a line of the kernel
    if diagnosed is None:  # the root was reported in an earlier round
        report = root.reported
        cause, root_action = (report.root_cause, report.action) if report else (UNKNOWN, None)
        action = cascade.action if _needs_more_action(cascade, root, root_action) else None
        return replace(cascade, root_cause=cause, evidence=(), action=action)
    if cascade.action and cascade.root_cause != UNKNOWN and _rank(cascade.action) > _rank(diagnosed.action):
        return replace(cascade, evidence=())
    return replace(
        cascade,
        root_cause=diagnosed.root_cause,
        verdict=diagnosed.verdict,
        domain=diagnosed.domain,
        remediation=diagnosed.remediation,
        references=diagnosed.references,
        evidence=(),
        action=cascade.action if _needs_more_action(cascade, root, diagnosed.action) else None,
    )


def _needs_more_action(cascade: Diagnosis, root: Entry, root_action: Action | None) -> bool:
    """Whether a consequence needs a stronger action than its root, or one on another device."""
    if root_action is None or cascade.action is None:
        return cascade.action is not None
    device, of_root = device_of(cascade.incident), device_of(root.incident)
    return _rank(cascade.action) > _rank(root_action) or (device is not None and device != of_root)


def _rank(action: Action | None) -> int:
    return ACTIONS.index(action) if action else -1


def _load(stored: Mapping[str, str], catalogue: Catalogue) -> tuple[list[Entry], dict[str, Entry | None]]:
    """The stored entries, and those to drop by number: unreadable ones (None) and those without a signature."""
    entries, dropped = list[Entry](), dict[str, Entry | None]()
    for number, text in stored.items():
        try:
            entry = load_entry(int(number), text)
        except ValueError:
            dropped[number] = None
            continue
        if entry.incident.signature in catalogue.signatures:
            entries.append(entry)
        else:
            dropped[number] = entry
    return entries, dropped
