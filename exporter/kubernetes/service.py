"""The reporter as a service: a cycle at an interval, and the web server's view of it."""

from __future__ import annotations

import threading
import time
from typing import Any

from exporter.kubernetes.metrics import snapshot_of
from exporter.kubernetes.reporter import Reporter
from exporter.metrics.exposition import MetricsSnapshot
from exporter.process.main_loop import install_handlers, notify

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
