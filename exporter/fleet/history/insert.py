"""From lines of journals to rows: checks each record, drops what the tables have already, names what is unusable.

A record needs `kind`, `time`, `node`, and `signature`, `facts` or `hours`; every other field may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from exporter.fleet.history.retention import RAN
from exporter.fleet.input import budgets

MAX_LINE_BYTES = 16 << 20
MAX_RECORD_CHARS = 1 << 20  # a record with an excerpt of ten lines has some 30 kB; a longer one keeps its columns only
MAX_NAME_CHARS = 256  # DNS and Kubernetes names have 253
MAX_TEXT_CHARS = 4096  # the daemon writes 2,048
MAX_BEAT_HOURS = 31 * 24.0

_PATHS = (
    "kind", "time", "node", "id", "signature", "root_cause", "vendor", "severity", "role", "verdict", "source", "path",
    "line", "gpu", "job", "job.id", "job.user", "job.account", "job.name", "job.image", "job.namespace", "job.pod",
    "caused_by", "text", "hours", "gpu_busy_hours", "outcome", "started", "boot.id", "boot.time", "state", "action",
    "cleared.kind",
)  # fmt: skip
_FIELD = {path: f"f[{number}]" for number, path in enumerate(_PATHS, 1)}
_NAMES = (
    "id", "node", "signature", "root_cause", "vendor", "severity", "role", "verdict", "source", "gpu", "caused_by",
)  # fmt: skip
_JOB = {
    "job_user": "user", "account": "account", "job_name": "name", "image": "image", "namespace": "namespace", "pod": "pod",
}  # fmt: skip
_LINES = f"SELECT json FROM read_ndjson_objects(?, ignore_errors = true, maximum_object_size = {MAX_LINE_BYTES * 2})"
_TABLE = "SELECT to_json(t) AS json FROM read_parquet(?) AS t"


def _epoch(path: str) -> str:
    """A time as epoch seconds: RFC 3339 or a number."""
    return f"coalesce(epoch(try_cast({_FIELD[path]} AS TIMESTAMPTZ)), try_cast({_FIELD[path]} AS DOUBLE))"


_STAGE = f"""
CREATE OR REPLACE TEMP TABLE staged AS SELECT *, CASE
    WHEN json IS NULL OR json_type(json) != 'OBJECT' THEN 'not a JSON object'
    WHEN kind IS NULL THEN 'no kind'
    WHEN kind NOT IN ('incident', 'facts', 'heartbeat', 'job_end', 'fault') THEN 'other'
    WHEN coalesce(node, '') = '' THEN 'no node'
    WHEN time IS NULL OR NOT isfinite(time) THEN 'no usable time'
    WHEN kind = 'incident' AND coalesce(signature, '') = '' THEN 'no signature'
    WHEN kind = 'facts' AND coalesce(json_type(facts), '') != 'OBJECT' THEN 'no usable facts'
    WHEN kind = 'facts' AND length(facts) > {MAX_RECORD_CHARS} THEN 'facts are too long'
    WHEN kind = 'heartbeat' AND NOT coalesce(hours BETWEEN 0 AND {MAX_BEAT_HOURS}, false) THEN 'no usable hours'
    WHEN kind = 'job_end' AND (coalesce(job, '') = ''
            OR coalesce(outcome, '') NOT IN ('explained', 'unrecognised', 'signal', 'no_line'))
        THEN 'no usable end'
    WHEN kind = 'fault' AND (coalesce(signature, '') = '' OR coalesce(fault_state, '') NOT IN ('open', 'cleared'))
        THEN 'no usable state'
    ELSE 'good' END AS state
