"""Node faults: what an operator must fix before the node takes jobs again; `gpufault node-check` reports them.

A fault stands for all critical incidents of one cause, signature, GPU and job. Knows no files, clocks or HTTP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import FactsAt, IncidentTracker
from exporter.core.diagnosis.incidents import gpu_of
from exporter.core.diagnosis.records import rfc3339, writable
from exporter.core.model import OPERATOR_ACTIONS, Action, Match, Moment

MAX_FAULTS = 64  # a node of 8 GPUs with 8 faults each
MAX_PROVISIONAL = 16  # in a storm a sample suffices: the question is whether the node is fit for jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, first seen at `time` and last at `last_time`; `incident` is the id of its latest incident.

    `settled` is False while evidence may still change the diagnosis. `boot` and `boot_seconds` give the last sighting by
    the kernel's clock, which nobody can set; `boot` is empty if only the wall time is known.
    """

    time: float
    last_time: float
    count: int
    signature: str
    root_cause: str
    title: str
    gpu: str | None
    job: str | None
    remediation: str
    incident: str
    settled: bool = True
    boot: str = ""
    boot_seconds: float = 0.0
    action: Action = "run_diagnostics"  # for faults that a version without actions stored

    @property
    def key(self) -> str:
        return json.dumps([self.root_cause, self.signature, self.gpu, self.job])

    def is_of_this_boot(self, now: Moment) -> bool:
        return bool(now.boot) and self.boot == now.boot

    def recency(self, now: Moment) -> tuple[bool, float]:
        """A sort key: the last sighting. A wall time in the future is wrong and sorts first."""
        if self.is_of_this_boot(now):
            return True, self.boot_seconds
        return False, self.last_time if self.last_time <= now.time else -math.inf

    def seen_since(self, since: float | None, now: Moment) -> bool:
        """Whether it was seen since a wall time by the current clock; None: since the boot."""
        if self.is_of_this_boot(now):
            return since is None or now.booted + self.boot_seconds >= since
        since = now.booted if since is None else since
        if self.boot and since >= now.booted:
            return False  # before this boot, whatever its wall time says
        return since <= self.last_time <= now.time


def fault_of(diagnosis: Diagnosis, catalogue: Catalogue, now: Moment, *, settled: bool) -> Fault | None:
    """The fault behind an incident, or None: most incidents need no operator."""
    incident = diagnosis.incident
    if diagnosis.action not in OPERATOR_ACTIONS or incident.first.source != "kernel":  # jobs cannot drain a node
        return None
    signature, cause = catalogue.signatures[incident.signature], catalogue.root_causes.get(diagnosis.root_cause)
    if diagnosis.verdict != "infrastructure":
        cause = None  # the vendor's table asks for the action, whatever the cause
    happened = min(incident.first.happened, now.time)  # the clock may have been ahead
    boot, boot_seconds = _boot_time_of(incident.first, happened, now)
    return Fault(
        time=happened,
        last_time=happened,
        count=1,
        signature=incident.signature,
        root_cause=diagnosis.root_cause,
        title=cause.title if cause else signature.title,
        gpu=gpu_of(incident),
        job=writable(incident.first.job.id) if incident.first.job else None,
        remediation=cause.remediation if cause else signature.remediation,
        incident=diagnosis.id,
        settled=settled,
        boot=boot,
        boot_seconds=boot_seconds,
        action=diagnosis.action,
    )


def _boot_time_of(first: Match, happened: float, now: Moment) -> tuple[str, float]:
    """The boot of a match and the seconds since that boot; no boot if it was before this one."""
    if first.boot_seconds is not None:
        latest = now.boot_seconds if first.origin == now.boot else math.inf  # a file may hold stamps of another boot
        return first.origin, min(first.boot_seconds, latest)
    seconds = happened - now.booted
    return (now.boot, seconds) if seconds >= 0 else ("", 0.0)


class OpenFaults:
    """The faults of a node, earliest first; of too many, the latest. Stored as rows."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._faults: dict[str, Fault] = {}
        self._unsaved: dict[str, str | None] = {}
        self.current: tuple[Fault, ...] = ()  # may be read from another thread
        for key, text in stored.items():
            try:
                self._faults[key] = Fault(**json.loads(text))
            except (ValueError, TypeError):  # another version wrote it
                self._unsaved[key] = None

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults.values())

    def add(self, fault: Fault, now: Moment) -> None:
        """Add a fault or a new sighting of it."""
        if old := self._faults.get(fault.key):
            last = max(old, fault, key=lambda f: f.recency(now))
            fault = replace(last, time=min(old.time, fault.time), count=old.count + fault.count)
        self._faults[fault.key] = fault
        self._unsaved[fault.key] = json.dumps(asdict(fault))
        if len(self._faults) > MAX_FAULTS:
            gone = min(self._faults, key=lambda key: self._faults[key].recency(now))
            del self._faults[gone]
            self._unsaved[gone] = None

    def add_settled(self, diagnosis: Diagnosis, catalogue: Catalogue, now: Moment) -> None:
        """Add the fault behind a settled incident, if any."""
        if fault := fault_of(diagnosis, catalogue, now, settled=True):
            self.add(fault, now)

    def refresh(self, tracker: IncidentTracker, facts_at: FactsAt, catalogue: Catalogue, now: Moment) -> None:
        """Set `current` to the known faults and those that unsettled incidents indicate."""
        for incident, last_time in tracker.still_growing():
            self._seen_again(incident, last_time, now)
        provisional = tracker.provisional(facts_at, severity="critical", at_most=MAX_PROVISIONAL)
        likely = (fault_of(diagnosis, catalogue, now, settled=False) for diagnosis in provisional)
        self.current = (*self, *filter(None, likely))

    def _seen_again(self, incident: str, last_time: float, now: Moment) -> None:
        """Update the faults of an incident that has grown."""
        last_time = min(last_time, now.time)
        for key, fault in self._faults.items():
            if fault.incident == incident and last_time >= fault.last_time + 1.0:
                seconds = max(fault.boot_seconds, last_time - now.booted)
                boot_seconds = seconds if fault.is_of_this_boot(now) else fault.boot_seconds
                self._faults[key] = later = replace(fault, last_time=last_time, boot_seconds=boot_seconds)
                self._unsaved[key] = json.dumps(asdict(later))

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}


def select_faults(
    faults: Iterable[Fault], now: Moment, *, since: float | None, jobs: Collection[str] = ()
) -> list[Fault]:
    """The faults seen since a wall time (None: since the boot), latest first; with `jobs`, only the node's and theirs."""
    found = [f for f in faults if f.seen_since(since, now) and (not jobs or f.job is None or f.job in jobs)]
    return sorted(sorted(found, key=lambda f: f.key), key=lambda f: f.recency(now), reverse=True)


def fault_json(fault: Fault, now: Moment) -> dict[str, Any]:
    """A fault as JSON data. Faults of this boot are dated by the current clock, which may have been set since."""
    last = fault.last_time
    if fault.is_of_this_boot(now):
        last = min(now.booted + fault.boot_seconds, now.time)
    out = {**asdict(fault), "time": rfc3339(min(fault.time, last)), "last_time": rfc3339(last)}
    del out["boot"], out["boot_seconds"]
    return out
