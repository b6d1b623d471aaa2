"""Runs a scan: reads each log through a pipeline, tracks all incidents, and returns diagnoses in reading order.

Keeps only incidents in memory: neither the lines of a log nor the list of all logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from exporter.core.catalogue.loader import Catalogue
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Incident
from exporter.core.values import dataclass, field
from exporter.scan.engines.scan_engine import ScanEngine, Unusable
from exporter.scan.plan import Unread
from exporter.scan.stitch import Stitched
from exporter.scan.stop import Stop
from exporter.scan.work import WINDOW_SECONDS, EngineChoice, Item, Log, Survived, pipeline_of, scan_one

if TYPE_CHECKING:
    from exporter.core.diagnosis.assessment import Diagnosis
    from exporter.core.diagnosis.incident_tracker import IncidentTracker
    from exporter.node.this_node import KernelLog
    from exporter.scan.dispatch import ByWorkers

Progress = Callable[[str, int], None]


class Diagnoses:
    """The diagnoses of all incidents in reading order. Computed on each iteration, since there may be many."""

    def __init__(self, tracker: IncidentTracker, facts: Mapping[str, str]) -> None:
        self._tracker = tracker
        self._facts = facts

    def __len__(self) -> int:
        return self._tracker.crashes()

    def __iter__(self) -> Iterator[Diagnosis]:
        return self._tracker.diagnose_all(lambda _: self._facts, _location)


@dataclass(slots=True)
class Summary:
    """The result of a scan. stopped_at: the log at which the user stopped it or its engine failed. broken: why the engine
    failed.
    """

    files: int = 0
    bytes: int = 0
    lines_matched: int = 0
    unmatched: int = 0
    unread: int = 0  # files of which a part at least could not be read
    diagnoses: Diagnoses | tuple[()] = ()
    notes: list[Diagnosis] = field(default_factory=list)  # of role `context`: no incidents
    stopped_at: str | None = None
    broken: str = ""
    kernel_unread: str = ""  # why the kernel log of this node, which was asked for, could not be read


def reading_order(diagnosis: Diagnosis) -> tuple[str, int, str]:
    """The sort key of results: log, then line."""
    return _location(diagnosis.incident, diagnosis.id)


def _location(incident: Incident, identity: str) -> tuple[str, int, str]:
    return incident.first.path, incident.first.line, identity


def scan(
    logs: Iterable[Log],
    catalogue: Catalogue,
    *,
    node: str,
    facts: Mapping[str, str],
    engine: EngineChoice = "auto",
    workers: ScanEngine | int = 1,
    progress: Progress = lambda _path, _bytes: None,
    report_unread: Callable[[Unread], None] = lambda _unread: None,
    kernel_log: Callable[[Pipeline, float], KernelLog] | None = None,
) -> Summary:
    """Scan all logs, in this process or with an engine's workers; the engine is closed afterwards.

    Incidents are those that the daemon would report for the same bytes. progress: gets the bytes of each log as they are
    read, and 0 at its end. report_unread: gets each file that could not be read completely, immediately: there may be a
    million. kernel_log: this node's own, of which the incidents of the logs' jobs are added.
    """
    summary, is_here = Summary(), kernel_log is not None
    tracker: IncidentTracker | None = None
    jobs = set[str]()  # whose logs were read; what matters is whether there are several
    survived = set[Survived]()  # of logs that show anything
    now = time.time()
    with Stop() as stop:
        items = map(Item, _interruptible(logs, stop))
        readers: _Here | ByWorkers
        if workers == 1:
            readers = _Here(pipeline_of(catalogue, engine, time.localtime().tm_gmtoff), now, stop, progress)
        else:
            from exporter.scan.dispatch import ByWorkers  # multiprocessing takes 10 ms to import

            readers = ByWorkers(workers, catalogue, engine, now, stop, progress)
        with closing(readers.read(items)) as results:
            try:
                for one in results:
                    _count(summary, one)
                    if one.scanned.unread:
                        report_unread(one.scanned.unread)
                    tracker = _joined(tracker, one.scanned.incidents, catalogue, node, is_here)
                    if one.scanned.survived:
                        survived.add(one.scanned.survived)
                    if one.scanned.job and len(jobs) < 2:
                        jobs.add(one.scanned.job)
                    if one.scanned.stopped:
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                summary.stopped_at = readers.reading
            except Unusable as error:
                summary.stopped_at, summary.broken = readers.reading, str(error)
    if tracker is not None:
        from exporter.core.diagnosis.deaths import may_be_survived

        tracker.give_times()
        if kernel_log and all(incident.first.source == "job" for incident in tracker.incidents()):
            log = kernel_log(pipeline_of(catalogue, engine, time.localtime().tm_gmtoff), WINDOW_SECONDS)
            tracker.join(log.linked_to(tracker.incidents(), catalogue, WINDOW_SECONDS))
            summary.kernel_unread = log.unread
        tracker.shares_node = len(jobs) > 1
        tracker.is_handled = lambda incident: (
            Survived(incident.first.path, incident.first.raised_by) in survived and may_be_survived(incident, catalogue)
        )
        summary.diagnoses = Diagnoses(tracker, facts)
        summary.notes = sorted(tracker.context_warnings(), key=reading_order)
    return summary


def _joined(
    tracker: IncidentTracker | None, incidents: Sequence[Incident], catalogue: Catalogue, node: str, is_here: bool
) -> IncidentTracker | None:
    """The tracker of all incidents so far; None without any, since it takes 10 ms to import.

    is_here: the logs lie on the node that wrote them, so the times of their last changes are those of its kernel.
    """
    if incidents and tracker is None:
        from exporter.core.diagnosis.incident_tracker import IncidentTracker

        tracker = IncidentTracker(catalogue, node, window=WINDOW_SECONDS, settle=0.0, live=is_here)
    if tracker is not None:
        tracker.join(incidents)
    return tracker


def _count(summary: Summary, one: Stitched) -> None:
    scanned = one.scanned
    summary.files += one.ended and scanned.unread is None and not scanned.stopped
    summary.bytes += scanned.bytes
    summary.lines_matched += scanned.lines_matched
    summary.unmatched += scanned.unmatched
    summary.unread += scanned.unread is not None and not scanned.unread.is_document


def _interruptible(logs: Iterable[Log], stop: Stop) -> Iterator[Log]:
    """Lists logs lazily, so that Ctrl-C works while a folder of a million files is listed."""
    coming = iter(logs)
    while True:
        with stop.at_once():
            log = next(coming, None)
        if log is None:
            return
        yield log


@dataclass(slots=True)
class _Here:
    """Reads logs in this process, one after another."""

    pipeline: Pipeline
    now: float
    stop: Stop
    progress: Progress
    reading: str = ""

    def read(self, items: Iterator[Item]) -> Generator[Stitched]:
        for item in items:
            path = self.reading = item.log.path
            scanned = scan_one(item, self.pipeline, self.now, self.progress, self.stop)
            yield Stitched(scanned, ended=not scanned.stopped)
            self.progress(path, 0)
