"""Records on their way into the journal: in memory until they are committed, in the state until the journal has them.

Neither may grow without end while a disk is full: the oldest go then, and are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from exporter.core.diagnosis import records
from exporter.metrics.counters import Counters
from exporter.store.journal import Journal
from exporter.store.state import State

MAX_WAITING = 16 << 20  # characters in memory, while the state cannot be written: 5,000 incidents
MAX_STORED = 50_000  # records in the state, while the journal cannot be written: 150 MB
LOST = "gpufault_journal_records_lost_total"


class Outbox:
    """Belongs to the daemon's loop."""

    def __init__(self, state: State, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._waiting: deque[str] = deque()
        self._characters = 0
        counters.start_at_zero([(LOST, ())])

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record; the next commit stores it."""
        self._counters.add("gpufault_journal_records_total", str(record["kind"]))
        line = records.line(record)
        self._waiting.append(line)
        self._characters += len(line)
        while self._characters > MAX_WAITING:
            self._characters -= len(self._waiting.popleft())
            self._counters.add(LOST)

    @property
    def waiting(self) -> list[str]:
        """What is not committed yet, the oldest first."""
        return list(self._waiting)

    def saved(self) -> None:
        """All of it has been committed."""
        self._waiting.clear()
        self._characters = 0

    def deliver(self, journal: Journal) -> None:
        """Move what is committed into the journal. Raises OSError and sqlite3.Error where it has to wait."""
        try:
            while stored := self._state.outbox():
                journal.append([text for _, text in stored])
                self._state.delivered(stored[-1][0])
        except OSError:
            self._counters.add(LOST, by=self._state.keep_newest(MAX_STORED))
            raise
