"""The metrics of `gpufault node-conditions`. Labels are from fixed lists; no node has a series."""

from __future__ import annotations

import platform

from exporter import __version__
from exporter.kubernetes.api_client import OUTCOMES
from exporter.kubernetes.reporter import Status
from exporter.metrics.counters import Labels, Metric
from exporter.metrics.exposition import Family, MetricsSnapshot

STATES = ("fault", "no_fault", "blind", "unreachable", "no_such_node", "failed", "waiting")

METRICS: dict[str, Metric] = {
    "gpufault_node_conditions_nodes": Metric(
        "gauge", ("state",),
        "Nodes in the last cycle: with an open `fault` or `no_fault`; `blind` (a daemon that cannot see all faults), "
        "`unreachable` (no answer of the daemon), `no_such_node` (not in Kubernetes), `failed` (the API server refused), "
        "`waiting` (the API server asked for a pause).",
    ),
    "gpufault_node_conditions_requests_total": Metric(
        "counter", ("request", "result"),
        "Requests to the API server for a `condition` or an `event`, by result: `ok`, `exists` (an event that was sent "
        "before), `gone` (404), `conflict`, `forbidden`, `unauthorized`, `throttled`, `invalid`, `server`, `connection`.",
    ),
    "gpufault_node_conditions_daemon_failures_total": Metric(
        "counter", ("reason",),
        "Requests to node daemons that failed: `connect`, `timeout`, `tls`, `protocol`, `refused` (401 or 403), `answer`, "
        "`other_node`, `settings`, `http_…`.",
    ),
    "gpufault_node_conditions_discovery_successful": Metric(
        "gauge", (), "1 if the last search for node daemons had no problem; at 0, those found earlier are asked."
    ),
    "gpufault_node_conditions_last_cycle_timestamp_seconds": Metric("gauge", (), "When the last cycle ended."),
    "gpufault_node_conditions_cycle_seconds": Metric("gauge", (), "Duration of the last cycle."),
    "gpufault_node_conditions_build_info": Metric("gauge", ("version", "python_version"), "Version; always 1."),
}  # fmt: skip


def snapshot_of(status: Status) -> MetricsSnapshot:
    """The families of one status."""
    requests: dict[Labels, float] = {
        (what, result): 0.0 for what in ("condition", "event") for result in ("ok", *OUTCOMES)
    }
    values: dict[str, dict[Labels, float]] = {
        "nodes": {(state,): float(status.nodes.get(state, 0)) for state in STATES},
        "requests_total": {**requests, **{key: float(count) for key, count in status.requests.items()}},
        "daemon_failures_total": {(reason,): float(count) for reason, count in status.daemon_failures.items()},
        "discovery_successful": {(): float(not status.problem)},
        "last_cycle_timestamp_seconds": {(): status.ended},
        "cycle_seconds": {(): status.seconds},
        "build_info": {(__version__, platform.python_version()): 1.0},
    }
    return MetricsSnapshot(
        tuple(
            Family(name, metric.kind, metric.help, metric.labels, found)
            for name, metric in METRICS.items()
            if (found := values[name.removeprefix("gpufault_node_conditions_")])
        )
    )