FROM (SELECT row, json, {_FIELD["kind"]} AS kind,
    {_epoch("time")} AS time,
    {", ".join(f"left({_FIELD[name]}, {MAX_NAME_CHARS}) AS {name}" for name in _NAMES)},
    left({_FIELD["path"]}, {MAX_TEXT_CHARS}) AS path, left({_FIELD["text"]}, {MAX_TEXT_CHARS}) AS text,
    try_cast({_FIELD["line"]} AS BIGINT) AS line,
    left(CASE json_type(json, '$.job') WHEN 'OBJECT' THEN {_FIELD["job.id"]} ELSE {_FIELD["job"]} END, {MAX_NAME_CHARS})
        AS job,
    {", ".join(f"left({_FIELD[f'job.{name}']}, {MAX_NAME_CHARS}) AS {column}" for column, name in _JOB.items())},
    CASE json_type(json, '$.facts') WHEN 'VARCHAR' THEN try_cast(json ->> '$.facts' AS JSON)
        ELSE json_extract(json, '$.facts') END AS facts,
    {_FIELD["outcome"]} AS outcome, {_epoch("started")} AS started,
    left({_FIELD["boot.id"]}, {MAX_NAME_CHARS}) AS boot, {_epoch("boot.time")} AS booted,
    {_FIELD["state"]} AS fault_state, left({_FIELD["action"]}, {MAX_NAME_CHARS}) AS action,
    left({_FIELD["cleared.kind"]}, {MAX_NAME_CHARS}) AS cleared_by,
    try_cast({_FIELD["hours"]} AS DOUBLE) AS hours, try_cast({_FIELD["gpu_busy_hours"]} AS DOUBLE) AS gpu_busy_hours
FROM (SELECT row_number() OVER () AS row, json,
    json_extract_string(json, [{", ".join(f"'$.{path}'" for path in _PATHS)}]) AS f FROM (%s)))"""

# A node may write any id, also one of another node's incident: then the second one gets its node's name behind it.
_INCIDENTS = f"""
CREATE OR REPLACE TEMP TABLE fresh AS SELECT * REPLACE (
    CASE WHEN taken OR row_number() OVER (PARTITION BY id ORDER BY row) > 1 THEN id || '@' || node ELSE id END AS id)
FROM (SELECT s.*, EXISTS (SELECT 1 FROM incident_rows AS i WHERE i.id = s.id AND i.node != s.node) AS taken
    FROM (SELECT * REPLACE (CASE WHEN coalesce(id, '') = '' OR contains(id, '@')
            THEN 'x' || md5(concat_ws('|', id, node, time, signature, job)) ELSE id END AS id)
        FROM staged WHERE kind = 'incident' AND state = 'good') AS s
    QUALIFY row_number() OVER (PARTITION BY s.node, s.id ORDER BY s.row) = 1);
DELETE FROM fresh WHERE id IN (SELECT id FROM incident_rows);
INSERT INTO incident_rows BY NAME SELECT id, time, node, signature, coalesce(nullif(root_cause, ''), 'unknown') AS root_cause,
    vendor, severity, CASE WHEN role IN ('cascade', 'context') THEN role ELSE 'root' END AS role,
    CASE WHEN verdict IN ('infrastructure', 'workload') THEN verdict ELSE 'unclear' END AS verdict,
    source, path, line, gpu, nullif(job, '') AS job, job_user, account, job_name, image, namespace, pod, caused_by, text,
    CASE WHEN length(json) <= {MAX_RECORD_CHARS} THEN json ELSE '{{}}' END AS record, {RAN} AS received
    FROM fresh ORDER BY time"""

# Each segment of a journal begins with the facts that are known already: only changes are kept.
_FACTS = f"""
INSERT INTO fact_rows BY NAME SELECT n.time, n.node, n.facts, {RAN} AS received FROM (
    SELECT time, node, facts, lag(facts) OVER (PARTITION BY node ORDER BY time, row) AS before
    FROM staged WHERE kind = 'facts' AND state = 'good') AS n
ASOF LEFT JOIN fact_rows AS k ON k.node = n.node AND k.time <= n.time
WHERE n.facts IS DISTINCT FROM n.before AND (k.time IS NULL OR n.before IS NOT NULL AND k.time < n.time OR k.facts != n.facts)
AND NOT EXISTS (SELECT 1 FROM fact_rows AS same WHERE same.node = n.node AND same.time = n.time AND same.facts = n.facts)
ORDER BY n.node, n.time"""
_HEARTBEATS = f"""
INSERT INTO heartbeat_rows BY NAME SELECT time, node, max(hours) AS hours, max(gpu_busy_hours) AS gpu_busy_hours,
    {RAN} AS received FROM staged AS s
WHERE kind = 'heartbeat' AND state = 'good' AND NOT EXISTS (
    SELECT 1 FROM heartbeat_rows AS h WHERE h.node = s.node AND h.time = s.time
    AND h.time >= (SELECT min(time) FROM staged WHERE kind = 'heartbeat' AND state = 'good'))
