"""One transaction: the positions of all logs, the counters, the open incidents and the journal's records.

Either all of it is stored or none: that is why a line is counted exactly once, whenever the process dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from exporter.metrics.counters import Counters
from exporter.store.outbox import Outbox
from exporter.store.state import State

Row = tuple[str, str, str | None]  # space, name, and a value or None to remove it


class Keeper(Protocol):
    """A part of the daemon that has rows in the state file."""

    def unsaved(self) -> Mapping[str, str | None]:
        """What has changed since `saved`: values by name, None for a row to remove."""

    def saved(self) -> None:
        """All of it has been committed."""


class Transaction:
    """Takes what has changed from each part and stores it at once."""

    def __init__(self, state: State, counters: Counters, outbox: Outbox) -> None:
        self.moved: list[Row] = []  # rows of logs that another source reads from now on, stored by the next commit
        self._state = state
        self._counters = counters
        self._outbox = outbox

    def commit(self, keepers: Mapping[str, Keeper]) -> None:
        """Store what the keepers, by the space of their rows, the counters and the outbox have not stored yet.

        Raises OSError, sqlite3.Error and StateUnusable. Nothing is stored then, and the next commit takes all of it along.
        """
        changed = (
            (space, name, value) for space, keeper in keepers.items() for name, value in keeper.unsaved().items()
        )
        rows, counters, records = [*self.moved, *changed], self._counters.unsaved(), self._outbox.uncommitted
        if rows or counters or records or not self._state.in_place:
            self._state.commit(rows, counters, records)
            self.moved = []
            for keeper in keepers.values():
                keeper.saved()
            self._counters.saved()
            self._outbox.saved()
