"""From matches to incidents: their causes, the node's faults and the deaths of jobs. Hands records to the outbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis import records
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.attribution import attribute
from exporter.core.diagnosis.deaths import explains_job_end, reports_signal
from exporter.core.diagnosis.fault_history import FaultHistory
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.node_faults import fault_record
from exporter.core.diagnosis.repeated_xids import RepeatedXids
from exporter.core.model import UNKNOWN, Incident, Match, SourceKind
from exporter.daemon.handover import Keeper, Stored
from exporter.daemon.ingest import Ingest
from exporter.daemon.node_watch import NodeWatch
from exporter.metrics.counters import Counters
from exporter.metrics.job_incidents import JobIncidents
from exporter.metrics.series import possible_series
from exporter.node.job_ends import Crashes, HandledErrors, JobDeaths
from exporter.sources.boot import moment
from exporter.store.outbox import Outbox
from exporter.web.interface import RecentIncident

SHOWN_INCIDENTS = 20  # on the landing page
LOGGED = ("signature", "root_cause", "role", "verdict", "path", "line", "id", "late")  # of an incident, in our own log

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from exporter.config.node import Config


class Casebook:
    """The open incidents and faults of the node. Call `use` before anything else.

    recent: the latest incidents, for the landing page. hints: what repeats on one card.
    """

    catalogue: Catalogue
    tracker: IncidentTracker

    def __init__(
        self, watch: NodeWatch, counters: Counters, outbox: Outbox, stored: Stored, log: FilteringBoundLogger
    ) -> None:
        self.faults = FaultHistory(stored.get("faults", {}))
        self.jobs = JobIncidents(stored.get("jobs", {}))
        self.recent: deque[RecentIncident] = deque(maxlen=SHOWN_INCIDENTS)
        self._deaths = JobDeaths(stored.get("deaths", {}))
        self._repeats = RepeatedXids(stored.get("repeats", {}))
        self._watch = watch
        self._counters = counters
        self._outbox = outbox
        self._log = log

    def use(
        self, config: Config, catalogue: Catalogue, stored: Stored, ingest: Ingest, warn: Callable[[str], None]
    ) -> None:
        """Continue the stored incidents with the signatures of a catalogue."""
        self._config, self.catalogue = config, catalogue
        window, settle = config.incidents.window, config.incidents.settle
        self.tracker = IncidentTracker(
            catalogue, self._watch.node, window=window, settle=settle, stored=stored.get("incidents", {})
        )
        self.tracker.is_handled = HandledErrors(
            catalogue, self._watch.attribution.job_of, ingest.pipeline.went_on, self.tracker.incidents
        )
        for incident in self.tracker.undiagnosable:
            self._counters.count_root(incident, UNKNOWN, "unclear", "unknown")
            warn(f"an incident of {incident.signature} is counted without a diagnosis: no pack has its signature")

    def start_at_zero(self) -> None:
        """Create at 0 a series of each signature that can occur on this node."""
        kinds: set[SourceKind] = {"kernel" if item.kind == "kmsg" else "job" for item in self._config.sources}
        self._counters.start_at_zero(possible_series(self.catalogue, kinds, self._watch.facts.vendors))

    def add(self, matches: Sequence[Match], now: float) -> None:
        """Add matches to the open incidents, with their jobs, GPUs and the facts of their processes."""
        self.faults.note(matches, self.catalogue, moment(now))
        matches = self._watch.attached(matches)
        self.tracker.add(self._repeats.with_job_counts(matches, self._watch.processes.job_of))

    def add_ended_jobs(self, jobs: Iterable[NodeJob], now: float) -> None:
        """Add jobs that ended; each failure is counted once its logs have been read."""
        self._deaths.ended(jobs, now)

    def report_due(self, now: float) -> bool:
        """Report the deaths of jobs and the incidents that are due. True if an incident settled."""
        self._deaths.step(self._crashes_of, self._counters, self._outbox, self._watch.node, now)
        settled = self.tracker.settle(now, self._watch.facts.at)
        self._report(settled, now)
        for diagnosis in self.tracker.close_expired(now, self._watch.facts.at):
            self._outbox.add(self._record(diagnosis, now))
        return bool(settled)

    def report_all(self, now: float) -> None:
        """Report all incidents, also those that wait for evidence."""
        self._report(self.tracker.settle(now, self._watch.facts.at, everything=True), now)

    def report_before_removal(self, remaining: Catalogue, now: float) -> None:
        """Report the incidents whose signatures the next catalogue does not have."""
        self._report(self.tracker.settle_before_removal(remaining.signatures, self._watch.facts.at), now)

    def refresh_node(self, now: float) -> None:
        """Read the node's facts, ask the driver, and search processes, each if it is due."""
        changed, answer = self._watch.refresh(now, self.faults.of_driver())
        if answer:
            self.faults.add_driver_answer(answer, self.catalogue)
        if changed:
            self.add_facts_record(now)
            self.start_at_zero()
        if self._watch.sample_processes(now):
            self.add_heartbeat(now)

    def add_facts_record(self, now: float) -> None:
        self._outbox.add(self._watch.facts_record(now))

    def add_heartbeat(self, now: float) -> None:
        self._outbox.add(self._watch.heartbeat_record(now))

    def prepare_commit(self, now: float) -> None:
        """Open, change and clear faults according to the open incidents."""
        watch, at = self._watch, moment(now)
        for fault in self.faults.refresh(self.tracker, watch.facts.at, self.catalogue, watch.facts.gpus, at):
            self._outbox.add(fault_record(fault, watch.node, at))  # also if the disk is the fault

    def hints(self) -> list[str]:
        return self._repeats.hints()

    def keepers(self) -> dict[str, Keeper]:
        """The parts with rows in the state file, by the name of their key space."""
        return {
            "incidents": self.tracker, "facts": self._watch.facts, "faults": self.faults, "repeats": self._repeats,
            "jobs": self.jobs, "deaths": self._deaths,
        }  # fmt: skip

    def _crashes_of(self, job: NodeJob) -> Crashes:
        """What the job's open crashes say of its death, settled or not."""

        def is_of_job(incident: Incident) -> bool:
            named = attribute(incident).job
            return named is not None and not job.names.isdisjoint({named.id, named.raw_id})

        crashes = self.tracker.crashes_of(is_of_job)
        explaining = (incident.signature for incident in crashes if explains_job_end(incident, self.catalogue))
        return Crashes(
            signatures=list(dict.fromkeys(explaining)),
            by_signal=any(reports_signal(incident, self.catalogue) for incident in crashes),
        )

    def _report(self, settled: Iterable[Diagnosis], now: float) -> None:
        """Count settled incidents, once, and add them to the journal."""
        for diagnosis in settled:
            first = diagnosis.incident.first
            record = self._record(diagnosis, now)
            late, gpu = record["late"], record["gpu"]
            is_there = first.source == "kernel" or self._watch.facts.has(gpu or "")
            job = record["job"]["id"] if record["job"] and self._config.limits.job_series else None
            self._counters.count_incident(diagnosis, now, late=late, gpu=gpu, gpu_on_node=is_there, job=job)
            self.faults.add_settled(diagnosis, self.catalogue, moment(now))
            self.jobs.add(record, now)
            if explains_job_end(diagnosis.incident, self.catalogue):
                self._deaths.note(record)
            self._outbox.add(record)
            self._log.info("incident", **{name: record[name] for name in LOGGED})
            if diagnosis.role != "cascade":
                self.recent.appendleft(RecentIncident.of(diagnosis, record))

    def _record(self, diagnosis: Diagnosis, now: float) -> dict[str, Any]:
        journal, late_after = self._config.journal, self._config.incidents.late_after
        record = records.incident_record(
            diagnosis, self.catalogue, self._watch.node, redacted=journal.redact, excerpt_lines=journal.excerpt_lines
        )
        return record | records.recorded_fields(diagnosis, now, late_after=late_after)
