"""The reporter as a service: a cycle at an interval, its metrics, and the web server's view of it."""

import platform
import threading
import time
from typing import Any

from exporter import __version__
from exporter.kubernetes.api_client import OUTCOMES
from exporter.kubernetes.reporter import Reporter, Status
from exporter.metrics.counters import Labels, Metric
from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.process.main_loop import install_handlers, notify

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
    requests: dict[Labels, float] = {
        (request, result): 0.0 for request in ("condition", "event") for result in ("ok", *OUTCOMES)
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
            Family(name, metric.kind, metric.help, metric.labels, samples)
            for name, metric in METRICS.items()
            if (samples := values[name.removeprefix("gpufault_node_conditions_")])
        )
    )


LATE_CYCLES = 20  # of the interval: with thousands of nodes that time out, a cycle takes minutes


class ConditionService:
    """Runs cycles until SIGTERM or SIGINT."""

    def __init__(self, reporter: Reporter, interval: float, log: Any) -> None:
        self._reporter = reporter
        self._interval = interval
        self._log = log
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._ready = False

    def run(self) -> None:
        """Run until stopped by a signal or `stop`."""
        install_handlers(stop=self.stop, reload=lambda: None)
        notify("READY=1")
        while not self._stop.is_set():
            self._began = time.monotonic()
            status = self._reporter.cycle()
            self._ready = True
            self._log.debug("cycle ended", seconds=round(status.seconds, 1), **status.nodes)
            self._stop.wait(max(self._interval - status.seconds, 1.0))

    def stop(self) -> None:
        """End `run` after its current request. Thread-safe."""
        self._stop.set()
        self._reporter.stop()

    # -- the web server's view (called from its thread)

    def snapshot(self) -> MetricsSnapshot:
        return snapshot_of(self._reporter.status)

    def not_ready(self) -> list[str]:
        return [] if self._ready else ["the first cycle is in progress"]

    def impaired(self) -> list[str]:
        status = self._reporter.status
        shown = [f"targets cannot all be found: {status.problem}"] if status.problem else []
        failed = {state: status.nodes.get(state, 0) for state in ("failed", "unreachable", "no_such_node")}
        return shown + [f"{count} nodes: {state}" for state, count in failed.items() if count]

    def healthy(self) -> bool:
        return time.monotonic() - self._began < LATE_CYCLES * max(self._interval, 30.0)

    def reload(self) -> list[str]:
        return ["there is no configuration file to read again; restart it with other flags"]
