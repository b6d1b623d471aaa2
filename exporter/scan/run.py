"""Runs a scan: each planned log through a pipeline, all matches into one casebook, diagnoses out in reading order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from exporter.core import jobs
from exporter.core.casebook import Casebook
from exporter.core.catalogue import Catalogue
from exporter.core.model import Chunk, Diagnosis, Match
from exporter.core.pipeline import Pipeline
from exporter.scan.plan import Task, Unread
from exporter.scan.reader import BLOCK_BYTES, open_log

WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Scanned:
    """What came of one log."""

    path: str
    bytes: int
    matches: tuple[Match, ...] = ()
    unmatched: int = 0
    unread: Unread | None = None


@dataclass(slots=True)
class Summary:
    """What came of a scan."""

    files: int = 0
    bytes: int = 0
    lines_matched: int = 0
    unmatched: int = 0
    unread: list[Unread] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)


def scan(
    tasks: Iterable[Task | Unread],
    catalogue: Catalogue,
    *,
    node: str,
    facts: Mapping[str, str],
    engine: Literal["auto", "hyperscan", "python"] = "auto",
    workers: int = 1,
    progress: Callable[[Scanned], None] = lambda _: None,
) -> Summary:
    """Scan all logs. Incidents are those of the daemon, had it read the same bytes."""
    summary = Summary()
    casebook = Casebook(catalogue, node, window=WINDOW_SECONDS, settle=0.0, live=False)
    todo: list[Task] = []
    for task in tasks:
        if isinstance(task, Unread):
            summary.unread.append(task)
        else:
            todo.append(task)
    for scanned in _scanned(todo, catalogue, engine, workers):
        summary.files += scanned.unread is None
        summary.bytes += scanned.bytes
        summary.lines_matched += len(scanned.matches)
        summary.unmatched += scanned.unmatched
        if scanned.unread:
            summary.unread.append(scanned.unread)
        casebook.add(scanned.matches)
        progress(scanned)
    diagnoses = casebook.settle(time.time(), lambda _: facts, everything=True)
    order = {task.path: index for index, task in enumerate(sorted(todo, key=lambda t: t.path))}
    summary.diagnoses = sorted(diagnoses, key=lambda d: (order[d.incident.first.path], d.incident.first.line, d.id))
    return summary


def _scanned(
    tasks: Sequence[Task], catalogue: Catalogue, engine: Literal["auto", "hyperscan", "python"], workers: int
) -> Iterable[Scanned]:
    now = time.time()
    if workers <= 1 or len(tasks) <= 1:
        pipeline = Pipeline(catalogue, engine=engine, utc_offset=-time.timezone)
        yield from (scan_one(task, pipeline, now) for task in tasks)
        return
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(catalogue, engine)) as pool:
        yield from pool.map(_in_worker, tasks, [now] * len(tasks), chunksize=max(1, len(tasks) // (workers * 8)))


_pipelines: list[Pipeline] = []  # of a worker process: its one pipeline, built once


def _start_worker(catalogue: Catalogue, engine: Literal["auto", "hyperscan", "python"]) -> None:
    _pipelines[:] = [Pipeline(catalogue, engine=engine, utc_offset=-time.timezone)]


def _in_worker(task: Task, now: float) -> Scanned:
    return scan_one(task, _pipelines[0], now)


def scan_one(task: Task, pipeline: Pipeline, now: float) -> Scanned:
    """One log from its first byte to its last."""
    matches: list[Match] = []
    unmatched = size = 0
    line = 1
    job = jobs.job_of(task.path) if task.source == "job" else None
    pipeline.forget(task.path)
    try:
        with open_log(task.path) as stream:
            rest, last = b"", False
            while not last:
                data = stream.read(BLOCK_BYTES)
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
                matches += done.matches
                unmatched += done.unmatched
                line += done.newlines
                size += done.consumed
                rest = chunk.data[done.consumed :]
    except (OSError, EOFError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or repr(error)
        return Scanned(task.path, size, tuple(matches), unmatched, Unread(task.path, why))
    finally:
        pipeline.forget(task.path)
    return Scanned(task.path, size, tuple(matches), unmatched)
