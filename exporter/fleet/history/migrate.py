"""Makes a store of an earlier version hold what the schema of a record allows, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable

import duckdb

from exporter.core.diagnosis.record_schema import (
    EARLIEST,
    LATEST,
    MAX_BEAT_HOURS,
    MAX_GPUS,
    FactsRecord,
    RefusedRecord,
    as_line,
    parse,
)
from exporter.core.text.printable import printable
from exporter.fleet.history.watched import roll_up_all

_TABLES = ("incident_rows", "fact_rows", "heartbeat_rows", "job_end_rows", "fault_rows", "boot_rows")
_SANE = f"BETWEEN {EARLIEST} AND {LATEST}"
CHECKED = 4  # the first version whose records were checked before they were stored


def migrate(db: duckdb.DuckDBPyConnection, version: int) -> None:
    """Bring the rows of a store of an earlier version up to date. Takes as long as there are rows, whatever they hold."""
    if version >= CHECKED:
        return
    for table in _TABLES:
        db.execute(f"DELETE FROM {table} WHERE time IS NULL OR NOT time {_SANE}")
    db.execute(f"UPDATE job_end_rows SET started = NULL WHERE NOT started {_SANE}")
    db.execute(
        f"""UPDATE heartbeat_rows SET gpu_busy_hours = NULL
        WHERE NOT gpu_busy_hours BETWEEN 0 AND {MAX_BEAT_HOURS * MAX_GPUS}"""
    )
    _replace(db, "fact_rows", "facts", _facts)
    _replace(db, "incident_rows", "record", _record)
    columns = db.execute(
        """SELECT table_name, column_name FROM duckdb_columns()
        WHERE data_type = 'VARCHAR' AND database_name = current_database()
        AND list_contains($tables, table_name) AND column_name NOT IN ('facts', 'record')""",
        {"tables": list(_TABLES)},
    ).fetchall()
    for table, column in columns:
        _replace(db, table, column, _lines, where=f"NOT regexp_full_match({column}, '[ -~]*')")
    roll_up_all(db)


def _replace(
    db: duckdb.DuckDBPyConnection, table: str, column: str, checked: Callable[[str], str | None], where: str = "true"
) -> None:
    """Replace each value that differs when it is checked; None deletes its rows."""
    db.execute("CREATE OR REPLACE TEMP TABLE replaced (before VARCHAR, after VARCHAR)")
    with db.cursor() as reader:
        values = reader.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL AND {where}")
        while rows := values.fetchmany(10_000):
            changed = [[value, after] for (value,) in rows if (after := checked(value)) != value]
            if changed:
                db.executemany("INSERT INTO replaced VALUES (?, ?)", changed)
    db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT before FROM replaced WHERE after IS NULL)")
    db.execute(f"UPDATE {table} SET {column} = after FROM replaced WHERE {column} = before")


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _facts(text: str) -> str | None:
    try:
        record = FactsRecord.model_validate({"kind": "facts", "time": EARLIEST, "node": "-", "facts": text})
    except ValueError:
        return None
    return json.dumps(record.facts, ensure_ascii=False, separators=(",", ":"))


def _record(text: str) -> str:
    """An incident's record; without what its columns do not have, where it does not pass."""
    try:
        record = parse(text)
    except RefusedRecord:
        return "{}"
    return "{}" if record is None else as_line(record).decode().strip()
