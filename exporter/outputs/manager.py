"""The outputs that the configuration asks for: started, told of new records, and counted in the daemon's transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from exporter.config.outputs import OtlpConfig, OutputsConfig, ReceiverSettings, WebhookConfig
from exporter.metrics.counters import Counters, Labels
from exporter.metrics.exposition import MetricsSnapshot
from exporter.outputs import files
from exporter.outputs.delivery import Delivery, Form, Say, Tally
from exporter.outputs.journal_reader import Place, first_place, incidents_behind, place_at
from exporter.outputs.otlp import OtlpForm
from exporter.outputs.responses import DROPS, SENDING_FAILURES, WRITING_FAILURES
from exporter.outputs.textfile import Textfile
from exporter.outputs.webhook import WebhookForm
from exporter.store.journal import Journal, JournalEnd, segments_in

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LAST_SECONDS = 2.0  # for a request in progress when the daemon ends; unfinished ones are repeated at the next start


class OutputState(NamedTuple):
    """How one output does. lag: seconds since the oldest record was made that waits; None where none is sent."""

    name: str
    up: bool
    last_success: float | None
    lag: float | None


class Outputs:
    """All outputs of one daemon. Belongs to its loop; what they send, and wait for, is in threads of their own."""

    def __init__(
        self,
        node: str,
        latest: Callable[[], MetricsSnapshot],
        counters: Counters,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
        *,
        whole: bool = False,
    ) -> None:
        """whole: begin with all that the journal holds, since how far an output had come is not known any more."""
        self._node = node
        self._latest = latest
        self._counters = counters
        self._log = log
        self._clock = clock
        self._config = OutputsConfig()
        self._folder: Path | None = None
        self._end = JournalEnd(0, 0)
        self._shipments: dict[str, Delivery] = {}
        self._textfile: Textfile | None = None
        self._successes: dict[str, float | None] = {}
        self._lost: dict[str, int] = {}  # with a journal that has moved, not counted yet
        self._rows: dict[str, str | None] = {}
        self._saved: dict[str, str] = {}
        self._running = False
        self._whole = whole

    def use(self, config: OutputsConfig, journal: Journal, stored: Mapping[str, str]) -> None:
        """Apply settings. An output goes on where it was; one whose settings are as before is left alone.

        stored: what `unsaved` gave, by name.
        """
        folder, self._end = journal.folder, journal.end
        wanted, before = files.receivers(config), files.receivers(self._config)
        for name, settings in wanted.items():
            if settings == before[name] and folder == self._folder:
                continue
            if old := self._shipments.pop(name, None):
                old.stop()
                self._successes.pop(name, None)
            if settings is not None:
                place = self._place(name, settings, folder, stored.get(name))
                self._shipments[name] = self._shipment(name, settings, folder, place)
            elif name in stored:
                self._rows[name] = None  # if it is asked for again, it begins anew
        if config.textfile != self._config.textfile:
            if self._textfile:
                self._textfile.stop(LAST_SECONDS)
            latest, say = self._latest, self._say("textfile")
            self._textfile = Textfile(config.textfile, latest, say, self._clock) if config.textfile else None
            self._successes.pop("textfile", None)
        self._config, self._folder = config, folder
        self._whole = False
        self._counters.start_at_zero(self._series())
        if self._running:
            self.start()

    def start(self) -> None:
        """Begin to send and to write."""
        self._running = True
        for output in (*self._shipments.values(), self._textfile):
            if output and not output.started:
                output.start()
        self.wake(self._end)

    def wake(self, end: JournalEnd) -> None:
        """The journal holds more."""
        self._end = end
        for shipment in self._shipments.values():
            shipment.wake(end)

    def before_drop(self, segment: int, path: Path) -> None:
        """A segment of the journal is about to be deleted."""
        for shipment in self._shipments.values():
            shipment.before_drop(segment, path)

    def stop(self) -> None:
        """Send and write no more."""
        self._running = False
        for shipment in self._shipments.values():
            shipment.stop()
        for output in (*self._shipments.values(), self._textfile):
            if output:
                output.stop(LAST_SECONDS)

    # -- in the daemon's transaction

    def unsaved(self) -> dict[str, str | None]:
        """Rows that changed since `saved`, None where gone; and into the counters what has happened on the way there."""
        for name, shipment in self._shipments.items():
            place, tally = shipment.take()
            tally.dropped["journal"] += self._lost.pop(name, 0)
            self._count(name, tally)
            row = json.dumps({"journal": str(self._folder), "place": place, "success": self._successes.get(name)})
            if row != self._saved.get(name):
                self._rows[name] = row
        if self._textfile:
            self._count("textfile", self._textfile.take())
        return dict(self._rows)

    def _count(self, name: str, tally: Tally) -> None:
        if tally.sent:
            self._counters.add("gpufault_output_records_sent_total", name, by=tally.sent)
        for metric, counts in (("records_dropped", tally.dropped), ("failures", tally.failed)):
            for reason, count in counts.items():
                if count:
                    self._counters.add(f"gpufault_output_{metric}_total", name, reason, by=count)
        if tally.last_success is not None:
            self._successes[name] = tally.last_success

    def saved(self) -> None:
        for name, row in self._rows.items():
            if row is None:
                self._saved.pop(name, None)
            else:
                self._saved[name] = row
        self._rows.clear()

    def states(self, now: float) -> list[OutputState]:
        """How each output does."""
        found = [OutputState(s.name, s.up, self._successes.get(s.name), s.lag(now)) for s in self._shipments.values()]
        if self._textfile:
            found.append(OutputState("textfile", self._textfile.up, self._successes.get("textfile"), None))
        return found

    # -- parts

    def _series(self) -> Iterable[tuple[str, Labels]]:
        for name in self._shipments:
            yield "gpufault_output_records_sent_total", (name,)
            yield from (("gpufault_output_records_dropped_total", (name, reason)) for reason in DROPS)
            yield from (("gpufault_output_failures_total", (name, reason)) for reason in SENDING_FAILURES)
        if self._textfile:
            yield from (("gpufault_output_failures_total", ("textfile", reason)) for reason in WRITING_FAILURES)

    def _shipment(self, name: str, settings: ReceiverSettings, folder: Path, place: Place) -> Delivery:
        def form() -> Form:
            if isinstance(settings, OtlpConfig):
                return OtlpForm(self._node, settings.resource, encoding=settings.encoding)
            assert isinstance(settings, WebhookConfig)
            return WebhookForm(files.key_of(settings.secret_file) if settings.secret_file else None)

        return Delivery(name, settings, form, folder=folder, place=place, say=self._say(name), clock=self._clock)

    def _place(self, name: str, settings: ReceiverSettings, folder: Path, stored: str | None) -> Place:
        """Where an output begins in the journal."""
        whole = self._whole or (stored is None and settings.start == "beginning")
        if stored is not None:
            try:
                row = json.loads(stored)
                journal, place = Path(row["journal"]), Place(*map(int, row["place"]))
                self._successes[name] = row["success"]
            except (ValueError, TypeError, KeyError):
                whole = True
            else:
                if journal == folder:
                    return place
                lost = _waiting(journal, place)  # of a journal that has moved
                self._lost[name] = self._lost.get(name, 0) + lost
        return first_place(folder) if whole else place_at(folder, self._end)

    def _say(self, name: str) -> Say:
        def say(level: Literal["info", "warning"], what: str) -> None:
            getattr(self._log, level)(f"output {name}: {what}")

        return say


def _waiting(folder: Path, place: Place) -> int:
    """How many incidents a journal holds behind a place."""
    return sum(
        incidents_behind(path, place.offset if number == place.segment else 0)
        for number, path in segments_in(folder)
        if number >= place.segment
    )
