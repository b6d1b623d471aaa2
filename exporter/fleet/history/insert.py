"""From checked records to rows: drops what the tables have already, within each node's share.

A node's share is how many rows, and how many different values, it may have. A node may lie, or a job on it may print anything.
What is beyond its share affects that node only: a further value becomes `other`, and the earliest rows are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import duckdb
import numpy as np

from exporter.core.diagnosis.record_schema import Record
from exporter.fleet.history.record_rows import COLUMNS, Row, rows_of
from exporter.fleet.history.retention import RAN

_NUMBERS = {"time", "line", "hours", "gpu_busy_hours", "started"}


class NewRows:
    """Checked records as rows, by table: what `insert` takes. Its length is the number of records."""

    def __init__(self) -> None:
        self.of: Mapping[str, list[Row]] = {table: [] for table in COLUMNS}
        self._records = 0

    def add(self, record: Record) -> None:
        for table, row in rows_of(record):
            self.of[table].append(row)
        self._records += 1

    def extend(self, others: Iterable[NewRows]) -> None:
        for other in others:
            for table, rows in other.of.items():
                self.of[table].extend(rows)
            self._records += len(other)

    def __len__(self) -> int:
        return self._records


def _stage(db: duckdb.DuckDBPyConnection, new: NewRows) -> None:
    """Put the rows into temporary tables, numbered in their order."""
    for table, columns in COLUMNS.items():
        rows = new.of[table]
        values = zip(*rows, strict=True) if rows else [()] * len(columns)
        arrays = {
            name: np.array(column, dtype=float if name in _NUMBERS else object)  # None is NaN, and NaN is NULL
            for name, column in zip(columns, values, strict=True)
        }
        db.register("new_rows", {"row": np.arange(len(rows)), **arrays})
        db.execute(f"CREATE OR REPLACE TEMP TABLE new_{table} AS FROM new_rows")
        db.unregister("new_rows")


# A node may write any id, also one of another node's incident: then the second one gets its node's name appended.
_INCIDENTS = f"""
CREATE OR REPLACE TEMP TABLE fresh AS SELECT * REPLACE (
    CASE WHEN taken OR row_number() OVER (PARTITION BY id ORDER BY row) > 1 THEN id || '@' || node ELSE id END AS id)
FROM (SELECT s.*, EXISTS (SELECT 1 FROM incident_rows AS i WHERE i.id = s.id AND i.node != s.node) AS taken
    FROM new_incidents AS s
    QUALIFY row_number() OVER (PARTITION BY s.node, s.id ORDER BY s.row) = 1);
DELETE FROM fresh WHERE id IN (SELECT id FROM incident_rows);
INSERT INTO incident_rows BY NAME SELECT * EXCLUDE (row, taken) REPLACE (line::BIGINT AS line), {RAN} AS received
    FROM fresh ORDER BY time"""

# Each segment of a journal begins with the facts that are known already: only changes are kept.
_FACTS = f"""
INSERT INTO fact_rows BY NAME WITH stored AS (FROM fact_rows SEMI JOIN new_facts USING (node))
SELECT n.time, n.node, n.facts, {RAN} AS received FROM (
    SELECT time, node, facts, lag(facts) OVER (PARTITION BY node ORDER BY time, row) AS before
    FROM new_facts) AS n
ASOF LEFT JOIN stored AS k ON k.node = n.node AND k.time <= n.time
WHERE n.facts IS DISTINCT FROM n.before AND (k.time IS NULL OR n.before IS NOT NULL AND k.time < n.time OR k.facts != n.facts)
AND NOT EXISTS (SELECT 1 FROM stored AS same WHERE same.node = n.node AND same.time = n.time AND same.facts = n.facts)
ORDER BY n.node, n.time"""
_HEARTBEATS = f"""
INSERT INTO heartbeat_rows BY NAME SELECT time, node, max(hours) AS hours, max(gpu_busy_hours) AS gpu_busy_hours,
    {RAN} AS received FROM new_heartbeats AS s
WHERE NOT EXISTS (
    SELECT 1 FROM heartbeat_rows AS h WHERE h.node = s.node AND h.time = s.time
    AND h.time >= (SELECT min(time) FROM new_heartbeats))
GROUP BY node, time ORDER BY time, node"""

_JOB_ENDS = f"""
INSERT INTO job_end_rows BY NAME SELECT DISTINCT ON (time, node, job) * EXCLUDE row, {RAN} AS received FROM new_job_ends AS s
WHERE NOT EXISTS (
    SELECT 1 FROM job_end_rows AS e WHERE e.node = s.node AND e.job = s.job AND e.time = s.time)
ORDER BY time, row"""
_FAULTS = f"""
INSERT INTO fault_rows BY NAME SELECT * EXCLUDE row, {RAN} AS received FROM new_faults AS s
WHERE NOT EXISTS (
    SELECT 1 FROM fault_rows AS f WHERE f.node = s.node AND f.time = s.time AND f.signature = s.signature
    AND f.gpu IS NOT DISTINCT FROM s.gpu AND f.job IS NOT DISTINCT FROM s.job AND f.state = s.state)
