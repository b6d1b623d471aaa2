"""A node's share of the history: how many rows, and how many different values, it may have.

A node may lie, or a job on it may print whatever it likes. What is beyond its share costs that node its place, and no other:
a further value becomes `other`, and the rows that came first make room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import duckdb

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
        SELECT node FROM {table} WHERE kind = 'incident'
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
                WHERE kind = 'incident' AND node IN (FROM crowded) AND {column} IS NOT NULL GROUP BY ALL)
            SELECT node, value, count FROM new LEFT JOIN (SELECT node, count(*) AS known FROM has GROUP BY node) USING (node)
            QUALIFY coalesce(known, 0) + row_number() OVER (PARTITION BY node ORDER BY count DESC, value)
                > {most}"""
        )
        for node, count in db.execute("SELECT node, sum(count)::BIGINT FROM surplus GROUP BY node").fetchall():
            what = f"values of {column.replace('_', ' ')} beyond the {most:,} of one node, now `{OTHER}`"
            over[node, what] += count
        db.execute(
            f"""UPDATE {table} SET {column} = '{OTHER}' FROM surplus AS s
            WHERE s.node = {table}.node AND s.value = {table}.{column} AND kind = 'incident'"""
        )
    return over


def limit_rows(db: duckdb.DuckDBPyConnection, table: str, *, of: str | None = None) -> Over:
    """Delete the rows beyond their nodes' shares, the earliest first. of: a table that names the nodes to look at."""
    only = f"WHERE node IN (SELECT node FROM {of})" if of else ""
    over: Over = Counter()
    nodes = db.execute(f"SELECT node FROM {table} {only} GROUP BY node HAVING count(*) > {ROWS[table]}").fetchall()
    for (node,) in nodes:
        keep = f"SELECT rowid FROM {table} WHERE node = $node ORDER BY received DESC, rowid DESC LIMIT {ROWS[table]}"
        found = db.execute(
            f"DELETE FROM {table} WHERE node = $node AND rowid NOT IN ({keep})", {"node": node}
        ).fetchone()
        assert found is not None
        kind = table.removesuffix("_rows").replace("_", " ")
        over[node, f"{kind} records beyond those kept of one node, deleted"] += found[0]
    return over


def _count(db: duckdb.DuckDBPyConnection, table: str) -> int:
    row = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0
