"""Writes a part of the history as Parquet files, in the form of a folder of journals: `gpufault correlate` reads it.

A process that correlates cannot open the store itself, since the service has it open.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

_QUERIES = {
    "incidents": """SELECT 'incident' AS kind, time, node, id, signature, root_cause, vendor, role, gpu,
        CASE WHEN job IS NOT NULL THEN json_object(
            'id', job, 'user', job_user, 'account', account, 'name', job_name, 'image', image) END AS job
        FROM incidents WHERE time >= {since}""",
    "heartbeats": """SELECT 'heartbeat' AS kind, time, node, hours, gpu_busy_hours FROM heartbeats
        WHERE time >= {since}""",
    # A node's facts hold until they change, so older ones count too.
    "facts": "SELECT 'facts' AS kind, time, node, facts FROM facts",
}


def export(db: duckdb.DuckDBPyConnection, folder: Path, *, since: float) -> None:
    """Write incidents and heartbeats from `since` on, and all facts. Raises duckdb.Error."""
    folder.mkdir(exist_ok=True, mode=0o700)
    for name, query in _QUERIES.items():
        path = str(folder / f"{name}.parquet").replace("'", "''")
        db.execute(f"COPY ({query.format(since=float(since))}) TO '{path}' (FORMAT parquet)")
