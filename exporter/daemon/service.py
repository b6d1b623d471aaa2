"""The daemon as a service: signals, the web server's view, and configuration reloads.

Connects threads (web server, signals) with the daemon's single-threaded loop. Does not process logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter import __version__
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.clear_request import ClearRequest
from exporter.core.diagnosis.node_faults import fault_json
from exporter.daemon.daemon import Daemon
from exporter.metrics.counters import at_risk, incidents_by_cause, stated_facts
from exporter.metrics.exposition import MetricsSnapshot
from exporter.process import malloc_tuning
from exporter.process.main_loop import MainLoopCalls, ReloadRequests, install_handlers, notify
from exporter.sources.boot import moment
from exporter.web.active_config import ActiveConfig
from exporter.web.interface import NodeFaults, Overview, SourceState

if TYPE_CHECKING:
    from exporter.config.node import Config
    from exporter.core.authoring.explanation import Explanation

BLIND_SECONDS = 10.0  # a loop that has not come round for so long sees nothing
ROUND_SECONDS = 30.0  # a loop that has not come round for so long hangs: no disk commit takes that long

Loader = Callable[[], "tuple[Config, Catalogue]"]


class Service:
    """Runs a daemon until SIGTERM or SIGINT; SIGHUP and POST /-/reload load the configuration again."""

    def __init__(self, daemon: Daemon, load: Loader, web: ActiveConfig | None = None) -> None:
        self._daemon = daemon
        self._web = web or ActiveConfig()
        if self._web.is_file:
            self.web_config_read()
        self._stop = threading.Event()
        self._reloads = ReloadRequests(daemon.ingest.waker.wake, load)
        self._calls = MainLoopCalls(daemon.ingest.waker.wake)

    def run(self) -> None:
        """Run until stopped by a signal or `stop`."""
        install_handlers(stop=self.stop, reload=self._reloads.request)
        self._daemon.begin()
        notify("READY=1")
        try:
            self._daemon.run(self._stop, after_round=self._after_round)
        finally:
            notify("STOPPING=1")

    def stop(self) -> None:
        """End `run` after its current round. Thread-safe."""
        self._stop.set()
        self._daemon.ingest.waker.wake()

    def snapshot(self) -> MetricsSnapshot:
        return self._daemon.snapshot()

    def not_ready(self) -> list[str]:
        reasons = self._daemon.not_ready()
        if self._web.problems:
            reasons.append("the web configuration file is not applied; the log gives the reason")
        return reasons

    def impaired(self) -> list[str]:
        return self._daemon.committer.impaired

    def healthy(self) -> bool:
        return time.time() - self._daemon.last_round < ROUND_SECONDS

    def reload(self) -> list[str]:
        return self._reloads.request_and_wait()

    def overview(self) -> Overview:
        daemon = self._daemon
        snapshot = daemon.snapshot()
        return Overview(
            version=__version__,
            node=daemon.node,
            sources=tuple(
                SourceState(
                    name=s.name,
                    up=not s.stats.blind,
                    down_reason=s.stats.blind,
                    files=s.stats.files,
                    lag=s.stats.lag_seconds,
                )
                for s in daemon.sources
            ),
            incidents=tuple(daemon.casebook.recent),
            faults=daemon.casebook.faults.open,
            hints=tuple(daemon.committer.hints),
            causes=incidents_by_cause(snapshot),
            at_risk=at_risk(snapshot),
            facts=stated_facts(snapshot),
        )

    @property
    def journal_folder(self) -> Path:
        return self._daemon.committer.journal.folder

    def title(self, name: str) -> str:
        return self._daemon.casebook.catalogue.title(name)

    def explanation(self, name: str) -> Explanation | None:
        from exporter.config import packs
        from exporter.core.authoring.explanation import explanation_of  # when a page of it is opened: it costs memory

        catalogue = self._daemon.casebook.catalogue
        return explanation_of(catalogue, name, lambda signature: packs.outcomes(catalogue, signature))

    def node_faults(self) -> NodeFaults:
        daemon, faults = self._daemon, self._daemon.casebook.faults
        silent = time.time() - daemon.last_round
        hangs = [f"the main loop has not answered for {silent:.0f} s"] if silent > BLIND_SECONDS else []
        return NodeFaults(
            node=daemon.node,
            now=moment(time.time()),
            faults=faults.open,
            cleared=faults.cleared,
            blind=(*hangs, *daemon.ingest.blind()),
        )

    def clear_faults(self, request: ClearRequest) -> list[dict[str, Any]]:
        daemon, faults = self._daemon, self._daemon.casebook.faults

        def clear() -> list[dict[str, Any]]:
            now = moment(time.time())
            recovery = request.recovery(faults.open, now)
            faults.recover(recovery)
            daemon.commit(now.time)
            return [fault_json(fault, now) for fault in faults.cleared if fault.cleared == recovery]

        return self._calls.call(clear)

    def web_config_read(self) -> None:
        """Report the result of reading the web configuration: in the log now, in the metrics after the next commit."""
        self._daemon.web_config_read([str(problem) for problem in self._web.problems], self._web.applied_at)

    def _after_round(self) -> None:
        notify("WATCHDOG=1")
        self._reloads.answer(lambda loaded: self._daemon.reload(*loaded), self._reloaded)
        self._calls.run_pending()

    def _reloaded(self, problems: list[str]) -> None:
        malloc_tuning.release_memory()
        self._daemon.reloaded(problems)
