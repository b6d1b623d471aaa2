"""Writes a part of the history as a file of its own, for `gpufault correlate`.

A process that correlates cannot open the store itself, since the service has it open.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from exporter.fleet.history import schema

EXPORTED = "history.duckdb"  # a file of this name is the service's own: its records were checked when they came
_TABLES = {
    "incident_rows": "time >= $since", "heartbeat_rows": "time >= $since", "gaps": "true",
    "fact_rows": "true",  # a node's facts hold until they change, so older ones count too
}  # fmt: skip


def export(db: duckdb.DuckDBPyConnection, folder: Path, *, since: float) -> Path:
    """Write incidents and heartbeats from `since` on, all facts and gaps, to a new file. Raises duckdb.Error, OSError."""
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / EXPORTED
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as new:
        schema.create(new)
    db.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS exported")
    try:
        for table, condition in _TABLES.items():
            given = {"since": since} if "$" in condition else {}
            db.execute(f"INSERT INTO exported.{table} BY NAME SELECT * FROM {table} WHERE {condition}", given)
        db.execute("UPDATE exported.about SET horizon = (SELECT a.horizon FROM main.about AS a)")
    finally:
        db.execute("DETACH exported")
    return path
