"""Journals of small fleets, written by hand, and their history in memory."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.schema import create
from exporter.fleet.observations import Window
from exporter.fleet.review.review_contents import Title

DAY = 86400.0
START = 1_780_272_000.0  # 2026-06-01
WEEK = Window(start=START + 21 * DAY, end=START + 28 * DAY)  # the last of four
NOW = START + 28 * DAY
TITLES = {
    "nvlink": Title(title="An NVLink failed", verdict="infrastructure", remediation="Drain the node."),
    "xid": Title(title="NVLink error", verdict="infrastructure"),
}


def crash(node: str, day: float, signature: str = "xid", **fields: Any) -> dict[str, Any]:
    """An incident record; its id is made of what is given."""
    id_ = f"{node}-{day}-{signature}-{fields.get('role', '')}"
    return {
        "kind": "incident", "id": id_, "time": rfc3339(START + day * DAY), "node": node, "signature": signature,
        "root_cause": "unknown", "role": "root", "verdict": "unclear", **fields,
    }  # fmt: skip


def watched(nodes: Iterable[str], *, days: int = 28, facts: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Facts and a heartbeat a day of each node."""
    found: list[dict[str, Any]] = []
    for node in nodes:
        found.append({"kind": "facts", "time": rfc3339(START), "node": node, "facts": facts or {"gpu_count": "8"}})
        found += [
            {
                "kind": "heartbeat",
                "time": rfc3339(START + (day + 1) * DAY - 1),
                "node": node,
                "hours": 24,
                "gpu_busy_hours": 100,
            }
            for day in range(days)
        ]
    return found


def journal(folder: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """The records as a folder of journals."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal-000001.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return folder


def history(folder: Path) -> duckdb.DuckDBPyConnection:
    """What the review asks."""
    db = duckdb.connect()
    create(db)
    fill(db, folder, now=NOW)
    return db
