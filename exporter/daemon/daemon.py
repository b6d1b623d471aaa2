"""The node daemon: its main loop reads sources, commits, and updates /metrics and the journal. Failures become metrics."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis import records
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.deaths import explains_job_end
from exporter.core.diagnosis.fault_history import FaultHistory
from exporter.core.diagnosis.node_faults import fault_record
from exporter.core.diagnosis.repeated_xids import RepeatedXids
from exporter.core.model import UNKNOWN, Chunk, Match
from exporter.daemon.assembly import assemble
from exporter.daemon.commit_pace import CommitPace
from exporter.daemon.metrics_snapshot import Exposures, Gauges, snapshot_of
from exporter.daemon.poll_scheduler import PollScheduler
from exporter.daemon.sleep import Sleep
from exporter.daemon.transaction import Keeper, Transaction
from exporter.metrics.counters import Counters
from exporter.metrics.exposition import MetricsSnapshot
from exporter.metrics.job_incidents import JobIncidents
from exporter.metrics.series import possible_series
from exporter.node.driver_probe import DriverProbe
from exporter.node.facts import NodeFacts
from exporter.node.gpu_processes import GpuProcesses
from exporter.node.heartbeat import Heartbeat
from exporter.node.job_deaths import JobDeaths
from exporter.outputs.manager import Outputs
from exporter.process import malloc_tuning
from exporter.process.rate_limited_log import RateLimitedLog
from exporter.sources.base import Source
from exporter.sources.boot import moment
from exporter.sources.calls import Lanes
from exporter.store.journal import Journal
from exporter.store.outbox import Outbox
from exporter.store.state import State, StateUnusable
from exporter.web.interface import RecentIncident

URGENT_SECONDS = 0.2  # in a round, until a match of the kernel's log is committed
COMMIT_SECONDS = 1.0  # positions that moved without a match: re-reading a second's worth costs nothing
POLL_SECONDS = 0.5  # the longest nap: on file systems that send no events this is the latency
DRAIN_SECONDS = 1.5  # sources offer an unfinished last line after a second of quiet
BUSY_SECONDS = 1.0  # of rounds without a nap before the journal, the facts and systemd are looked at again
SHOWN_INCIDENTS = 20  # on the landing page
LOGGED = ("signature", "root_cause", "role", "verdict", "path", "line", "id", "late")  # of an incident, in our own log

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from exporter.config.node import Config


class Daemon:
    """The daemon of one node. Created by `cli.run`; `run` drives it (tests call `step` instead)."""

    def __init__(
        self,
        config: Config,
        catalogue: Catalogue,
        state: State,
        *,
        node: str,
        log: FilteringBoundLogger,
        facts: NodeFacts | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.node = node
        self.state = state
        self._sleep = Sleep()
        self.waker = self._sleep.waker
        self._lanes = Lanes()
        self.recent: deque[RecentIncident] = deque(maxlen=SHOWN_INCIDENTS)
        self.last_round = self._started = clock()
        self._snapshot = MetricsSnapshot(())
        self.watching = False  # whether every source has been looked at
        self.impaired: list[str] = []  # what a job's log, or one path of several, is to blame for
        self.hints: list[str] = []
        self._log = log
        self._clock = clock
        self._warn = RateLimitedLog(log.warning, clock)
        self._rounds = PollScheduler(self._consume, self._failed, self._between, clock)
        self._stats: dict[str, Any] = {}
        self._gauges = Gauges()
        self._last_commit = 0.0
        self._pace = CommitPace()
        self._matched = self._is_urgent = False  # since the last commit
        loaded = state.loaded
        self.counters = Counters(loaded.counters, label_values=config.limits.label_values)
        if loaded.set_aside:
            self.counters.add("gpufault_state_set_aside_total")
            log.error("damaged state file set aside; counting starts afresh", kept_as=str(loaded.set_aside))
        self.outbox = Outbox(state, self.counters)
        self._transaction = Transaction(state, self.counters, self.outbox)
        self.faults = FaultHistory(loaded.spaces.get("faults", {}))
        self.jobs = JobIncidents(loaded.spaces.get("jobs", {}))
        self.deaths = JobDeaths(loaded.spaces.get("deaths", {}))
        self.repeats = RepeatedXids(loaded.spaces.get("repeats", {}))
        self.facts = facts or NodeFacts(config.facts, loaded.spaces.get("facts", {}))
        self.facts.refresh(clock(), wait=True)
        self.driver = DriverProbe()
        self.processes = GpuProcesses()
        self.heartbeat = Heartbeat(config.facts, self._started)
        self._exposures = Exposures()
        self.outputs = Outputs(node, self.snapshot, self.counters, log, clock, from_start=bool(loaded.set_aside))
        self._use(config, catalogue, first_start=loaded.first_start)
        self._publish()
        self.outbox.add(self.facts.record(node, moment(clock())))
        self.commit(clock())

    # -- the loop

    def begin(self) -> None:
        """Run the first round. It skips what `start: end` excludes; whatever is written later is read from its first byte."""
        self.step()
        self.commit(self._clock())
        malloc_tuning.release_memory()
        self.outputs.start()
        self._log.info("watching", **{source.name: source.stats.down_reason or "up" for source in self.sources})

    def run(self, stop: threading.Event, *, each_round: Callable[[], None] = lambda: None) -> None:
        """Run until `stop` is set; wake the waker after setting it."""
        looked = time.monotonic()
        while not stop.is_set():
            busy = self.step()
            if not busy or time.monotonic() - looked >= BUSY_SECONDS:
                self.background()
                each_round()
                looked = time.monotonic()
            seconds = min(POLL_SECONDS, self._pace.seconds_left(self._clock())) if self._matched else POLL_SECONDS
            with self._parts.thread.running():
                if not busy:
                    self._sleep.until_news(self.sources, seconds)
                elif not self._rounds.is_behind:
                    self._sleep.pause(self.sources, seconds)
        self.finish()

    def step(self) -> bool:
        """One round over all sources; True if something was read."""
        self.last_round = self._clock()
        now = self.last_round
        ended = self._parts.attribution.look(now)
        self.deaths.ended(ended, now)
        busy = self._rounds.read(self.sources)
        self.watching = True
        self._add_crashes_of_silent_logs(now)
        self.deaths.step(self._parts.crashes_of, self.counters, self.outbox, self.node, now)
        settled = self._parts.incidents.settle(now, self.facts.at)
        for diagnosis in settled:
            self._report(diagnosis, now)
        for diagnosis in self._parts.incidents.close_expired(now, self.facts.at):
            self.outbox.add(self._incident_record(diagnosis, now))
        is_due = self._is_urgent or (self._matched and self._pace.seconds_left(now) <= 0)
        if is_due or settled or now - self._last_commit >= COMMIT_SECONDS or now < self._last_commit:
            self.commit(now)
        return busy

    def background(self) -> None:
        """Do the work that is not needed in every round: facts, GPU processes, heartbeat, journal."""
        now = self._clock()
        changed = self.facts.refresh(now)
        vendors = self.facts.vendors if self._parts.config.facts.ask_driver else ()
        if answer := self.driver.look(now, vendors, self.faults.of_driver()):
            changed |= self.facts.driver_says(answer, now)
            self.faults.driver_says(answer, self._parts.catalogue)
        if changed:
            self.outbox.add(self.facts.record(self.node, moment(now)))
            self._start_at_zero()
        if self.facts.vendors:
            self.processes.look(now, self._parts.config.facts.processes)
        if self.heartbeat.look(now, self._parts.config.facts, self.facts.gpus, self.processes):
            self.outbox.add(self.heartbeat.record(self.node, now, self.facts.gpus))
        self._deliver()

    def drain(self) -> None:
        """Read everything available, including last lines without newline, and report all incidents (`--once`)."""
        quiet_since = self._clock()
        while self._clock() - quiet_since < DRAIN_SECONDS:
            if self.step():
                quiet_since = self._clock()
            else:
                with self._parts.thread.running():
                    self._sleep.until_news(self.sources, DRAIN_SECONDS / 10)
        self._add_crashes_of_silent_logs(math.inf)  # no log will go on
        for diagnosis in self._parts.incidents.settle(now := self._clock(), self.facts.at, everything=True):
            self._report(diagnosis, now)
        self.commit(now)

    def finish(self) -> None:
        """Commit, write the journal and close everything."""
        now = self._clock()
        self.outbox.add(self.heartbeat.record(self.node, now, self.facts.gpus))
        self.commit(now)
        self._deliver()
        self.outputs.stop()
        self._parts.close()
        self._lanes.close()
        self.commit(now)
        self.journal.close()

    # -- one transaction

    def commit(self, now: float) -> None:
        """Store positions, counters, open incidents and records in one transaction, then publish the metrics."""
        parts = self._parts
        if self._matched:
            self._pace.committed(now)  # also if it fails: a full disk is not tried all the time
        for fault in self.faults.refresh(parts.incidents, self.facts.at, parts.catalogue, self.facts.gpus, moment(now)):
            self.outbox.add(fault_record(fault, self.node, moment(now)))  # also if the disk is the fault
        for source in self.sources:
            self.counters.count_losses(source.name, source.stats)
            for key, value in source.unsaved().items():
                if value is None:
                    parts.pipeline.forget(key)
        if not self.state.in_place:
            self._warn("the state was deleted or replaced while in use; writing it anew. Stop gpufault before that")
        own: dict[str, Keeper] = {"facts": self.facts, "faults": self.faults, "repeats": self.repeats}
        own |= {"outputs": self.outputs, "jobs": self.jobs, "deaths": self.deaths}
        try:
            self._transaction.commit(parts.keepers() | own)
        except (OSError, sqlite3.Error, StateUnusable) as error:
            self._gauges.state_up = False
            self._snapshot = self._snapshot.with_value("gpufault_state_up", 0.0)  # what was counted since may be lost
            self._warn(f"state cannot be written: {error}; free space or fix the disk; counting goes on in memory")
            return
        self._gauges.state_up = True
        self._matched = self._is_urgent = False
        self._gauges.commit_time = self._last_commit = now
        self._publish()

    # -- the web server's view (called from its thread)

    @property
    def sources(self) -> Sequence[Source]:
        return self._parts.sources

    def snapshot(self) -> MetricsSnapshot:
        return self._snapshot

    def unseen_sources(self) -> list[str]:
        if not self.watching:
            return ["initial scan of the sources in progress"]
        return [f"source {s.name}: {s.stats.blind}" for s in self.sources if s.stats.blind]

    def not_ready(self) -> list[str]:
        return self.unseen_sources() + self._gauges.reasons()

    # -- parts

    def reload(self, config: Config, catalogue: Catalogue) -> None:
        """Apply a new configuration: commit, then rebuild everything from the state."""
        now = self._clock()
        for diagnosis in self._parts.incidents.settle_before_removal(catalogue.signatures, self.facts.at):
            self._report(diagnosis, now)
        self.commit(now)
        if not self._gauges.state_up:
            raise OSError("state cannot be written, so nothing may be rebuilt from it; free space or fix the disk")
        self.watching = False
        self._stats |= {source.name: source.stats for source in self.sources}
        self._parts.close()
        self.commit(now)  # what a source holds of a line that has begun
        self.journal.close()
        self.facts.use(config.facts)
        self._use(config, catalogue, first_start=False)
        self.step()  # whoever asked for it is told when the new sources have been looked at
        self.commit(self._clock())

    def reloaded(self, problems: Sequence[str]) -> None:
        """Record the result of a reload."""
        self._gauges.reload_ok = not problems
        self._log_problems("configuration", problems)
        self._snapshot = self._snapshot.with_value("gpufault_config_last_reload_successful", float(not problems))

    def web_config_read(self, problems: Sequence[str], in_force_since: float) -> None:
        """Record the result of reading the web configuration, for the next commit. Thread-safe."""
        self._gauges.web_config_ok = not problems
        self._gauges.web_config_time = in_force_since
        self._log_problems("web configuration", problems)

    def _use(self, config: Config, catalogue: Catalogue, *, first_start: bool) -> None:
        """Replace all parts by those of a configuration and its packs."""
        stored = self.state.load().spaces
        self._parts = parts = assemble(
            config,
            catalogue,
            stored,
            node=self.node,
            first_start=first_start,
            warn=self._warn,
            wake=self._sleep.news.wake,
            lanes=self._lanes,
            clock=self._clock,
        )
        self.catalogue = catalogue
        self._transaction.moved = [*parts.moved]
        for incident in parts.incidents.undiagnosable:
            self.counters.count_root(incident, UNKNOWN, "unclear")
            self._warn(f"an incident of {incident.signature} is counted without a diagnosis: no pack has its signature")
        for source in parts.sources:
            source.stats = self._stats.get(source.name, source.stats)
        self.journal = Journal(parts.journal_folder, config.journal.max_bytes, self._opening, self._before_drop)
        self.outputs.use(config.outputs, self.journal, stored.get("outputs", {}))
        self._gauges.reload_time = self._clock()
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Create at 0 the series that can occur on this node, so that `increase()` detects a first crash."""
        series = possible_series(self._parts.catalogue, self._parts.source_kinds, self.facts.vendors)
        self.counters.start_at_zero(series)

    def _failed(self, source: Source, error: Exception) -> None:
        self._gauges.source_errors[source.name] = self._gauges.source_errors.get(source.name, 0) + 1
        self._warn(f"source {source.name} failed: {error!r}; please report it")

    def _between(self) -> None:
        """Commit during a long round: so that a kill loses little work, and that what the kernel reports is shown."""
        now = self._clock()
        if now - self.last_round >= (URGENT_SECONDS if self._is_urgent else COMMIT_SECONDS):
            self.last_round = now
            self.commit(now)

    def _consume(self, source: Source, chunk: Chunk) -> bool:
        """Process a chunk. True if some of it was consumed."""
        done = self._parts.pipeline.process(chunk)
        source.advance(chunk.log, done.consumed, done.newlines)
        self.counters.count_chunk(done, chunk.source)
        for one in done.quarantined:
            self._warn(str(one))
        self._add(done.matches)
        return done.consumed > 0

    def _add_crashes_of_silent_logs(self, now: float) -> None:
        crashes = self._parts.silent(now, self.processes)
        self.counters.count_matches(crashes)
        self._add(crashes)

    def _add(self, matches: Sequence[Match]) -> None:
        self._matched = self._matched or bool(matches)
        self._is_urgent = self._is_urgent or any(match.source == "kernel" for match in matches)
        self.faults.note(matches, self._parts.catalogue, moment(self._clock()))
        matches = self._parts.attributed(matches, self.facts.gpus, self.processes.facts_of)
        self._parts.incidents.add(self.repeats.with_job_counts(self.processes.attached(matches), self.processes.job_of))

    def _report(self, diagnosis: Diagnosis, now: float) -> None:
        """Count a settled incident, once, and add it to the journal."""
        first = diagnosis.incident.first
        record = self._incident_record(diagnosis, now)
        is_there = first.source == "kernel" or self.facts.has(record["gpu"] or "")
        late, gpu, job = record["late"], record["gpu"], self._parts.job_shown(record)
        self.counters.count_incident(diagnosis, now, late=late, gpu=gpu, gpu_on_node=is_there, job=job)
        self.faults.add_settled(diagnosis, self._parts.catalogue, moment(now))
        self.jobs.add(record, now)
        if explains_job_end(diagnosis.incident, self._parts.catalogue):
            self.deaths.note(record)
        self.outbox.add(record)
        self._log.info("incident", **{name: record[name] for name in LOGGED})
        if diagnosis.role != "cascade":
            self.recent.appendleft(RecentIncident.of(diagnosis, record))

    def _incident_record(self, diagnosis: Diagnosis, now: float) -> dict[str, Any]:
        journal = self._parts.config.journal
        record = records.incident_record(
            diagnosis, self._parts.catalogue, self.node, redacted=journal.redact, excerpt_lines=journal.excerpt_lines
        )
        return record | records.recorded_fields(diagnosis, now, late_after=self._parts.config.incidents.late_after)

    def _before_drop(self, segment: int, path: Path) -> None:
        """Count the unsent incidents of a segment as lost, and commit, before it is deleted."""
        self.outputs.before_drop(segment, path)
        self.commit(self._clock())

    def _opening(self) -> str:
        return records.line(self.facts.record(self.node, moment(self._clock())))

    def _deliver(self) -> None:
        try:
            self.outbox.deliver(self.journal)
            self._gauges.journal_up = True
            self.outputs.wake(self.journal.end)
        except Exception as error:
            self._gauges.journal_up = False
            self._warn(f"journal cannot be written: {error}; records wait in the state file")

    def _publish(self) -> None:
        self._gauges.journal_segments_dropped = self.journal.dropped_segments
        self._gauges.quarantined = self._parts.pipeline.matcher.quarantine.at(self._clock())
        self.impaired = [
            f"source {s.name}: {s.stats.down_reason}" for s in self.sources if s.stats.up and s.stats.down_reason
        ]
        self.impaired += [one.unnamed for one in self._gauges.quarantined]
        self.hints = self.repeats.hints()
        self._snapshot = snapshot_of(
            self.counters,
            self._parts.catalogue,
            self._parts.pipeline,
            self.sources,
            self._gauges,
            facts=self.facts,
            failed_probes={
                **self.facts.failed,
                **self.driver.failed,
                **self.processes.failed,
                **self._parts.attribution.failed,
            },
            open_incidents=self._parts.incidents.open_by_signature(),
            exposures=self._exposures.of(self.facts.facts, self._parts.catalogue),
            outputs=self.outputs.states(self._clock()),
            faults=self.faults.open,
            job_incidents=self.jobs.values(self._clock(), self._parts.config.limits.job_series),
            pod_resources_up=self._parts.attribution.pod_resources_up,
            npd=self._parts.config.outputs.npd,
        )

    def _log_problems(self, what: str, problems: Sequence[str]) -> None:
        for problem in problems:
            self._log.error(f"{what} rejected", problem=problem)
        if not problems:
            self._log.info(f"{what} applied")
