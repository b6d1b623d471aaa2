"""The correlator as a service: refreshes on a timer, one at a time, and the view that the web server has of it.

The main thread waits and decides; a refresh is a process of its own, so that the web server answers while it works. A
refresh that fails leaves the last result where it is.
"""

import hashlib
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from exporter import __version__
from exporter.config.fleet import DAY, FleetConfig, LostConfig
from exporter.fleet.history.journal_files import NothingToRead, check_folder
from exporter.fleet.history.store import Store
from exporter.fleet.pull.puller import Puller
from exporter.fleet.service.fleet_metrics import snapshot_of
from exporter.fleet.service.html import Titles
from exporter.fleet.service.refresh import INTERNAL, SOURCE, Failure, FleetStatus, Outcome, Refresh, arguments
from exporter.metrics.exposition import MetricsSnapshot
from exporter.process.main_loop import ReloadRequests, Waker, install_handlers, notify
from exporter.web.active_config import ActiveConfig

CHECK_SECONDS = 0.2  # between two checks of a running refresh
ROUND_SECONDS = 30.0  # a loop that has not come round for so long hangs
REST_SECONDS = 5.0  # between two rounds: systemd's watchdog wants a sign of life now and then
FIRST_RETRY_SECONDS = 60.0  # after a failure; each further one doubles it, up to the interval
# From a refresh to one that a reload asks for, if the configuration is the same; or as long as it took.
AGAIN_SECONDS = 5.0

Loader = Callable[[], FleetConfig]


