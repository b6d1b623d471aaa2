"""What every source is: something that hands out chunks, is told what was consumed, and can be put away and woken.

A source never blocks, reads a bounded amount a call, and raises nothing for what a log or a disk does to it: it counts.
It keeps its positions in memory; the daemon stores them in the same transaction as the counters (see `exporter.store.state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.core.model import Chunk


@dataclass(slots=True)
class SourceStats:
    """The proof of sight of one source: what it saw and what it could not. All numbers only grow, but for the gauges."""

    up: bool = False
    down_reason: str = ""  # a sentence for /-/ready and doctor, with what to do
    bytes_read: int = 0
    rotations: int = 0
    truncations: int = 0
    lost_records: int = 0  # kernel records that were overwritten before they could be read
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> skipped files or lines
    deferred: dict[str, int] = field(default_factory=dict)  # what had to wait -> polls in which it did
    last_read: float | None = None
    files: int = 0  # gauge: files tracked
    open_files: int = 0  # gauge
    lag_bytes: int = 0  # gauge: seen but not yet consumed
    lag_seconds: float = 0.0  # gauge: age of the oldest byte not yet consumed

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def defer(self, what: str) -> None:
        self.deferred[what] = self.deferred.get(what, 0) + 1


class Source(Protocol):
    """One input of the daemon. `name` is stable over restarts: stored positions are found by it."""

    name: str
    stats: SourceStats
    overwritten: bool  # whether what is not read in time is gone: such a source is read first

    def poll(self, now: float) -> Iterable[Chunk]:
        """What is there now, at most a bounded amount; empty when nothing is. `now` is Unix seconds.

        Each chunk is consumed (`advance`) before the next one is asked for. A caller that stops early gets the rest later.
        """

    def advance(self, log: str, consumed: int, lines: int) -> None:
        """The first `consumed` bytes (`lines` newlines) of the chunk handed out for `log` are done with."""

    def unsaved(self) -> Mapping[str, str | None]:
        """Positions that changed since `saved` was last called: key to JSON text, or None to forget the key."""

    def saved(self) -> None:
        """The positions that `unsaved` told have been committed."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there is news, for the daemon's wait; None without such a descriptor."""

    def close(self) -> None:
        """Let go of every descriptor."""
