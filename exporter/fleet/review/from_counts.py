"""A history from what a Prometheus has counted: crashes by node and signature, without jobs, causes or lines."""

import json

import duckdb
import numpy as np

from exporter.fleet.history.schema import create
from exporter.fleet.history.watched import roll_up_all
from exporter.fleet.observations import Observed

NOTE = (
    "From Prometheus: crashes are counted by node and signature. Jobs, root causes, lines and unrecognised templates need "
    "the journals (--journal)."
)


def fill_from_counts(db: duckdb.DuckDBPyConnection, observed: Observed) -> None:
    """Create and fill the tables of the history. Ids are made up; of the facts only the number of GPUs is kept."""
    create(db)
    db.execute("UPDATE about SET horizon = 'infinity'")
    names = np.array([*observed.nodes, ""], dtype=object)
    signatures = np.array([*observed.signatures, ""], dtype=object)
    crashes, beats, facts = observed.incidents, observed.beats, observed.facts
    incident_columns = {
        "id": np.arange(len(crashes.node)).astype(str).astype(object),
        "time": crashes.time,
        "node": names[crashes.node],
        "signature": signatures[crashes.signature],
    }
    beat_columns = {"time": beats.end, "node": names[beats.node], "hours": beats.hours, "busy": beats.busy}
    if len(crashes.node):
        db.register("incident_columns", incident_columns)
        db.execute(
            "INSERT INTO incident_rows BY NAME SELECT id, time, node, signature, 'root' AS role FROM incident_columns"
        )
        db.unregister("incident_columns")
    if len(beats.node):
        db.register("beat_columns", beat_columns)
        db.execute(
            "INSERT INTO heartbeat_rows (time, node, hours, gpu_busy_hours) "
            "SELECT time, node, hours, CASE WHEN NOT isnan(busy) THEN busy END FROM beat_columns"
        )
        db.unregister("beat_columns")
        roll_up_all(db)
    if "gpu_count" in facts.names:
        at = facts.names.index("gpu_count")
        rows = [
            [since, names[node], json.dumps({"gpu_count": facts.values[at][code]})]
            for node, since, code in zip(
                facts.node.tolist(), facts.since.tolist(), facts.codes[:, at].tolist(), strict=True
            )
            if code >= 0
        ]
        if rows:
            db.executemany("INSERT INTO fact_rows (time, node, facts) VALUES (?, ?, ?)", rows)
