"""The metrics of pulling: names, and one snapshot's values. All labels are from short fixed lists; no node has a series."""

from __future__ import annotations

from exporter.fleet.history.pulled import REFUSED_NAME
from exporter.fleet.pull.clean import REASONS
from exporter.fleet.pull.plan import DROPPED, REPLACED
from exporter.fleet.pull.status import STATES, PullCounts
from exporter.metrics.counters import Labels, Metric

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
    """The values of one snapshot."""

    def by_label(known: tuple[str, ...], values: dict[str, int] | dict[str, float]) -> dict[Labels, float]:
        return {(name,): float(value) for name, value in {**dict.fromkeys(known, 0), **values}.items()}

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