ORDER BY time, row"""

# Each segment of a journal begins with facts, and facts name the boot.
_BOOTS = f"""
INSERT INTO boot_rows BY NAME SELECT * EXCLUDE row, {RAN} AS received FROM new_boots AS s
WHERE NOT EXISTS (SELECT 1 FROM boot_rows AS b WHERE b.node = s.node AND b.boot = s.boot)
QUALIFY row_number() OVER (PARTITION BY node, boot ORDER BY row) = 1 ORDER BY time"""
# Heartbeats are limited when the store is pruned.
_LIMITED = ("incident_rows", "fact_rows", "job_end_rows", "fault_rows", "boot_rows")


def insert(db: duckdb.DuckDBPyConnection, rows: NewRows, *, now: float) -> None:
    """Insert rows of records within each node's share. Call it within a transaction. Raises duckdb.Error."""
    _stage(db, rows)
    over = limit_values(db, "new_incidents", stored="incident_rows")
    for statement in (_INCIDENTS, _FACTS, _HEARTBEATS, _JOB_ENDS, _FAULTS, _BOOTS):
        db.execute(statement)
    for table in _LIMITED:
        over += limit_rows(db, table, of=f"new_{table.removesuffix('_rows')}s")
    add_over_budget(db, over, now)


def add_over_budget(db: duckdb.DuckDBPyConnection, over: Over, now: float) -> None:
    """Add what was beyond nodes' shares to the gaps."""
    for (node, subject), count in over.items():
        add_gap(db, KIND, node, count, subject, now)


def add_gap(db: duckdb.DuckDBPyConnection, kind: str, path: str, count: int, message: str, now: float) -> None:
    """Add a gap. Those of the same kind, place and text are one with their sum."""
    same = [kind, path, message]
    row = db.execute("SELECT sum(count) FROM gaps WHERE kind = ? AND path = ? AND what = ?", same).fetchone()
    before = int(row[0]) if row and row[0] is not None else 0
    db.execute("DELETE FROM gaps WHERE kind = ? AND path = ? AND what = ?", same)
    db.execute(f"INSERT INTO gaps VALUES (?, ?, NULL, ?, ?, ?, {RAN})", [kind, path, before + count, message, now])


OTHER = "other"
KIND = "node_budget"  # of a gap
# Of one node. A busy one shows some 100 signatures, has 16 GPUs, and an incident a minute in its worst week.
VALUES: Mapping[str, int] = {
    "signature": 300, "root_cause": 300, "vendor": 300, "severity": 300, "source": 300, "gpu": 300, "job": 10_000,
    "job_user": 1000, "account": 1000, "job_name": 1000, "image": 1000, "namespace": 1000, "pod": 10_000,
}  # fmt: skip
ROWS: Mapping[str, int] = {
    "incident_rows": 50_000, "fact_rows": 2_000, "job_end_rows": 50_000, "fault_rows": 10_000, "boot_rows": 1_000,
    "heartbeat_rows": 500_000,
}  # fmt: skip
_FEWEST = min(VALUES.values())

Over = Counter[tuple[str, str]]  # by node and what was beyond its share: how many values or rows


def limit_values(db: duckdb.DuckDBPyConnection, table: str, *, stored: str) -> Over:
    """Replace the values of incidents in `table` that are beyond their nodes' shares; the most frequent ones stay.

    stored: the table with what each node has already.
    """
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE crowded AS SELECT node FROM (
        SELECT node FROM {table}
        UNION ALL SELECT node FROM {stored} WHERE node IN (SELECT node FROM {table}))
        GROUP BY node HAVING count(*) > {_FEWEST}"""
    )
    over: Over = Counter()
    if not _count(db, "crowded"):
        return over
    for column, most in VALUES.items():
        db.execute(
            f"""CREATE OR REPLACE TEMP TABLE surplus AS
            WITH has AS (SELECT DISTINCT node, {column} AS value FROM {stored}
                WHERE node IN (FROM crowded) AND {column} IS NOT NULL),
            new AS (SELECT node, {column} AS value, count(*) AS count FROM {table} ANTI JOIN has
                ON has.node = {table}.node AND has.value = {table}.{column}
                WHERE node IN (FROM crowded) AND {column} IS NOT NULL GROUP BY ALL)
            SELECT node, value, count FROM new LEFT JOIN (SELECT node, count(*) AS known FROM has GROUP BY node) USING (node)
            QUALIFY coalesce(known, 0) + row_number() OVER (PARTITION BY node ORDER BY count DESC, value)
                > {most}"""
        )
        for node, count in db.execute("SELECT node, sum(count)::BIGINT FROM surplus GROUP BY node").fetchall():
            subject = f"values of {column.replace('_', ' ')} beyond the {most:,} of one node, now `{OTHER}`"
            over[node, subject] += count
        db.execute(
            f"""UPDATE {table} SET {column} = '{OTHER}' FROM surplus AS s
            WHERE s.node = {table}.node AND s.value = {table}.{column}"""
        )
    return over


def limit_rows(db: duckdb.DuckDBPyConnection, table: str, *, of: str | None = None) -> Over:
    """Delete the rows beyond their nodes' shares, the earliest first. of: a table that names the nodes to look at."""
    only = f"WHERE node IN (SELECT node FROM {of})" if of else ""
    over: Over = Counter()
    nodes = db.execute(f"SELECT node FROM {table} {only} GROUP BY node HAVING count(*) > {ROWS[table]}").fetchall()
    for (node,) in nodes:
        keep = f"SELECT rowid FROM {table} WHERE node = $node ORDER BY received DESC, rowid DESC LIMIT {ROWS[table]}"
        deleted = db.execute(
            f"DELETE FROM {table} WHERE node = $node AND rowid NOT IN ({keep})", {"node": node}
        ).fetchone()
        assert deleted is not None
        kind = table.removesuffix("_rows").replace("_", " ")
        over[node, f"{kind} records beyond those kept of one node, deleted"] += deleted[0]
    return over


def _count(db: duckdb.DuckDBPyConnection, table: str) -> int:
    row = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0
