"""The journals of a node, or of a few, as tables in SQLite: for `gpufault timeline` where DuckDB is not installed.

The tables have the names and columns of `schema`, as far as a timeline asks for them, and are in memory.
"""

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from exporter.core.diagnosis.record_schema import Record, RefusedRecord, parse
from exporter.core.model import AHEAD_SECONDS
from exporter.fleet.history.record_rows import COLUMNS, rows_of
from exporter.scan.reader import ByLines, open_log

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_KEYS = {  # what tells a record from others
    "incidents": ("node", "id"), "facts": ("node", "time", "facts"), "heartbeats": ("node", "time"),
    "job_ends": ("node", "job", "time"), "faults": ("node", "time", "signature", "gpu", "job", "state"),
    "boots": ("node", "boot"),
}  # fmt: skip
_TABLES = "".join(f"CREATE TABLE {name} ({', '.join(columns)});" for name, columns in COLUMNS.items())
_WATCHED = "CREATE VIEW watched_days AS SELECT node, time AS last FROM heartbeats;"


@contextmanager
def tables(folder: Path, *, now: float) -> Iterator[sqlite3.Connection]:
    """All records below a folder, or of one file. now: the reader's clock. Raises OSError."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))
    if not files:
        raise OSError(f"{folder}: no journal here; name a folder with *.jsonl, such as the daemon's journal.dir")
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_TABLES + _WATCHED)
        seen: set[tuple[object, ...]] = set()
        records = (record for path in files for record in _records(path) if record.time <= now + AHEAD_SECONDS)
        for table, row in (pair for record in records for pair in rows_of(record)):
            values = dict(zip(COLUMNS[table], row, strict=True))
            key = table, *(values[column] for column in _KEYS[table])
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