GROUP BY node, time ORDER BY time, node"""

_JOB_ENDS = f"""
INSERT INTO job_end_rows BY NAME SELECT DISTINCT ON (time, node, job) time, node, job, outcome,
    CASE WHEN started <= time THEN started END AS started, {RAN} AS received FROM staged AS s
WHERE kind = 'job_end' AND state = 'good' AND NOT EXISTS (
    SELECT 1 FROM job_end_rows AS e WHERE e.node = s.node AND e.job = s.job AND e.time = s.time)
ORDER BY time, row"""
_FAULTS = f"""
INSERT INTO fault_rows BY NAME SELECT time, node, signature, coalesce(nullif(root_cause, ''), 'unknown') AS root_cause, gpu,
    nullif(job, '') AS job, action, fault_state AS state, cleared_by, {RAN} AS received FROM staged AS s
WHERE kind = 'fault' AND s.state = 'good' AND NOT EXISTS (
    SELECT 1 FROM fault_rows AS f WHERE f.node = s.node AND f.time = s.time AND f.signature = s.signature
    AND f.gpu IS NOT DISTINCT FROM s.gpu AND f.job IS NOT DISTINCT FROM nullif(s.job, '') AND f.state = s.fault_state)
ORDER BY time, row"""

# Each segment of a journal begins with facts, and facts name the boot.
_BOOTS = f"""
INSERT INTO boot_rows BY NAME SELECT booted AS time, node, boot, {RAN} AS received FROM staged AS s
WHERE kind = 'facts' AND state = 'good' AND coalesce(boot, '') != '' AND booted <= time AND NOT EXISTS (
    SELECT 1 FROM boot_rows AS b WHERE b.node = s.node AND b.boot = s.boot)
QUALIFY row_number() OVER (PARTITION BY node, boot ORDER BY row) = 1 ORDER BY booted"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """What became of some lines. `bad`: the row (from 1) and the reason of each unusable one, in order."""

    rows: int
    good: int
    bad: tuple[tuple[int, str], ...]


def insert(db: duckdb.DuckDBPyConnection, path: str, *, now: float, is_table: bool = False) -> Inserted:
    """Insert the records of a file of lines, or of a Parquet file, within each node's share. Call it within a transaction.

    Raises duckdb.Error for a file that cannot be read.
    """
    db.execute(_STAGE % (_TABLE if is_table else _LINES), [path])
    over = budgets.limit_values(db, "staged", stored="incident_rows")
    for statement in (_INCIDENTS, _FACTS, _HEARTBEATS, _JOB_ENDS, _FAULTS, _BOOTS):
        db.execute(statement)
    for table in ("incident_rows", "fact_rows", "job_end_rows", "fault_rows", "boot_rows"):
        over += budgets.limit_rows(db, table, of="staged")
    tell(db, over, now)
    counted = db.execute("SELECT count(*), count(*) FILTER (state = 'good') FROM staged").fetchone()
    bad = db.execute("SELECT row, state FROM staged WHERE state NOT IN ('good', 'other') ORDER BY row").fetchall()
    assert counted is not None
    return Inserted(rows=counted[0], good=counted[1], bad=tuple((row, why) for row, why in bad))


def tell(db: duckdb.DuckDBPyConnection, over: budgets.Over, now: float) -> None:
    """Add what was beyond nodes' shares to the gaps."""
    for (node, what), count in over.items():
        column = what.removeprefix("values of ").replace(" ", "_")
        became = (
            f"the {budgets.VALUES[column]:,} of one node, now `{budgets.OTHER}`"
            if column in budgets.VALUES
            else "those kept of one node, deleted"
        )
        add_gap(db, budgets.KIND, node, count, f"{what} beyond {became}", now)


def add_gap(db: duckdb.DuckDBPyConnection, kind: str, where: str, count: int, what: str, now: float) -> None:
    """Add a gap. Those of the same kind, place and text are one with their sum."""
    same = [kind, where, what]
    row = db.execute("SELECT sum(count) FROM gaps WHERE kind = ? AND path = ? AND what = ?", same).fetchone()
    before = int(row[0]) if row and row[0] is not None else 0
    db.execute("DELETE FROM gaps WHERE kind = ? AND path = ? AND what = ?", same)
    db.execute(f"INSERT INTO gaps VALUES (?, ?, NULL, ?, ?, ?, {RAN})", [kind, where, before + count, what, now])
