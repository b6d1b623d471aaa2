"""Creates the configured outputs, wakes them when the journal grows, and commits their positions and counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from exporter.metrics.counters import Counters, Labels
from exporter.metrics.exposition import MetricsSnapshot
from exporter.outputs import receiver_settings
from exporter.outputs.delivery import Delivery, Log, OutputCounts, RequestFormat
from exporter.outputs.journal_reader import JournalPosition, count_incidents, end_position, start_position
from exporter.outputs.otlp import OtlpFormat
from exporter.outputs.responses import DROPS, SENDING_FAILURES, WRITING_FAILURES
from exporter.outputs.textfile import Textfile
from exporter.outputs.webhook import WebhookFormat
from exporter.store.journal import Journal, JournalEnd, segments_in

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from exporter.config.outputs import OtlpConfig, OutputsConfig, ReceiverSettings, WebhookConfig

STOP_SECONDS = 2.0  # for a request in progress when the daemon stops; an unfinished one is repeated at the next start


class OutputState(NamedTuple):
    """The state of one output. `lag`: age in seconds of the oldest unsent incident; None if it sends no incidents."""

    name: str
    up: bool
    last_success: float | None
    lag: float | None


class Outputs:
    """All outputs of one daemon. Used only by its main loop; sending happens in other threads."""

    def __init__(
        self,
        node: str,
        latest: Callable[[], MetricsSnapshot],
        counters: Counters,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
        *,
        from_start: bool = False,
    ) -> None:
        """from_start: send everything that the journal holds, because the stored positions are lost."""
        self._node = node
        self._latest = latest
        self._counters = counters
        self._log = log
        self._clock = clock
        self._config: OutputsConfig | None = None
        self._folder: Path | None = None
        self._end = JournalEnd(0, 0)
        self._deliveries: dict[str, Delivery] = {}
        self._textfile: Textfile | None = None
        self._successes: dict[str, float | None] = {}
        self._lost: dict[str, int] = {}  # unsent incidents in the previous journal folder, not counted yet
        self._rows: dict[str, str | None] = {}
        self._saved: dict[str, str] = {}
        self._running = False
        self._from_start = from_start

    def use(self, config: OutputsConfig, journal: Journal, stored: Mapping[str, str]) -> None:
        """Apply settings. An output continues at its stored position; one with unchanged settings keeps running.

        stored: the committed rows from `unsaved`, by name of the output.
        """
        folder, self._end = journal.folder, journal.end
        previous = receiver_settings.receivers(self._config) if self._config else {}
        for name, settings in receiver_settings.receivers(config).items():
            if settings == previous.get(name) and folder == self._folder:
                continue
            if old := self._deliveries.pop(name, None):
                old.stop()
                self._successes.pop(name, None)
            if settings is not None:
                position = self._initial_position(name, settings, folder, stored.get(name))
                self._deliveries[name] = self._new_delivery(name, settings, folder, position)
            elif name in stored:
                self._rows[name] = None  # the output was removed from the configuration
        if config.textfile != (self._config and self._config.textfile):
            if self._textfile:
                self._textfile.stop(STOP_SECONDS)
            latest, log = self._latest, self._logger("textfile")
            self._textfile = Textfile(config.textfile, latest, log, self._clock) if config.textfile else None
            self._successes.pop("textfile", None)
        self._config, self._folder = config, folder
        self._from_start = False
        self._counters.start_at_zero(self._series())
        if self._running:
            self.start()

    def start(self) -> None:
        self._running = True
        for output in (*self._deliveries.values(), self._textfile):
            if output and not output.started:
                output.start()
        self.wake(self._end)

    def wake(self, end: JournalEnd) -> None:
        """Send everything up to the journal's new end."""
        self._end = end
        for delivery in self._deliveries.values():
            delivery.wake(end)

    def before_drop(self, segment: int, path: Path) -> None:
        """Count what is unsent in a journal segment that is about to be deleted."""
        for delivery in self._deliveries.values():
            delivery.before_drop(segment, path)

    def stop(self) -> None:
        self._running = False
        for delivery in self._deliveries.values():
            delivery.stop()
        for output in (*self._deliveries.values(), self._textfile):
            if output:
                output.stop(STOP_SECONDS)

    # -- in the daemon's transaction

    def unsaved(self) -> dict[str, str | None]:
        """Rows that changed since `saved`, None for a removed one. Also adds the outputs' counts to the counters."""
        for name, delivery in self._deliveries.items():
            position, counts = delivery.take_progress()
            counts.dropped["journal"] += self._lost.pop(name, 0)
            self._count(name, counts)
            row = json.dumps({"journal": str(self._folder), "place": position, "success": self._successes.get(name)})
            if row != self._saved.get(name):
                self._rows[name] = row
        if self._textfile:
            self._count("textfile", self._textfile.take_counts())
        return dict(self._rows)

    def _count(self, name: str, counts: OutputCounts) -> None:
        if counts.sent:
            self._counters.add("gpufault_output_records_sent_total", name, by=counts.sent)
        for metric, by_reason in (("records_dropped", counts.dropped), ("failures", counts.failed)):
            for reason, count in by_reason.items():
                if count:
                    self._counters.add(f"gpufault_output_{metric}_total", name, reason, by=count)
        if counts.last_success is not None:
            self._successes[name] = counts.last_success

    def saved(self) -> None:
        """Record that the rows from `unsaved` have been committed."""
        for name, row in self._rows.items():
            if row is None:
                self._saved.pop(name, None)
            else:
                self._saved[name] = row
        self._rows.clear()

    def states(self, now: float) -> list[OutputState]:
        states = [
            OutputState(delivery.name, delivery.up, self._successes.get(delivery.name), delivery.lag(now))
            for delivery in self._deliveries.values()
        ]
        if self._textfile:
            states.append(OutputState("textfile", self._textfile.up, self._successes.get("textfile"), None))
        return states

    # -- parts

    def _series(self) -> Iterable[tuple[str, Labels]]:
        for name in self._deliveries:
            yield "gpufault_output_records_sent_total", (name,)
            yield from (("gpufault_output_records_dropped_total", (name, reason)) for reason in DROPS)
            yield from (("gpufault_output_failures_total", (name, reason)) for reason in SENDING_FAILURES)
        if self._textfile:
            yield from (("gpufault_output_failures_total", ("textfile", reason)) for reason in WRITING_FAILURES)

    def _new_delivery(self, name: str, settings: ReceiverSettings, folder: Path, position: JournalPosition) -> Delivery:
        def request_format() -> RequestFormat:
            if name == "otlp":
                otlp = cast("OtlpConfig", settings)
                return OtlpFormat(self._node, otlp.resource, encoding=otlp.encoding)
            secret = cast("WebhookConfig", settings).secret_file
            return WebhookFormat(receiver_settings.read_key(secret) if secret else None)

        log = self._logger(name)
        return Delivery(name, settings, request_format, folder=folder, position=position, log=log, clock=self._clock)

    def _initial_position(
        self, name: str, settings: ReceiverSettings, folder: Path, stored: str | None
    ) -> JournalPosition:
        """Where in the journal an output starts. Counts what it had not sent from a previous journal folder."""
        from_start = self._from_start or (stored is None and settings.start == "beginning")
        if stored is not None:
            try:
                row = json.loads(stored)
                journal, position = Path(row["journal"]), JournalPosition(*map(int, row["place"]))
                self._successes[name] = row["success"]
            except (ValueError, TypeError, KeyError):
                from_start = True
            else:
                if journal == folder:
                    return position
                self._lost[name] = self._lost.get(name, 0) + _count_unsent(journal, position)
        return start_position(folder) if from_start else end_position(folder, self._end)

    def _logger(self, name: str) -> Log:
        def log(level: Literal["info", "warning"], message: str) -> None:
            getattr(self._log, level)(f"output {name}: {message}")

        return log


def _count_unsent(folder: Path, position: JournalPosition) -> int:
    """The number of incidents that a journal holds after a position."""
    return sum(
        count_incidents(path, position.offset if number == position.segment else 0)
        for number, path in segments_in(folder)
        if number >= position.segment
    )
