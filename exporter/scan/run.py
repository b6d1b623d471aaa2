"""Runs a scan: each log through a pipeline, all incidents into one casebook, diagnoses out in reading order.

Holds no more than the incidents: neither a log's lines nor the list of all logs.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.core import jobs
from exporter.core.casebook import Casebook
from exporter.core.catalogue import Catalogue
from exporter.core.incidents import OpenIncidents, condense
from exporter.core.model import Chunk, Diagnosis, Incident
from exporter.core.pipeline import Pipeline
from exporter.scan.plan import Task, Unread, Wanted, plan
from exporter.scan.reader import BLOCK_BYTES, open_log

WINDOW_SECONDS = 60.0
AHEAD = 16  # logs a worker that wait to be scanned, or to be told of: a slow one holds up nobody, and few are held

EngineChoice = Literal["auto", "hyperscan", "python"]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What came of one log."""

    path: str
    bytes: int = 0
    lines_matched: int = 0
    incidents: tuple[Incident, ...] = ()
    unmatched: int = 0
    unread: Unread | None = None
    stopped: bool = False  # by the user, before its end


@dataclass(slots=True)
class Summary:
    """What came of a scan. `stopped_at` is the log at which the user stopped it: the first that was not read whole."""

    files: int = 0
    bytes: int = 0
    lines_matched: int = 0
    unmatched: int = 0
    unread: list[Unread] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    notes: list[Diagnosis] = field(default_factory=list)  # of role `context`: no incidents
    stopped_at: str | None = None


def reading_order(diagnosis: Diagnosis) -> tuple[str, int, str]:
    """By log, then by line."""
    first = diagnosis.incident.first
    return first.path, first.line, diagnosis.id


def scan(
    logs: Iterable[Task | Wanted | Unread],
    catalogue: Catalogue,
    *,
    node: str,
    facts: Mapping[str, str],
    engine: EngineChoice = "auto",
    workers: int = 1,
    progress: Callable[[str, int], None] = lambda _path, _bytes: None,
) -> Summary:
    """Scan all logs. Incidents are those of the daemon, had it read the same bytes.

    `progress` is told of each log's bytes as they are read, and of 0 when it is done.
    """
    summary = Summary()
    casebook = Casebook(catalogue, node, window=WINDOW_SECONDS, settle=0.0, live=False)
    now = time.time()
    reading = _Reading()
    if workers > 1:
        results = _by_workers(logs, catalogue, engine, workers, now, progress, reading)
    else:
        results = _by_this_process(logs, catalogue, engine, now, progress, reading)
    try:
        for scanned in results:
            summary.files += scanned.unread is None and not scanned.stopped
            summary.bytes += scanned.bytes
            summary.lines_matched += scanned.lines_matched
            summary.unmatched += scanned.unmatched
            if scanned.unread:
                summary.unread.append(scanned.unread)
            casebook.join(scanned.incidents)
            if scanned.stopped:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        summary.stopped_at = reading.path
    diagnoses = casebook.settle(now, lambda _: facts, everything=True)
    summary.diagnoses = sorted(diagnoses, key=reading_order)
    summary.notes = sorted(casebook.notes(), key=reading_order)
    return summary


@dataclass(slots=True)
class _Reading:
    """The first log that is not told of yet."""

    path: str = ""


def _by_this_process(
    logs: Iterable[Task | Wanted | Unread],
    catalogue: Catalogue,
    engine: EngineChoice,
    now: float,
    progress: Callable[[str, int], None],
    reading: _Reading,
) -> Iterator[Scanned]:
    pipeline = Pipeline(catalogue, engine=engine, utc_offset=-time.timezone, window=WINDOW_SECONDS)
    for log in logs:
        reading.path = log.path
        yield scan_one(log, pipeline, now, progress)
        progress(log.path, 0)


def _by_workers(
    logs: Iterable[Task | Wanted | Unread],
    catalogue: Catalogue,
    engine: EngineChoice,
    workers: int,
    now: float,
    progress: Callable[[str, int], None],
    reading: _Reading,
) -> Iterator[Scanned]:
    from concurrent.futures import Future, ProcessPoolExecutor

    coming = iter(logs)
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(catalogue, engine)) as pool:
        running: deque[tuple[str, Future[Scanned]]] = deque()
        try:
            while True:
                for log in itertools.islice(coming, workers * AHEAD - len(running)):
                    running.append((log.path, pool.submit(_in_worker, log, now)))
                if not running:
                    return
                reading.path, first = running[0]
                scanned = first.result()
                running.popleft()
                yield scanned
                progress(scanned.path, scanned.bytes)
                progress(scanned.path, 0)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_pipelines: list[Pipeline] = []  # of a worker process: its one pipeline, built once


def _start_worker(catalogue: Catalogue, engine: EngineChoice) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; the first one decides
    _pipelines[:] = [Pipeline(catalogue, engine=engine, utc_offset=-time.timezone, window=WINDOW_SECONDS)]


def _in_worker(log: Task | Wanted | Unread, now: float) -> Scanned:
    return scan_one(log, _pipelines[0], now)


def scan_one(
    log: Task | Wanted | Unread,
    pipeline: Pipeline,
    now: float,
    progress: Callable[[str, int], None] = lambda _path, _bytes: None,
) -> Scanned:
    """One log from its first byte to its last."""
    task = plan(log.path, log.source) if isinstance(log, Wanted) else log
    if isinstance(task, Unread):
        return Scanned(task.path, unread=task)
    found = OpenIncidents(WINDOW_SECONDS)
    matched = unmatched = size = 0
    line = 1
    unread, stopped = None, False
    job = jobs.job_of(task.path) if task.source == "job" else None
    pipeline.forget(task.path)
    try:
        with open_log(task.path) as stream:
            rest, last = b"", False
            read = getattr(stream, "read1", stream.read)  # a pipe's bytes as they come
            while not last:
                data = read(BLOCK_BYTES)
                last = not data
                chunk = Chunk(
                    log=task.path,
                    origin=task.path,
                    path=task.path,
                    source=task.source,
                    format=task.format,
                    offset=size,
                    line=line,
                    data=rest + data,
                    read_at=now,
                    end="final" if last else "more",
                    job=job,
                )
                done = pipeline.process(chunk)
                for incident in condense(done.matches, WINDOW_SECONDS):
                    found.join(incident)
                matched += sum(match.lines for match in done.matches)
                unmatched += done.unmatched
                line += done.newlines
                size += done.consumed
                rest = chunk.data[done.consumed :]
                if data:
                    progress(task.path, len(data))
    except OSError as error:
        unread = Unread(task.path, error.strerror or str(error))
    except KeyboardInterrupt:
        stopped = True
    finally:
        pipeline.forget(task.path)
    return Scanned(task.path, size, matched, tuple(e.incident for e in found), unmatched, unread, stopped)