class FleetService:
    """Refreshes until SIGTERM or SIGINT. SIGHUP and POST /-/reload load the configuration again, and refresh.

    A reload ends no refresh: however often it is asked for, results come.
    """

    def __init__(
        self, config: FleetConfig, load: Loader, web: ActiveConfig, log: Any, titles: Titles, store: Store | None = None,
        puller: Puller | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._web = web
        self._log = log
        self.titles = titles
        self.store = store
        self._puller = puller
        self._waker = Waker()
        self._stop = threading.Event()
        self._reloads = ReloadRequests(self._waker.wake, load)
        self._lock = threading.Lock()  # of the standing: the web thread tells of its configuration
        self._fleet_status = FleetStatus(reload_time=time.time())
        self._refresh: Refresh | None = None
        self._failures = 0  # since the last result
        self._is_outdated = False  # the running refresh has an earlier configuration
        self._ended = float("-inf")
        self._due = self._last_round = time.monotonic()
        if web.is_file:
            self.web_config_read()

    def run(self) -> None:
        """Work until told to stop."""
        install_handlers(stop=self.stop, reload=self._reloads.request)
        notify("READY=1")
        with tempfile.TemporaryDirectory(prefix="gpufault-fleet-") as folder:
            try:
                while not self._stop.is_set():
                    self._waker.wait((), self._round(Path(folder)))
            finally:
                notify("STOPPING=1")
                if self._refresh is not None:
                    self._refresh.end()

    def stop(self) -> None:
        """End `run` at its next round. From any thread."""
        self._stop.set()
        self._waker.wake()

    # -- the web server's view (called from its thread)

    @property
    def fleet_status(self) -> FleetStatus:
        return self._fleet_status

    @property
    def source(self) -> str:
        """What is read, for people."""
        return self._config.source

    @property
    def lost(self) -> LostConfig:
        """What the GPU-hours of crashed jobs cost."""
        return self._config.lost

    @property
    def window(self) -> float:
        """The usual window of pages in seconds."""
        return self._config.window

    def snapshot(self) -> MetricsSnapshot:
        """Made anew for each scrape, as ages are of that moment."""
        return snapshot_of(
            time.time(),
            self._fleet_status,
            label_values=self._config.limits.label_values,
            build=(__version__, platform.python_version()),
            pull=self._puller.counts if self._puller else None,
        )

    def not_ready(self) -> list[str]:
        fleet_status = self._fleet_status
        reasons = []
        if fleet_status.result is None:
            reasons.append("there is no result yet; " + ("wait" if fleet_status.failure is None else "see below"))
            if fleet_status.failure is not None:
                reasons.append(
                    f"the last refresh failed ({fleet_status.failure.reason}): {fleet_status.failure.message}"
                )
        if not fleet_status.reload_ok:
            reasons.append("the configuration file is not applied; gpufault fleet --config.check reports the reason")
        if fleet_status.web_config_ok is False:
            reasons.append("the web configuration file is not applied; the log gives the reason")
        return reasons

    def impaired(self) -> list[str]:
        return []

    def healthy(self) -> bool:
        return time.monotonic() - self._last_round < ROUND_SECONDS

    def reload(self) -> list[str]:
        return self._reloads.request_and_wait()

    def web_config_read(self) -> None:
        """Tell how reading the web configuration went. From any thread."""
        problems = [str(problem) for problem in self._web.problems]
        for problem in problems:
            self._log.error("web configuration rejected", problem=problem)
        if not problems:
            self._log.info("web configuration applied")
        self._put(web_config_ok=not problems, web_config_time=self._web.applied_at)

    # -- the loop

    def _round(self, folder: Path) -> float:
        """One round; for how many seconds to rest after it."""
        self._last_round = time.monotonic()
        notify("WATCHDOG=1")
        self._reloads.answer(self._apply, self._reloaded)
        if self._refresh is not None and (outcome := self._refresh.ended()) is not None:
            self._refresh = None
            self._take(outcome)
        waits = self._is_first_reading()
        if self._refresh is None and self._last_round >= self._due and not waits:
            self._start(folder)
        if self._refresh is not None or waits:
            return CHECK_SECONDS
        return min(max(self._due - time.monotonic(), 0.0), self._reloads.rest(), REST_SECONDS)

    def _is_first_reading(self) -> bool:
        """Whether the folder of journals is read for the first time: a refresh beside it would read it again, slower."""
        if self.store is None or not self.store.is_followed or self._puller is not None:
            return False
        return self.store.status.last is None and not self.store.status.failure

    def _start(self, folder: Path) -> None:
        output = folder / "correlation"
        findings = self._config.findings_file or folder / "findings.json"
        self._log.debug("refreshing", source=self.source)
        try:
            asked = arguments(self._config, findings, output, self._exported(folder))
            self._refresh = Refresh(asked, folder, output, timeout=self._config.refresh.timeout)
            self._put(running=True)
        except NothingToRead as error:
            self._take(Outcome(reason=SOURCE, message=str(error), seconds=0.0))
        except OSError as error:
            self._take(Outcome(reason=INTERNAL, message=f"no process can be started: {error}", seconds=0.0))
        except duckdb.Error as error:
            message = f"the history cannot be read: {str(error).splitlines()[0]}"
            self._take(Outcome(reason=SOURCE, message=message, seconds=0.0))

    def _exported(self, folder: Path) -> Path | None:
        """What was read, as a file: the window and, for comparison, the one before."""
        if self.store is None or not self.store.is_followed:
            return None
        if self._config.journal is not None:
            check_folder(self._config.journal)  # what was read before says nothing of a folder that is gone
        return self.store.export(folder / "history", 2 * self._config.window + DAY)

    def _take(self, outcome: Outcome) -> None:
        """Put an outcome in force, and say when the next refresh is due."""
        now, before, interval = time.time(), self._fleet_status, self._config.refresh.interval
        refreshes = before.refreshes + 1
        if outcome.result is None:
            count = {**before.failures, outcome.reason: before.failures.get(outcome.reason, 0) + 1}
            failure = Failure(reason=outcome.reason, message=outcome.message, time=now)
            self._put(running=False, refreshes=refreshes, failures=count, failure=failure, duration=outcome.seconds)
            wait = min(FIRST_RETRY_SECONDS * 2**self._failures, interval)
            self._failures = min(self._failures + 1, 16)
            self._log.error("refresh failed", reason=outcome.reason, message=outcome.message, again_in=f"{wait:.0f}s")
        else:
            result, wait, self._failures = outcome.result, interval, 0
            tag = hashlib.blake2b(repr((result, outcome.lost)).encode(), digest_size=12).hexdigest()
            self._put(
                running=False, refreshes=refreshes, failure=None, duration=outcome.seconds, result=result, lost=outcome.lost,
                tag=tag, result_time=now, complete_time=now if result.complete else before.complete_time,
            )  # fmt: skip
            self._log.info(
                "refreshed", seconds=round(outcome.seconds, 1), nodes=result.nodes, incidents=result.incidents,
                findings=len(result.findings), complete=result.complete,
            )  # fmt: skip
        self._ended = time.monotonic()
        self._due = self._ended + (0.0 if self._is_outdated else wait)
        self._is_outdated = False

    def _apply(self, config: FleetConfig) -> None:
        """Use a new configuration. A running refresh goes on to its end."""
        is_new, before, self._config = config != self._config, self._config, config
        if self._puller is not None and config.pull is not None and config.pull != before.pull:
            self._puller.use(config.pull)
        if self._refresh is not None:
            self._is_outdated |= is_new
        else:
            again = self._ended + max(AGAIN_SECONDS, self._fleet_status.duration)
            self._due = min(self._due, time.monotonic() if is_new else again)
        self._failures = 0
        self._put(reload_time=time.time())

    def _reloaded(self, problems: list[str]) -> None:
        for problem in problems:
            self._log.error("configuration rejected", problem=problem)
        if not problems:
            self._log.info("configuration applied")
        self._put(reload_ok=not problems)

    def _put(self, **changes: Any) -> None:
        with self._lock:
            self._fleet_status = replace(self._fleet_status, **changes)
