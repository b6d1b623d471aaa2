"""Stores what happened, then shows it: the state, the journal, the outputs and the snapshot behind /metrics."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.config.plain import journal_folder
from exporter.core.diagnosis import records
from exporter.core.model import Match
from exporter.daemon.casebook import Casebook
from exporter.daemon.handover import Keeper, Row, Stored
from exporter.daemon.ingest import Ingest
from exporter.daemon.metrics_snapshot import Exposures, Gauges, snapshot_of
from exporter.daemon.node_watch import NodeWatch
from exporter.daemon.pacing import CommitPace
from exporter.metrics.counters import Counters
from exporter.metrics.exposition import MetricsSnapshot
from exporter.outputs.manager import Outputs
from exporter.store.journal import Journal
from exporter.store.outbox import Outbox
from exporter.store.state import State, StateUnusable

URGENT_SECONDS = 0.2  # in a round, until a match of the kernel's log is committed
COMMIT_SECONDS = 1.0  # positions that moved without a match: re-reading a second's worth costs nothing

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from exporter.config.node import Config


class Committer:
    """Commits the ingest and the casebook in one transaction. Call `use` before anything else.

    impaired, hints: as of the last commit, for the web server's threads.
    """

    journal: Journal

    def __init__(
        self,
        state: State,
        counters: Counters,
        outbox: Outbox,
        *,
        ingest: Ingest,
        casebook: Casebook,
        watch: NodeWatch,
        log: FilteringBoundLogger,
        warn: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.gauges = Gauges()
        self.impaired: list[str] = []
        self.hints: list[str] = []
        self._snapshot = MetricsSnapshot(())
        self._state = state
        self._counters = counters
        self._outbox = outbox
        self._ingest = ingest
        self._casebook = casebook
        self._watch = watch
        self._warn = warn
        self._clock = clock
        self._moved: list[Row] = []
        from_start = bool(state.loaded.set_aside)
        self.outputs = Outputs(watch.node, self.snapshot, counters, log, clock, from_start=from_start)
        self._exposures = Exposures()
        self._pace = CommitPace()
        self._last_commit = 0.0
        self._has_matches = self._is_urgent = False  # since the last commit

    def use(self, config: Config, stored: Stored, moved: Sequence[Row]) -> None:
        """Apply settings. moved: rows of logs that another source reads from now on."""
        self._config = config
        self._moved = [*moved]
        self.journal = Journal(journal_folder(config), config.journal.max_bytes, self._first_line, self._before_drop)
        self.outputs.use(config.outputs, self.journal, stored.get("outputs", {}))
        self.gauges.reload_time = self._clock()

    def snapshot(self) -> MetricsSnapshot:
        return self._snapshot

    # -- when to commit

    def expect(self, matches: Sequence[Match]) -> None:
        """Commit soon, because of these matches; at once, if the kernel reported one."""
        self._has_matches = self._has_matches or bool(matches)
        self._is_urgent = self._is_urgent or any(match.source == "kernel" for match in matches)

    def is_due(self, now: float) -> bool:
        if self._is_urgent or (self._has_matches and self._pace.seconds_left(now) <= 0):
            return True
        return now - self._last_commit >= COMMIT_SECONDS or now < self._last_commit

    def is_due_in_round(self, seconds: float) -> bool:
        """Whether to commit in the middle of a round, so many seconds after its start or its last commit."""
        return seconds >= (URGENT_SECONDS if self._is_urgent else COMMIT_SECONDS)

    def seconds_left(self, now: float, at_most: float) -> float:
        """Seconds until matches may be committed; `at_most` without matches."""
        return min(at_most, self._pace.seconds_left(now)) if self._has_matches else at_most

    # -- one transaction

    def commit(self, now: float) -> None:
        """Store positions, counters, open incidents and records in one transaction, then publish the metrics."""
        if self._has_matches:
            self._pace.committed(now)  # also if it fails: a full disk is not tried all the time
        self._casebook.prepare_commit(now)
        self._ingest.prepare_commit()
        if not self._state.in_place:
            self._warn("the state was deleted or replaced while in use; writing it anew. Stop gpufault before that")
        try:
            self._store()
        except (OSError, sqlite3.Error, StateUnusable) as error:
            self.gauges.state_up = False
            self._snapshot = self._snapshot.with_value("gpufault_state_up", 0.0)  # what was counted since may be lost
            self._warn(f"state cannot be written: {error}; free space or fix the disk; counting goes on in memory")
            return
        self.gauges.state_up = True
        self._has_matches = self._is_urgent = False
        self.gauges.commit_time = self._last_commit = now
        self.publish()

    def _store(self) -> None:
        """Store all changes or none, so that each line is counted exactly once, whenever the process dies.

        Raises OSError, sqlite3.Error, StateUnusable; the next commit then stores all of it.
        """
        keepers: dict[str, Keeper] = self._ingest.keepers() | self._casebook.keepers() | {"outputs": self.outputs}
        changed = (
            (space, name, value) for space, keeper in keepers.items() for name, value in keeper.unsaved().items()
        )
        rows, counters, records = [*self._moved, *changed], self._counters.unsaved(), self._outbox.uncommitted
        if not (rows or counters or records) and self._state.in_place:
            return
        self._state.commit(rows, counters, records)
        self._moved = []
        for keeper in keepers.values():
            keeper.saved()
        self._counters.saved()
        self._outbox.saved()

    def publish(self) -> None:
        """Show what has been committed: in /metrics and on the pages."""
        now = self._clock()
        self.gauges.journal_segments_dropped = self.journal.dropped_segments
        self.gauges.quarantined = self._ingest.quarantined()
        self.impaired = self._ingest.impaired(self.gauges.quarantined)
        self.hints = self._casebook.hints()
        self._snapshot = snapshot_of(
            self._counters,
            self.gauges,
            self._ingest,
            self._casebook,
            self._watch,
            outputs=self.outputs.states(now),
            exposures=self._exposures.of(self._watch.facts.facts, self._casebook.catalogue),
            job_incidents=self._casebook.jobs.values(now, self._config.limits.job_series),
            npd=self._config.outputs.npd,
        )

    def deliver(self) -> None:
        """Move committed records to the journal, and have the outputs send them."""
        try:
            self._outbox.deliver(self.journal)
            self.gauges.journal_up = True
            self.outputs.wake(self.journal.end)
        except Exception as error:
            self.gauges.journal_up = False
            self._warn(f"journal cannot be written: {error}; records wait in the state file")

    def reload_ended(self, *, ok: bool) -> None:
        """Show the result of a reload at once."""
        self.gauges.reload_ok = ok
        self._snapshot = self._snapshot.with_value("gpufault_config_last_reload_successful", float(ok))

    def _first_line(self) -> str:
        return records.line(self._watch.facts_record(self._clock()))

    def _before_drop(self, segment: int, path: Path) -> None:
        """Count the unsent incidents of a segment as lost, and commit, before it is deleted."""
        self.outputs.before_drop(segment, path)
        self.commit(self._clock())
