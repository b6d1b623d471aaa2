"""How pulling goes: of each node its state and counts, and of all of them what the metrics show.

All labels of the metrics are from short fixed lists; no node has a series.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from exporter.fleet.history.pulled import REFUSED_NAME, PullCursor, TargetRow
from exporter.fleet.pull.step import DROPPED, REASONS, REPLACED
from exporter.fleet.pull.targets import Target
from exporter.metrics.counters import Labels, Metric

# States of a node: pulled to its end; more is waiting; not tried yet; not reachable; refuses us; answers what is not a
# journal; sends more than a journal can hold.
OK, CATCHING_UP, NEW, UNREACHABLE, REFUSED, INVALID, LIMITED = STATES = (
    "ok", "behind", "new", "unreachable", "refused", "invalid", "limited",
)  # fmt: skip
_UNREACHABLE = ("connect", "tls", "timeout", "protocol")

BURST_BYTES = 1 << 30  # a journal has 256 MiB by default
BYTES_PER_SECOND = 16 << 10  # 1.3 GiB a day; a busy node writes some MB
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 10.0, 600.0


@dataclass(slots=True)
class NodeStatus:
    """One node that is pulled. tag: of the list of segments when all of it was read.

    Times are of the monotonic clock, those of `row` Unix seconds.
    """

    target: Target
    cursor: PullCursor | None
    row: TargetRow
    tag: str = ""
    due: float = 0.0
    failures: int = 0
    room: float = 0.0  # bytes that it may send now
    room_at: float = 0.0
    current_at: float | None = None  # when it was last read to its end, or began to fail

    @classmethod
    def new(
        cls, target: Target, cursor: PullCursor | None, row: TargetRow | None, *, now: float, at: float
    ) -> NodeStatus:
        """As stored by an earlier process, if it was. now: in Unix seconds; at: the same by the monotonic clock."""
        fresh = TargetRow(
            node=target.node, address=target.base, state=NEW, what="", pulled=None, failing_since=None, behind=0, bytes=0,
            records=0, refused=0, lost_segments=0,
        )  # fmt: skip
        row = fresh if row is None else replace(row, address=target.base)
        since = row.pulled if row.pulled is not None else row.failing_since
        current_at = None if since is None else at - max(now - since, 0.0)
        return cls(target, cursor, row, due=at, room=BURST_BYTES, room_at=at, current_at=current_at)

    def failed(self, reason: str, message: str, *, now: float, at: float) -> None:
        """A request failed: wait longer each time."""
        self.failures += 1
        state = UNREACHABLE if reason in _UNREACHABLE else REFUSED if reason == "refused" else INVALID
        since = self.row.failing_since if self.row.failing_since is not None else now
        self.row = replace(self.row, state=state, what=message[:300], failing_since=since)
        self.current_at = at if self.current_at is None else self.current_at
        self.due = at + min(FIRST_RETRY_SECONDS * 2 ** min(self.failures - 1, 10), MAX_RETRY_SECONDS)

    def read(self, size: int, bytes_left: int, *, more: bool, now: float, at: float, interval: float) -> None:
        """A range was read and stored."""
        self.failures = 0
        self.room = min(self.room + (at - self.room_at) * BYTES_PER_SECOND, BURST_BYTES) - size
        self.room_at = at
        self.due = at + (0.0 if more and size else min(1.0, interval) if more else interval)
        state, message = (CATCHING_UP, "") if more else (OK, "")
        if self.room < 0:
            self.due = at - self.room / BYTES_PER_SECOND + interval
            state, message = LIMITED, f"sends more than {BYTES_PER_SECOND * 86400 / 1e9:.1f} GB a day; the rest waits"
        row = replace(
            self.row, state=state, what=message, failing_since=None, behind=bytes_left, bytes=self.row.bytes + size
        )
        if not more:
            row, self.current_at = replace(row, pulled=now), at
        self.row = row


@dataclass(slots=True)
class PullCounts:
    """What happened since the start, and how it stands; what the metrics show. Replaced values, not locks: one writer."""

    bytes: int = 0
    records: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    targets: dict[str, int] = field(default_factory=dict)
    lag: dict[str, float] = field(default_factory=dict)  # by state: the longest time since a node was read to its end
    discovery_ok: bool = True
    discovery_problem: str = ""


FAILURES = ("connect", "timeout", "tls", "protocol", "refused", "answer", "settings", "internal")
_STATES = ", ".join(f"`{state}`" for state in STATES)

PULL_METRICS: dict[str, Metric] = {
    "gpufault_fleet_pull_targets": Metric(
        "gauge", ("state",), f"Nodes whose journals are pulled, by state: {_STATES}. Which ones: `/api/v1/targets`."
    ),
    "gpufault_fleet_pull_lag_seconds": Metric(
        "gauge", ("state",), "Of the nodes in a state, the longest time since one was read to the end of its journal."
    ),
    "gpufault_fleet_pull_bytes_total": Metric("counter", (), "Bytes of journals pulled and stored, before compression."),
    "gpufault_fleet_pull_records_total": Metric(
        "counter", (), "Records pulled and stored, also those that were stored before."
    ),
    "gpufault_fleet_pull_refused_records_total": Metric(
        "counter", ("reason",), "Records refused: they name another node (`other_node`), are not records, or are too long."
    ),
    "gpufault_fleet_pull_gaps_total": Metric(
        "counter", ("kind",),
        "Records that may be lost: segments deleted before they were pulled (`dropped_segments`), journals that began "
        "anew (`replaced_journal`), daemons that claim a node that is proven to be at another address (`refused_name`).",
    ),
    "gpufault_fleet_pull_failures_total": Metric(
        "counter", ("reason",),
        "Requests to nodes that failed: `connect`, `timeout`, `tls`, `protocol`, `refused` (401 or 403), `answer` (not a "
        "journal), `settings` (a file of the configuration), `http_…`, `internal`.",
    ),
    "gpufault_fleet_pull_discovery_successful": Metric(
        "gauge", (), "1 if the last search for targets had no problem; at 0, the targets found earlier are pulled."
    ),
}  # fmt: skip


def pull_values(counts: PullCounts) -> dict[str, dict[Labels, float]]:

    def by_label(labels: tuple[str, ...], values: dict[str, int] | dict[str, float]) -> dict[Labels, float]:
        return {(name,): float(value) for name, value in {**dict.fromkeys(labels, 0), **values}.items()}

    named: dict[str, dict[Labels, float]] = {
        "targets": by_label(STATES, counts.targets),
        "lag_seconds": by_label(STATES, counts.lag),
        "bytes_total": {(): float(counts.bytes)},
        "records_total": {(): float(counts.records)},
        "refused_records_total": by_label(REASONS, dict(counts.refused)),
        "gaps_total": by_label((DROPPED, REPLACED, REFUSED_NAME), dict(counts.gaps)),
        "failures_total": by_label(FAILURES, dict(counts.failures)),
        "discovery_successful": {(): float(counts.discovery_ok)},
    }
    return {f"gpufault_fleet_pull_{name}": values for name, values in named.items()}
