"""Faults of this node that someone has to mend before it takes jobs again: what `gpufault node-check` tells of.

A fault is what critical incidents of one cause, signature, GPU and job have in common. Knows no files, clocks or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from exporter.core.casebook import Casebook, FactsAt
from exporter.core.catalogue import Catalogue
from exporter.core.incidents import gpu_of
from exporter.core.model import Diagnosis, Severity
from exporter.core.records import rfc3339, writable

SEVERITY: Severity = "critical"
KEPT = 64  # a node of 8 GPUs with 8 faults each
FORESEEN = 16  # in a storm some tell enough: who asks wants to know whether the node is fit for jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `time` is when it was seen first, `last_time` when last; `incident` is the id of the last one.

    `settled` is False as long as evidence may still change the diagnosis.
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

    @property
    def key(self) -> str:
        return json.dumps([self.root_cause, self.signature, self.gpu, self.job])


def fault_of(diagnosis: Diagnosis, catalogue: Catalogue, now: float, *, settled: bool) -> Fault | None:
    """The fault that an incident shows, or None: most incidents ask nothing of the node."""
    incident = diagnosis.incident
    signature, cause = catalogue.signatures[incident.signature], catalogue.root_causes.get(diagnosis.root_cause)
    if not cause or not cause.needs_operator or signature.severity != SEVERITY:
        return None
    if diagnosis.role != "root" or diagnosis.verdict != "infrastructure":
        return None
    if incident.first.source != "kernel":  # a job's word drains no node; what it saw of a fault, the kernel saw too
        return None
    happened = min(incident.first.happened, now)  # a job's log may claim a time to come, and would be reported for ever
    return Fault(
        time=happened,
        last_time=happened,
        count=1,
        signature=incident.signature,
        root_cause=cause.id,
        title=cause.title,
        gpu=gpu_of(incident),
        job=writable(incident.first.job.id) if incident.first.job else None,
        remediation=cause.remediation,
        incident=diagnosis.id,
        settled=settled,
    )


class Faults:
    """The faults of a node, the earliest first; of too many, those that were seen last. Outlives the process as rows."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._faults: dict[str, Fault] = {}
        self._unsaved: dict[str, str | None] = {}
        self.shown: tuple[Fault, ...] = ()  # may be read from another thread
        for key, text in stored.items():
            try:
                self._faults[key] = Fault(**json.loads(text))
            except (ValueError, TypeError):  # another version wrote it
                self._unsaved[key] = None

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults.values())

    def add(self, fault: Fault) -> None:
        """Take in a fault, or that it was seen again."""
        if old := self._faults.get(fault.key):
            last = max(old, fault, key=lambda f: f.last_time)
            fault = replace(last, time=min(old.time, fault.time), count=old.count + fault.count)
        self._faults[fault.key] = fault
        self._unsaved[fault.key] = json.dumps(asdict(fault))
        if len(self._faults) > KEPT:
            gone = min(self._faults, key=lambda key: self._faults[key].last_time)
            del self._faults[gone]
            self._unsaved[gone] = None

    def told(self, diagnosis: Diagnosis, catalogue: Catalogue, now: float) -> None:
        """Take in the fault that a settled incident shows, if it shows one."""
        if fault := fault_of(diagnosis, catalogue, now, settled=True):
            self.add(fault)

    def show(self, casebook: Casebook, facts_at: FactsAt, catalogue: Catalogue, now: float) -> None:
        """Have `shown` be the faults that are known, and those that unsettled incidents point to."""
        foreseen = casebook.foreseen(facts_at, severity=SEVERITY, at_most=FORESEEN)
        likely = (fault_of(diagnosis, catalogue, now, settled=False) for diagnosis in foreseen)
        self.shown = (*self, *filter(None, likely))

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}


def concerning(faults: Iterable[Fault], *, since: float, jobs: Collection[str] = ()) -> list[Fault]:
    """The faults seen since a time, the last one first; with `jobs`, those of the node and of these jobs only."""
    found = [f for f in faults if f.last_time >= since and (not jobs or f.job is None or f.job in jobs)]
    return sorted(found, key=lambda f: (-f.last_time, f.key))


def plain(fault: Fault) -> dict[str, Any]:
    """A fault as JSON has it."""
    return {**asdict(fault), "time": rfc3339(fault.time), "last_time": rfc3339(fault.last_time)}
