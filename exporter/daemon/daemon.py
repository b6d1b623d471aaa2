"""The node daemon: one loop reads the sources, commits, and updates /metrics and the journal. A failure is a metric."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.config.node import Config
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis import records
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.node_faults import OpenFaults
from exporter.core.diagnosis.repeated_xids import RepeatedXids
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import UNKNOWN, Chunk, SourceKind
from exporter.daemon import handover, source_factory
from exporter.daemon.metrics_snapshot import Exposures, Gauges, snapshot_of
from exporter.daemon.poll_scheduler import PollScheduler
from exporter.metrics.counters import Counters
from exporter.metrics.exposition import MetricsSnapshot
from exporter.metrics.series import possible_series
from exporter.node.facts import NodeFacts
from exporter.node.gpu_processes import GpuProcesses
from exporter.node.heartbeat import Heartbeat
from exporter.outputs.manager import Outputs
from exporter.process import malloc_tuning
from exporter.process.rate_limited_log import RateLimitedLog
from exporter.process.wake import Waker
from exporter.sources.base import Source
from exporter.sources.boot import moment
from exporter.store.journal import Journal
from exporter.store.outbox import Outbox
from exporter.store.state import State
from exporter.web.interface import RecentIncident

COMMIT_SECONDS = 1.0  # positions that moved without a match: re-reading a second's worth costs nothing
POLL_SECONDS = 0.5  # the longest nap: on file systems that send no events this is the latency
DRAIN_SECONDS = 1.5  # sources offer an unfinished last line after a second of quiet
BUSY_SECONDS = 1.0  # of rounds without a nap before the journal, the facts and systemd are looked at again
SHOWN_INCIDENTS = 20  # on the landing page

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class Daemon:
    """Everything that one node's daemon holds. Built by `cli.run`, driven by `run` (or step by step by tests)."""

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
        self.waker = Waker()
        self.recent: deque[RecentIncident] = deque(maxlen=SHOWN_INCIDENTS)
        self.last_round = self._started = clock()
        self._snapshot = MetricsSnapshot(())
        self.watching = False  # whether every source has been looked at
        self.impaired: list[str] = []  # what a job's log is to blame for
        self._log = log
        self._clock = clock
        self._say = RateLimitedLog(log.warning, clock)
        self._rounds = PollScheduler(self._consume, self._failed, self._between, clock)
        self._stats: dict[str, Any] = {}
        self._outcome = Gauges()
        self._last_commit = 0.0
        self._matched = False  # since the last commit
        self._moved: list[handover.Row] = []  # rows to be stored
        loaded = state.loaded
        self.ledger = Counters(loaded.counters, label_values=config.limits.label_values)
        if loaded.set_aside:
            self.ledger.add("gpufault_state_set_aside_total")
            log.error("damaged state file set aside; counting starts afresh", kept_as=str(loaded.set_aside))
        self.outbox = Outbox(state, self.ledger)
        self.faults = OpenFaults(loaded.spaces.get("faults", {}))
        self.repeats = RepeatedXids(loaded.spaces.get("repeats", {}))
        self.facts = facts or NodeFacts(config.facts, loaded.spaces.get("facts", {}))
        self.facts.refresh(clock(), wait=True)
        self.processes = GpuProcesses()
        self.heartbeat = Heartbeat(config.facts, self._started)
        self._exposures = Exposures()
        self.outputs = Outputs(node, self.snapshot, self.ledger, log, clock, whole=bool(loaded.set_aside))
        self._assemble(config, catalogue, first_start=loaded.first_start)
        self._publish()
        self.outbox.add(self.facts.record(node, clock()))
        self.commit(clock())

    # -- the loop

    def begin(self) -> None:
        """Run the first round. It skips what `start: end` excludes; whatever is written later is read from its first byte."""
        self.step()
        self.commit(self._clock())
        malloc_tuning.give_back()
        self.outputs.start()
        self._log.info("watching", **{source.name: source.stats.down_reason or "up" for source in self.sources})

    def run(self, stop: threading.Event, *, each_round: Callable[[], None] = lambda: None) -> None:
        """Work until `stop` is set (wake the waker then)."""
        looked = time.monotonic()
        while not stop.is_set():
            busy = self.step()
            if not busy or time.monotonic() - looked >= BUSY_SECONDS:
                self.background()
                each_round()
                looked = time.monotonic()
            if not busy:
                self.waker.wait(self._descriptors(), POLL_SECONDS)
        self.finish()

    def step(self) -> bool:
        """One round over all sources; True if something was read."""
        self.last_round = self._clock()
        busy = self._rounds.read(self.sources)
        self.watching = True
        now = self.last_round
        told = self.casebook.settle(now, self.facts.at)
        for diagnosis in told:
            self._tell(diagnosis, now)
        for diagnosis in self.casebook.close_expired(now, self.facts.at):
            self.outbox.add(self._incident_record(diagnosis, now))
        if self._matched or told or now - self._last_commit >= COMMIT_SECONDS or now < self._last_commit:
            self.commit(now)
        return busy

    def background(self) -> None:
        """What need not be done in every round: facts, GPU processes, heartbeat, journal."""
        now = self._clock()
        if self.facts.refresh(now):
            self.outbox.add(self.facts.record(self.node, now))
            self._start_at_zero()
        if self.facts.vendors:
            self.processes.look(now, self.config.facts.processes)
        if self.heartbeat.look(now, self.config.facts, self.facts.gpus, self.processes):
            self.outbox.add(self.heartbeat.record(self.node, now, self.facts.gpus))
        self._deliver()

    def drain(self) -> None:
        """Read all that is there, last lines without newline too, and tell of all that it showed (`--once`)."""
        quiet_since = self._clock()
        while self._clock() - quiet_since < DRAIN_SECONDS:
            if self.step():
                quiet_since = self._clock()
            else:
                self.waker.wait(self._descriptors(), DRAIN_SECONDS / 10)
        for diagnosis in self.casebook.settle(now := self._clock(), self.facts.at, everything=True):
            self._tell(diagnosis, now)
        self.commit(now)

    def finish(self) -> None:
        """Commit, write out the journal and let go of everything."""
        now = self._clock()
        self.outbox.add(self.heartbeat.record(self.node, now, self.facts.gpus))
        self.commit(now)
        self._deliver()
        self.outputs.stop()
        for source in self.sources:
            source.close()
        self.commit(now)
        self.journal.close()

    # -- one transaction

    def commit(self, now: float) -> None:
        """Store positions, counters, open incidents and records at once, then show what was stored."""
        self.faults.refresh(self.casebook, self.facts.at, self.catalogue, moment(now))  # also if the disk is the fault
        rows = [*self._moved]
        for source in self.sources:
            self.ledger.lose(source.name, source.stats)
            for key, value in source.unsaved().items():
                rows.append((handover.space_of(source.name), key, value))
                if value is None:
                    self.pipeline.forget(key)
        keepers = (
            ("logs", self.pipeline),
            ("incidents", self.casebook),
            ("facts", self.facts),
            ("faults", self.faults),
            ("repeats", self.repeats),
            ("outputs", self.outputs),
        )
        for space, keeper in keepers:
            rows += [(space, key, value) for key, value in keeper.unsaved().items()]
        counters, waiting = self.ledger.unsaved(), self.outbox.waiting
        in_place = self.state.in_place
        if rows or counters or waiting or not in_place:
            if not in_place:
                self._say("the state was deleted or replaced while in use; writing it anew. Stop gpufault before that")
            try:
                self.state.commit(rows, counters, waiting)
            except Exception as error:
                self._outcome.state_up = False
                self._snapshot = self._snapshot.but("gpufault_state_up", 0.0)  # what was counted since may be lost yet
                self._say(f"state cannot be written: {error}; free space or fix the disk; counting goes on in memory")
                return
            for _, keeper in keepers:
                keeper.saved()
            for source in self.sources:
                source.saved()
            self.ledger.saved()
            self.outbox.saved()
            self._moved = []
        self._outcome.state_up = True
        self._matched = False
        self._outcome.commit_time = self._last_commit = now
        self._publish()

    # -- the web server's view (called from its thread)

    def snapshot(self) -> MetricsSnapshot:
        return self._snapshot

    def not_seeing(self) -> list[str]:
        if not self.watching:
            return ["initial scan of the sources in progress"]
        return [f"source {s.name}: {s.stats.down_reason}" for s in self.sources if not s.stats.up]

    def not_ready(self) -> list[str]:
        return self.not_seeing() + self._outcome.reasons()

    # -- parts

    def assemble_again(self, config: Config, catalogue: Catalogue) -> None:
        """Apply a new configuration: commit, then rebuild everything from the state."""
        now = self._clock()
        for diagnosis in self.casebook.settle_before_removal(catalogue.signatures, self.facts.at):
            self._tell(diagnosis, now)
        self.commit(now)
        if not self._outcome.state_up:
            raise OSError("state cannot be written, so nothing may be rebuilt from it; free space or fix the disk")
        self.watching = False
        self._stats |= {source.name: source.stats for source in self.sources}
        for source in self.sources:
            source.close()
        self.commit(now)  # what a source holds of a line that has begun
        self.journal.close()
        self.facts.use(config.facts)
        self._assemble(config, catalogue, first_start=False)
        self.step()  # whoever asked for it is told when the new sources have been looked at
        self.commit(self._clock())

    def reloaded(self, problems: Sequence[str]) -> None:
        """Remember how a reload went."""
        self._outcome.reload_ok = not problems
        self._say_taken("configuration", problems)
        self._snapshot = self._snapshot.but("gpufault_config_last_reload_successful", float(not problems))

    def web_config_read(self, problems: Sequence[str], in_force_since: float) -> None:
        """Remember how reading the web configuration went. From any thread: the next commit shows it."""
        self._outcome.web_config_ok = not problems
        self._outcome.web_config_time = in_force_since
        self._say_taken("web configuration", problems)

    def _assemble(self, config: Config, catalogue: Catalogue, *, first_start: bool) -> None:
        self.config = config
        self.catalogue = catalogue
        spaces = self.state.load().spaces
        self._moved = source_factory.moved(config, spaces)
        spaces = handover.changed(spaces, self._moved)
        self.pipeline = Pipeline(
            catalogue,
            engine=config.signatures.engine,
            utc_offset=time.localtime().tm_gmtoff,
            line_bytes=config.limits.line_bytes,
            window=config.incidents.window,
            clock=time.thread_time,  # CPU time: a log is not to blame for a busy machine
        )
        self.pipeline.restore(spaces.get("logs", {}))
        incidents = config.incidents
        self.casebook = IncidentTracker(
            catalogue, self.node, window=incidents.window, settle=incidents.settle, stored=spaces.get("incidents", {})
        )
        for incident in self.casebook.undiagnosable:
            self.ledger.count_root(incident, UNKNOWN, "unclear")
            self._say(
                f"an incident of {incident.signature} is counted without a diagnosis: no pack has that signature now"
            )
        self.sources: list[Source] = source_factory.build(
            config, spaces, first_start=first_start, say=self._say, wake=self.waker.wake
        )
        for source in self.sources:
            source.stats = self._stats.get(source.name, source.stats)
        self.journal = Journal(config.journal_dir, config.journal.max_bytes, self._opening, self._before_drop)
        self.outputs.use(config.outputs, self.journal, spaces.get("outputs", {}))
        self._outcome.reload_time = self._clock()
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Every pair that can occur on this node, so that `increase()` sees a first crash."""
        kinds: set[SourceKind] = {"kernel" if item.kind == "kmsg" else "job" for item in self.config.sources}
        self.ledger.start_at_zero(possible_series(self.catalogue, kinds, self.facts.vendors))

    def _failed(self, source: Source, error: Exception) -> None:
        self._outcome.source_errors[source.name] = self._outcome.source_errors.get(source.name, 0) + 1
        self._say(f"source {source.name} failed: {error!r}; please report it")

    def _between(self) -> None:
        """In a long round, what is done is safe from a kill."""
        now = self._clock()
        if now - self.last_round >= COMMIT_SECONDS:
            self.last_round = now
            self.commit(now)

    def _consume(self, source: Source, chunk: Chunk) -> bool:
        """Take in a chunk; True if some of it is done with."""
        done = self.pipeline.process(chunk)
        source.advance(chunk.log, done.consumed, done.newlines)
        self._matched = self._matched or bool(done.matches)
        self.ledger.read(done, chunk.source)
        for one in done.quarantined:
            self._say(str(one))
        self.casebook.add(self.repeats.with_job_counts(self.processes.attached(done.matches), self.processes.job_of))
        return done.consumed > 0

    def _tell(self, diagnosis: Diagnosis, now: float) -> None:
        """Count an incident that settled, once, and put it into the journal."""
        incident, first = diagnosis.incident, diagnosis.incident.first
        record = self._incident_record(diagnosis, now)
        is_there = first.source == "kernel" or self.facts.has(record["gpu"] or "")
        self.ledger.tell(diagnosis, now, late=record["late"], gpu=record["gpu"], gpu_there=is_there)
        self.faults.add_settled(diagnosis, self.catalogue, moment(now))
        self.outbox.add(record)
        self._log.info(
            "incident",
            signature=incident.signature,
            root_cause=diagnosis.root_cause,
            role=diagnosis.role,
            verdict=diagnosis.verdict,
            path=record["path"],
            line=record["line"],
            id=diagnosis.id,
            late=record["late"],
        )
        if diagnosis.role != "cascade":
            self.recent.appendleft(RecentIncident.of(diagnosis, record))

    def _incident_record(self, diagnosis: Diagnosis, now: float) -> dict[str, Any]:
        journal = self.config.journal
        record = records.incident_record(
            diagnosis, self.catalogue, self.node, redacted=journal.redact, excerpt_lines=journal.excerpt_lines
        )
        return record | records.recorded_fields(diagnosis, now, late_after=self.config.incidents.late_after)

    def _before_drop(self, segment: int, path: Path) -> None:
        """What a segment holds that nobody has received is counted as lost, and committed, before it goes."""
        self.outputs.before_drop(segment, path)
        self.commit(self._clock())

    def _opening(self) -> str:
        return records.line(self.facts.record(self.node, self._clock()))

    def _deliver(self) -> None:
        try:
            self.outbox.deliver(self.journal)
            self._outcome.journal_up = True
            self.outputs.wake(self.journal.end)
        except Exception as error:
            self._outcome.journal_up = False
            self._say(f"journal cannot be written: {error}; records wait in the state file")

    def _publish(self) -> None:
        self._outcome.journal_segments_dropped = self.journal.dropped_segments
        self._outcome.quarantined = self.pipeline.matcher.quarantine.at(self._clock())
        self.impaired = [str(one) for one in self._outcome.quarantined]
        self._snapshot = snapshot_of(
            self.ledger,
            self.catalogue,
            self.pipeline,
            self.sources,
            self._outcome,
            facts=self.facts,
            failed_probes={**self.facts.failed, **self.processes.failed},
            open_incidents=self.casebook.open_by_signature(),
            exposures=self._exposures.of(self.facts.facts, self.catalogue),
            outputs=self.outputs.states(self._clock()),
            npd=self.faults.current if self.config.outputs.npd else None,
        )

    def _descriptors(self) -> list[int]:
        return [fd for source in self.sources if (fd := source.fileno()) is not None]

    def _say_taken(self, what: str, problems: Sequence[str]) -> None:
        for problem in problems:
            self._log.error(f"{what} rejected", problem=problem)
        if not problems:
            self._log.info(f"{what} applied")
