"""How jobs end: which errors a program survived, and what explains the failed jobs.

A job that ended with exit code 0 handled its errors, unless a signal or the OOM killer ended one of its processes: a shell
script may end well after that. Without an exit code, an error was the program's end only if it prints nothing ordinary
after it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis.attribution import attribute
from exporter.core.diagnosis.deaths import ends_process, is_observed, may_be_survived
from exporter.core.diagnosis.links import is_of_process
from exporter.core.diagnosis.records import rfc3339, writable
from exporter.core.model import UNRECOGNISED, Incident, Match
from exporter.metrics.counters import Counters
from exporter.store.outbox import Outbox


class HandledErrors:
    """Decides for the open incidents of a node. Call it with an incident."""

    def __init__(
        self,
        catalogue: Catalogue,
        job_of: Callable[[Incident], NodeJob | None],
        went_on: Callable[[Match], bool],
        incidents: Callable[[], Iterable[Incident]],
    ) -> None:
        """job_of: the job of an incident, as the scheduler's hooks know it. went_on: whether a line's program printed more."""
        self._catalogue = catalogue
        self._job_of = job_of
        self._went_on = went_on
        self._incidents = incidents

    def __call__(self, incident: Incident) -> bool:
        of_job = incident.first.source == "job"
        if self._ends_process(incident) or not (of_job or is_of_process(incident, self._catalogue)):
            return False
        job = self._job_of(incident)
        if job is not None and job.ended_well is not None:
            return job.ended_well and not self._has(job, self._ends_process)
        if is_observed(incident):
            return True
        if not may_be_survived(incident, self._catalogue):
            return False
        return self._went_on(incident.first) and not (job and self._has(job, self._is_of_kernel))

    def _has(self, job: NodeJob, condition: Callable[[Incident], bool]) -> bool:
        return any(condition(incident) and self._job_of(incident) == job for incident in self._incidents())

    def _ends_process(self, incident: Incident) -> bool:
        return ends_process(incident, self._catalogue) and not _is_guess(incident)

    def _is_of_kernel(self, incident: Incident) -> bool:
        return is_of_process(incident, self._catalogue) and not _is_guess(incident)


def _is_guess(incident: Incident) -> bool:
    """Whether only the time gives an incident to its job. Then it does not outweigh what the job says of its own end."""
    job = attribute(incident).job
    return job is not None and job.method == "time"


Outcome = Literal["explained", "unrecognised", "signal", "no_line"]
OUTCOMES: tuple[Outcome, ...] = ("explained", "unrecognised", "signal", "no_line")  # the best first
WAIT_SECONDS = 8.0  # after its end was seen: its logs are read to their ends after three, on a shared file system later
SIGNAL_CODES = range(129, 160)  # exit codes of a shell whose last command a signal killed
MAX_JOBS = 1024  # with incidents, the latest; a node runs some hundred a day
MAX_SIGNATURES = 8
_BEGUN = "begun"


class Crashes(NamedTuple):
    """What a job's open incidents report: the signatures that say why it failed, and whether a signal ended it."""

    signatures: Sequence[str] = ()
    by_signal: bool = False


