"""Stores positions, counters, open incidents and journal records in one transaction.

All of it is stored or none. So each line is counted exactly once, whenever the process dies.
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
        """Record that all of `unsaved` has been committed."""


class Transaction:
    """Collects the changes of all parts and stores them at once."""

    def __init__(self, state: State, counters: Counters, outbox: Outbox) -> None:
        self.moved: list[Row] = []  # rows of logs that another source reads from now on, stored by the next commit
        self._state = state
        self._counters = counters
        self._outbox = outbox

    def commit(self, keepers: Mapping[str, Keeper]) -> None:
        """Store the unsaved changes of the keepers (by key space), the counters and the outbox.

        Raises OSError, sqlite3.Error, StateUnusable. Then nothing is stored, and the next commit stores all of it.
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
