"""The interface of sources. A source returns chunks, is told what was consumed, and keeps its positions.

A source never blocks and reads a bounded amount per call. Errors of a log or a disk are counted, not raised. Positions are
in memory; the daemon stores them in the same transaction as the counters (see `exporter.store.state`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.core.model import Chunk


@dataclass(slots=True)
class SourceStats:
    """What one source has read, and what it could not read. All numbers but the gauges only grow."""

    up: bool = False
    down_reason: str = ""  # why it is down, or what of it can never be read: for /-/ready and doctor, with what to do
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
    stalled: str = ""  # which file systems do not answer, and since when
    stalled_seconds: float = 0.0  # gauge: for how long the first of them has not

    @property
    def blind(self) -> str:
        """Why something is not seen at the moment; empty if everything is."""
        return self.stalled or ("" if self.up else self.down_reason or "down")

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def defer(self, kind: str) -> None:
        self.deferred[kind] = self.deferred.get(kind, 0) + 1


class Source(Protocol):
    """One input of the daemon. Its `name` is stable across restarts and identifies the stored positions."""

    name: str
    stats: SourceStats
    overwritten: bool  # whether what is not read in time is gone: such a source is read first

    def poll(self, now: float) -> Iterable[Chunk | None]:
        """The new data, up to a bound; empty without any. `now` is Unix seconds. None: not yet; look at others, and go on.

        Call `advance` for each chunk before asking for the next. After an early stop, the rest is returned later.
        """

    def advance(self, log: str, consumed: int, lines: int) -> None:
        """Mark the first `consumed` bytes (`lines` newlines) of the latest chunk of `log` as consumed."""

    def unsaved(self) -> Mapping[str, str | None]:
        """Positions that changed since the last call of `saved`: key to JSON text, or None to remove the key."""

    def saved(self) -> None:
        """Record that the positions from `unsaved` have been committed."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there is new data; None without one."""

    def close(self) -> None:
        """Close all descriptors."""