CrashesOf = Callable[[NodeJob], Crashes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A failed job and its explanation. signatures: those of its first incidents."""

    job: NodeJob
    outcome: Outcome
    signatures: tuple[str, ...]

    def record(self, node: str, now: float) -> dict[str, Any]:
        """One `kind: "job_end"` record of the journal. now: when the death was decided."""
        job = self.job
        return {
            "kind": "job_end",
            "time": rfc3339(job.ended or 0.0),
            "recorded_time": rfc3339(now),
            "node": node,
            "job": {"id": job.id, "user": writable(job.user) if job.user else None, "kind": "slurm"},
            "started": None if job.started is None else rfc3339(job.started),
            "exit_code": job.exit_code,
            "signal": job.signal,
            "outcome": self.outcome,
            "signatures": list(self.signatures),
        }


class JobDeaths:
    """The signatures of each job's incidents, and the ends that were counted."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._signatures: dict[str, list[str]] = {}
        self._counted: dict[str, float] = {}
        self._pending: dict[str, tuple[NodeJob, float]] = {}
        self._has_begun = _BEGUN in stored
        self._unsaved: dict[str, str | None] = {}
        for key, text in stored.items():
            kind, _, name = key.partition(" ")
            try:
                if kind == "job":
                    self._signatures[name] = [str(signature) for signature in json.loads(text)]
                elif kind == "end":
                    self._counted[name] = float(text)
            except (ValueError, TypeError):  # another version wrote it
                self._unsaved[key] = None

    def note(self, record: Mapping[str, Any]) -> None:
        """Record the signature of a settled incident that explains its job's end, for each name of the job."""
        job = record["job"]
        for name in {job["id"], job.get("raw_id")} - {None} if job else ():
            signatures = self._signatures.pop(name, [])  # the latest last
            if record["signature"] not in signatures and len(signatures) < MAX_SIGNATURES:
                signatures = [*signatures, record["signature"]]
            self._signatures[name] = signatures
            self._unsaved[f"job {name}"] = json.dumps(signatures)
        while len(self._signatures) > MAX_JOBS:
            oldest = next(iter(self._signatures))
            del self._signatures[oldest]
            self._unsaved[f"job {oldest}"] = None

    def step(self, crashes_of: CrashesOf, counters: Counters, outbox: Outbox, node: str, now: float) -> None:
        """Count and record the deaths that are due. crashes_of: those of a job that may not have settled yet."""
        for death in self.due(now, crashes_of):
            counters.add("gpufault_job_deaths_total", death.outcome)
            outbox.add(death.record(node, now))

    def ended(self, jobs: Iterable[NodeJob], now: float) -> None:
        """Add ended jobs. At the very first start, earlier ends do not count: their logs were not read."""
        for job in jobs:
            key = f"{job.raw_id} {job.ended}"
            if key in self._counted or key in self._pending:
                continue
            has_failed = bool(job.exit_code or job.signal) and job.is_first_node
            if has_failed and self._has_begun:
                self._pending[key] = (job, now)
            else:
                self._count(key, now)
        if not self._has_begun:
            self._has_begun = True
            self._unsaved[_BEGUN] = "1"

    def due(self, now: float, crashes_of: CrashesOf) -> list[Death]:
        """The deaths seen so long ago that their lines have been read; each is returned once."""
        due = {key: job for key, (job, since) in self._pending.items() if not 0 <= now - since < WAIT_SECONDS}
        for key in due:
            del self._pending[key]
            self._count(key, now)
        return [self._death(job, crashes_of(job)) for job in due.values()]

    def unsaved(self) -> Mapping[str, str | None]:
        return self._unsaved

    def saved(self) -> None:
        self._unsaved = {}

    def _death(self, job: NodeJob, unsettled: Crashes) -> Death:
        settled = self._signatures.get(job.id, []) + self._signatures.get(job.raw_id, [])
        seen = dict.fromkeys([*settled, *unsettled.signatures])
        named = [signature for signature in seen if signature != UNRECOGNISED]
        by_signal = bool(job.signal) or job.exit_code in SIGNAL_CODES or unsettled.by_signal
        outcome: Outcome = "explained" if named else "unrecognised" if seen else "signal" if by_signal else "no_line"
        return Death(job=job, outcome=outcome, signatures=tuple(named or seen)[:MAX_SIGNATURES])

    def _count(self, key: str, now: float) -> None:
        self._counted[key] = now
        self._unsaved[f"end {key}"] = repr(now)
        while len(self._counted) > MAX_JOBS:
            oldest = next(iter(self._counted))
            del self._counted[oldest]
            self._unsaved[f"end {oldest}"] = None
