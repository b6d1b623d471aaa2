"""The node daemon: its main loop reads, diagnoses and commits, and reloads the configuration. Failures become metrics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from exporter.core.catalogue.loader import Catalogue
from exporter.core.model import Match
from exporter.daemon.casebook import Casebook
from exporter.daemon.committer import Committer
from exporter.daemon.ingest import Ingest
from exporter.daemon.node_watch import NodeWatch
from exporter.metrics.counters import Counters
from exporter.metrics.exposition import MetricsSnapshot
from exporter.node.facts import NodeFacts
from exporter.process import malloc_tuning
from exporter.process.own_log import RateLimitedLog
from exporter.sources.base import Source
from exporter.store.outbox import Outbox
from exporter.store.state import State

POLL_SECONDS = 0.5  # the longest nap: on file systems that send no events this is the latency
DRAIN_SECONDS = 1.5  # sources offer an unfinished last line after a second of quiet
ANSWER_SECONDS = 60.0  # for a file system or a busy machine, within which nothing is quiet
BUSY_SECONDS = 1.0  # of rounds without a nap before the journal, the facts and systemd get their turn

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from exporter.config.node import Config


class Daemon:
    """The daemon of one node. Created by `cli.run`; `run` drives it (tests call `step` instead).

    The ingest turns logs into matches, the casebook turns matches into incidents, and the committer stores and shows them.
    """

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
        self.last_round = clock()
        self._log = log
        self._clock = clock
        self._warn = RateLimitedLog(log.warning, clock)
        loaded = state.loaded
        counters = Counters(loaded.counters, label_values=config.limits.label_values)
        if loaded.set_aside:
            counters.add("gpufault_state_set_aside_total")
            log.error("damaged state file set aside; counting starts afresh", kept_as=str(loaded.set_aside))
        outbox = Outbox(state, counters)
        facts = facts or NodeFacts(config.facts, loaded.spaces.get("facts", {}))
        self.watch = NodeWatch(node, facts, config.facts, clock())
        self.ingest = Ingest(counters, self._warn, clock, on_matches=self._add, between=self._commit_in_round)
        self.casebook = Casebook(self.watch, counters, outbox, loaded.spaces, log)
        self.committer = Committer(
            state, counters, outbox, ingest=self.ingest, casebook=self.casebook, watch=self.watch, log=log,
            warn=self._warn, clock=clock,
        )  # fmt: skip
        self._use(config, catalogue, first_start=loaded.first_start)
        self.committer.publish()
        self.casebook.add_facts_record(clock())
        self.commit(clock())

    # -- the loop

    def begin(self) -> None:
        """Run the first round. It skips what `start: end` excludes; whatever is written later is read from its first byte."""
        self.step()
        self.commit(self._clock())
        malloc_tuning.release_memory()
        self.committer.outputs.start()
        self._log.info("watching", **{source.name: source.stats.down_reason or "up" for source in self.sources})

    def run(self, stop: threading.Event, *, after_round: Callable[[], None] = lambda: None) -> None:
        """Run until `stop` is set; wake the waker after setting it."""
        background_at = time.monotonic()
        while not stop.is_set():
            busy = self.step()
            if not busy or time.monotonic() - background_at >= BUSY_SECONDS:
                self.background()
                after_round()
                background_at = time.monotonic()
            self.ingest.wait(self.committer.seconds_left(self._clock(), POLL_SECONDS), busy=busy)
        self.finish()

    def step(self) -> bool:
        """One round over all sources; True if something was read."""
        self.last_round = now = self._clock()
        self.casebook.add_ended_jobs(self.watch.ended_jobs(now), now)
        busy = self.ingest.read()
        self._add_silent(now)
        has_settled = self.casebook.report_due(now)
        if has_settled or self.committer.is_due(now):
            self.commit(now)
        return busy

    def background(self) -> None:
        """Do the work that is not needed in every round: facts, GPU processes, heartbeat, journal."""
        self.casebook.refresh_node(self._clock())
        self.committer.deliver()

    def drain(self) -> None:
        """Read everything available, including last lines without newline, and report all incidents (`--once`)."""
        quiet_since = self._clock()
        while self._clock() - quiet_since < (ANSWER_SECONDS if self.ingest.is_reading else DRAIN_SECONDS):
            if self.step():
                quiet_since = self._clock()
            else:
                self.ingest.wait(DRAIN_SECONDS / 10)
        self._add_silent(math.inf)  # no log will go on
        now = self._clock()
        self.casebook.report_all(now)
        self.commit(now)

    def finish(self) -> None:
        """Commit, write the journal and close everything."""
        now = self._clock()
        self.casebook.add_heartbeat(now)
        self.commit(now)
        self.committer.deliver()
        self.committer.outputs.stop()
        self.ingest.end()
        self.commit(now)
        self.committer.journal.close()

    def commit(self, now: float) -> None:
        self.committer.commit(now)

    # -- the web server's view (called from its thread)

    @property
    def sources(self) -> Sequence[Source]:
        return self.ingest.sources

    def snapshot(self) -> MetricsSnapshot:
        return self.committer.snapshot()

    def not_ready(self) -> list[str]:
        return self.ingest.blind() + self.committer.gauges.reasons()

    # -- configuration

    def reload(self, config: Config, catalogue: Catalogue) -> None:
        """Apply a new configuration: commit, then rebuild everything from the state."""
        now = self._clock()
        self.casebook.report_before_removal(catalogue, now)
        self.commit(now)
        if not self.committer.gauges.state_up:
            raise OSError("state cannot be written, so nothing may be rebuilt from it; free space or fix the disk")
        self.ingest.close()
        self.commit(now)  # what a source holds of a line that has begun
        self.committer.journal.close()
        self.watch.facts.use(config.facts)
        self._use(config, catalogue, first_start=False)
        self.step()  # the reload is answered only after the new sources have been read
        self.commit(self._clock())

    def reloaded(self, problems: Sequence[str]) -> None:
        self._log_problems("configuration", problems)
        self.committer.reload_ended(ok=not problems)

    def web_config_read(self, problems: Sequence[str], applied_at: float) -> None:
        """Record the result of reading the web configuration, for the next commit. Thread-safe."""
        self.committer.gauges.web_config_ok = not problems
        self.committer.gauges.web_config_time = applied_at
        self._log_problems("web configuration", problems)

    def _use(self, config: Config, catalogue: Catalogue, *, first_start: bool) -> None:
        """Rebuild all parts from the configuration, its packs and the state."""
        stored = self.state.load().spaces
        moved = self.ingest.use(config, catalogue, stored, node=self.node, first_start=first_start)
        self.watch.use(config, self.ingest.node_jobs, self.ingest.lanes, self._clock)
        self.casebook.use(config, catalogue, stored, self.ingest, self._warn)
        self.committer.use(config, stored, moved)
        self.casebook.start_at_zero()

    # -- parts of a round

    def _add(self, matches: Sequence[Match]) -> None:
        self.committer.expect(matches)
        self.casebook.add(matches, self._clock())

    def _add_silent(self, now: float) -> None:
        ended = self.watch.attribution.over(now)
        self._add(self.ingest.matches_of_silence(now, self.watch.processes.jobs, ended))

    def _commit_in_round(self) -> None:
        """Commit during a long round: so that a kill loses little work, and that what the kernel reports is shown."""
        now = self._clock()
        if self.committer.is_due_in_round(now - self.last_round):
            self.last_round = now
            self.commit(now)

    def _log_problems(self, subject: str, problems: Sequence[str]) -> None:
        for problem in problems:
            self._log.error(f"{subject} rejected", problem=problem)
        if not problems:
            self._log.info(f"{subject} applied")
