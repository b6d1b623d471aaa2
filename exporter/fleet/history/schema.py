"""The tables of a fleet's history in DuckDB: what pages, API and reports query.

Times are UTC epoch seconds as DOUBLE. Readers query the views `incidents`, `facts`, `job_ends`, `faults`, `boots` and
`heartbeats`; they hide records that are further in the future than a wrong clock explains. `gaps` names what could not be
used. `targets` holds the nodes that are pulled, and how that went; its counts are those of all time. `watched_days` sums
up heartbeats for all who do not need each of them.
"""

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
from exporter.core.model import PEER_FAILURE
from exporter.core.text.phrases import printable
from exporter.fleet.history import retention, watched
from exporter.fleet.history.watched import roll_up_all

# What counts, for all who count: consequences and peers' failures do not. Where the cause is unknown, the signature
# stands for it. A cause is NULL where only counts are known, as from Prometheus.
IS_ROOT = f"role = 'root' AND root_cause IS DISTINCT FROM '{PEER_FAILURE}'"
IS_UNKNOWN = "coalesce(root_cause, 'unknown') = 'unknown'"
CAUSE = f"CASE WHEN {IS_UNKNOWN} THEN signature ELSE root_cause END"
ROLE = f"CASE WHEN role = 'root' AND NOT ({IS_ROOT}) THEN 'cascade' ELSE role END"  # a peer's failure is a consequence
ROOTS = f"""
roots AS (SELECT *, {IS_UNKNOWN} AS unexplained, if(unexplained, 'signature', 'cause') AS kind, {CAUSE} AS key,
    coalesce(verdict, 'unclear') AS fault FROM incidents WHERE time >= $start AND time < $end AND {IS_ROOT})
"""
# Every node of a window; without any heartbeats a node that has written its facts is one, too.
NODES = f"""
SELECT node FROM watched_days WHERE {watched.IN_WINDOW}
UNION SELECT node FROM incidents WHERE time >= $start AND time < $end
UNION SELECT node FROM facts WHERE time < $end AND NOT EXISTS (FROM watched_days WHERE {watched.IN_WINDOW})
"""
VERSION = 4  # 2: watched_days; 3: starts of jobs, faults and boots; 4: checked records, and when rows came
MEMORY = "1GB"  # of DuckDB, half of what the chart allows the service; it spills to disk beyond

# In `rows` tables each incident stands once by id, each heartbeat once by node and time; of facts only changes.
_TABLES = """
CREATE TABLE IF NOT EXISTS about (version INTEGER, horizon DOUBLE, revision BIGINT, updated DOUBLE);
CREATE TABLE IF NOT EXISTS incident_rows (
    id VARCHAR, time DOUBLE, node VARCHAR, signature VARCHAR, root_cause VARCHAR, vendor VARCHAR, severity VARCHAR,
    role VARCHAR, verdict VARCHAR, source VARCHAR, path VARCHAR, line BIGINT, gpu VARCHAR, job VARCHAR, job_user VARCHAR,
    account VARCHAR, job_name VARCHAR, image VARCHAR, namespace VARCHAR, pod VARCHAR, caused_by VARCHAR, text VARCHAR,
    record VARCHAR);
CREATE TABLE IF NOT EXISTS fact_rows (time DOUBLE, node VARCHAR, facts VARCHAR);
CREATE TABLE IF NOT EXISTS heartbeat_rows (time DOUBLE, node VARCHAR, hours DOUBLE, gpu_busy_hours DOUBLE);
CREATE TABLE IF NOT EXISTS job_end_rows (time DOUBLE, node VARCHAR, job VARCHAR, outcome VARCHAR);
ALTER TABLE job_end_rows ADD COLUMN IF NOT EXISTS started DOUBLE;
ALTER TABLE incident_rows ADD COLUMN IF NOT EXISTS domain VARCHAR DEFAULT 'unknown';
ALTER TABLE incident_rows ADD COLUMN IF NOT EXISTS restart VARCHAR DEFAULT 'unknown';
CREATE TABLE IF NOT EXISTS fault_rows (
    time DOUBLE, node VARCHAR, signature VARCHAR, root_cause VARCHAR, gpu VARCHAR, job VARCHAR, action VARCHAR,
    state VARCHAR, cleared_by VARCHAR);
CREATE TABLE IF NOT EXISTS boot_rows (time DOUBLE, node VARCHAR, boot VARCHAR);
CREATE TABLE IF NOT EXISTS cursors (
    path VARCHAR, device BIGINT, inode BIGINT, size BIGINT, changed BIGINT, position BIGINT, lines BIGINT,
    tail VARCHAR, seen DOUBLE, records BIGINT, newest DOUBLE);
CREATE TABLE IF NOT EXISTS gaps (kind VARCHAR, path VARCHAR, line BIGINT, count BIGINT, what VARCHAR, time DOUBLE);
CREATE TABLE IF NOT EXISTS pull_cursors (
    node VARCHAR, segment BIGINT, position BIGINT, tail VARCHAR, complete BOOLEAN, seen DOUBLE);
CREATE TABLE IF NOT EXISTS targets (
    node VARCHAR, address VARCHAR, state VARCHAR, what VARCHAR, pulled DOUBLE, failing_since DOUBLE, behind BIGINT,
    bytes BIGINT, records BIGINT, refused BIGINT, lost_segments BIGINT);
CREATE TABLE IF NOT EXISTS spoken (node VARCHAR, address VARCHAR, listed DOUBLE);
"""
# The views, each of a table of rows; there are no other tables of records.
VIEWS = {
    "incidents": "incident_rows", "facts": "fact_rows", "job_ends": "job_end_rows", "faults": "fault_rows",
    "boots": "boot_rows", "heartbeats": "heartbeat_rows",
}  # fmt: skip
_VIEWS = "".join(
    f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {rows} WHERE time <= (SELECT horizon FROM about);\n"
    for view, rows in VIEWS.items()
)


class NewerStore(Exception):
    """The store was written by a later version."""


def create(db: duckdb.DuckDBPyConnection) -> None:
    """Create the tables where they are missing. Raises NewerStore."""
    configure(db)
    db.execute(_TABLES + watched.TABLE + retention.COLUMNS + _VIEWS)
    row = db.execute("SELECT version FROM about").fetchone()
    if row is None:
        db.execute("INSERT INTO about VALUES (?, 0, 0, 0, 0)", [VERSION])
    elif row[0] > VERSION:
        raise NewerStore(f"the store has version {row[0]}, this program writes {VERSION}; upgrade gpufault")
    elif row[0] < VERSION:
        migrate(db, row[0])
        db.execute("UPDATE about SET version = ?", [VERSION])


def configure(db: duckdb.DuckDBPyConnection) -> None:
    """Settings of a connection: times in UTC, bounded memory, no progress bar, objects of arrays as texts."""
    db.execute(
        f"SET TimeZone = 'UTC'; SET memory_limit = '{MEMORY}'; SET enable_progress_bar = false; SET pandas_analyze_sample = 0"
    )


_SANE = f"BETWEEN {EARLIEST} AND {LATEST}"
CHECKED = 4  # the first version whose records were checked before they were stored


def migrate(db: duckdb.DuckDBPyConnection, version: int) -> None:
    """Bring the rows of a store of an earlier version up to date. Takes as long as there are rows, whatever they hold."""
    if version >= CHECKED:
        return
    for table in VIEWS.values():
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
        {"tables": list(VIEWS.values())},
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


def fact_pointer(name: str) -> str:
    """The JSON pointer of a fact in `facts`."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
