"""The journals of a node, or of a few, as tables in SQLite: for `gpufault timeline` where DuckDB is not installed.

The tables have the names and columns of `schema`, as far as a timeline asks for them, and are in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from exporter.core.diagnosis.record_schema import (
    FactsRecord,
    FaultRecord,
    HeartbeatRecord,
    IncidentRecord,
    JobEndRecord,
    Record,
    RefusedRecord,
    parse,
)
from exporter.core.model import AHEAD_SECONDS
from exporter.scan.reader import ByLines, open_log

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_COLUMNS = {  # and how many of them, the first ones, tell a record from others
    "incidents": ("node, id, time, source, signature, root_cause, verdict, role, job, gpu, caused_by", 2),
    "facts": ("node, time, facts", 3),
    "heartbeats": ("node, time, hours", 2),
    "job_ends": ("node, job, time, outcome, started", 3),
    "faults": ("node, time, signature, gpu, job, state, root_cause, action, cleared_by", 6),
    "boots": ("node, boot, time", 2),
}
_TABLES = "".join(f"CREATE TABLE {name} ({columns});" for name, (columns, _) in _COLUMNS.items())
_WATCHED = "CREATE VIEW watched_days AS SELECT node, time AS last FROM heartbeats;"

Row = tuple[str, tuple[object, ...]]  # the table, and the values of its columns


@contextmanager
def tables(folder: Path, *, now: float) -> Iterator[sqlite3.Connection]:
    """All records below a folder, or of one file. now: the reader's clock. Raises OSError."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))
    if not files:
        raise OSError(f"{folder}: no journal here; name a folder with *.jsonl, such as the daemon's journal.dir")
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_TABLES + _WATCHED)
        seen: set[Row] = set()
        for path in files:
            for table, row in _rows(_records(path), now + AHEAD_SECONDS):
                key = table, row[: _COLUMNS[table][1]]
                if key not in seen:
                    seen.add(key)
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        yield db


def _records(path: Path) -> Iterator[Record]:
    """Those that pass. What does not is the fleet service's to report: a node's own journal has none."""
    with open_log(str(path)) as data, io.BufferedReader(ByLines(data)) as lines:
        for line in lines:
            try:
                record = parse(line)
            except RefusedRecord:
                continue
            if record is not None:
                yield record


def _rows(records: Iterable[Record], horizon: float) -> Iterator[Row]:
    for record in records:
        if record.time > horizon:
            continue
        node, time = record.node, record.time
        match record:
            case IncidentRecord() as one:
                job = one.job.id if one.job else None
                id_ = one.id or hashlib.sha256(f"{node} {time} {one.signature} {job}".encode()).hexdigest()[:16]
                role = one.role if one.role in ("cascade", "context") else "root"
                verdict = one.verdict if one.verdict in ("infrastructure", "workload") else "unclear"
                columns = (
                    one.signature,
                    one.root_cause or "unknown",
                    verdict,
                    role,
                    job or None,
                    one.gpu,
                    one.caused_by,
                )
                yield "incidents", (node, id_, time, one.source, *columns)
            case FactsRecord() as one:
                yield "facts", (node, time, json.dumps(one.facts, sort_keys=True))
                if one.boot and one.boot.id and one.boot.time <= time:
                    yield "boots", (node, one.boot.id, one.boot.time)
            case HeartbeatRecord() as one:
                yield "heartbeats", (node, time, one.hours)
            case JobEndRecord() as one:
                started = one.started if one.started is not None and one.started <= time else None
                yield "job_ends", (node, one.job.id, time, one.outcome, started)
            case FaultRecord() as one:
                by = one.cleared.kind if one.cleared else None
                of = (one.signature, one.gpu, one.job or None, one.state, one.root_cause or "unknown", one.action, by)
                yield "faults", (node, time, *of)
