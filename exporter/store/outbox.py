"""The queue of records for the journal: in memory until committed, then in the state file until the journal has them.

Both are bounded: while a disk is full, the oldest records are discarded and counted.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from exporter.core.diagnosis import records
from exporter.metrics.counters import Counters
from exporter.store.journal import Journal
from exporter.store.state import State

MAX_UNCOMMITTED_CHARS = 16 << 20  # in memory, while the state cannot be written: 5,000 incidents
MAX_COMMITTED = 50_000  # records in the state file, while the journal cannot be written: 150 MB
LOST = "gpufault_journal_records_lost_total"


class Outbox:
    """Takes records, and moves them to the journal once they are committed. Used only by the daemon's main loop."""

    def __init__(self, state: State, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._uncommitted: deque[str] = deque()
        self._characters = 0
        counters.start_at_zero([(LOST, ())])

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record; the next commit stores it."""
        self._counters.add("gpufault_journal_records_total", str(record["kind"]))
        line = records.line(record)
        self._uncommitted.append(line)
        self._characters += len(line)
        while self._characters > MAX_UNCOMMITTED_CHARS:
            self._characters -= len(self._uncommitted.popleft())
            self._counters.add(LOST)

    @property
    def uncommitted(self) -> list[str]:
        """Records that are not committed yet, oldest first."""
        return list(self._uncommitted)

    def saved(self) -> None:
        """Record that all of `uncommitted` has been committed."""
        self._uncommitted.clear()
        self._characters = 0

    def deliver(self, journal: Journal) -> None:
        """Move committed records to the journal. Raises OSError or sqlite3.Error; the records then wait for the next call."""
        try:
            while stored := self._state.outbox():
                journal.append([text for _, text in stored])
                self._state.remove_delivered(stored[-1][0])
        except OSError:
            self._counters.add(LOST, by=self._state.keep_newest(MAX_COMMITTED))
            raise
