"""Sums of heartbeats by node and day agree with the heartbeats, in whatever order those arrive."""

from __future__ import annotations

import json
import time
from pathlib import Path

import duckdb
import pytest

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.schema import create
from exporter.fleet.history.watched import DAY, IN_WINDOW, SHARE, roll_up_all
from exporter.fleet.review import event_timeline
from exporter.node import job_ends

HOUR = 3600.0
START = 20_000 * DAY
# Hours after START at which each node's heartbeats of an hour end; n2 is silent from 30 h to 50 h and for two hours on day 0.
BEATS = {"n1": [*range(1, 73)], "n2": [*range(1, 9), *range(11, 31), *range(51, 73)]}
SILENCES = [("n2", 8.0, 10.0), ("n2", 30.0, 50.0)]


def write(folder: Path, name: str, beats: list[tuple[str, int]]) -> None:
    lines = [
        json.dumps(
            {"kind": "heartbeat", "time": rfc3339(START + at * HOUR), "node": node, "hours": 1, "gpu_busy_hours": 4}
        )
        for node, at in beats
    ]
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def state(db: duckdb.DuckDBPyConnection) -> tuple[object, ...]:
    days = db.execute(
        "SELECT node, day, hours, gpu_busy_hours, beats, busy_beats, first, last FROM watched_days"
    ).fetchall()
    silences = db.execute("SELECT node, unnest(silences) AS s FROM watched_days").fetchall()
    return sorted(days), sorted((n, (s["since"] - START) / HOUR, (s["until"] - START) / HOUR) for n, s in silences)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_every_order_of_arrival_gives_the_same_days(tmp_path: Path, order: tuple[int, ...]) -> None:
    every = [(node, at) for node, ends in BEATS.items() for at in ends]
    with duckdb.connect() as db:
        create(db)
        for number in order:
            low, high = ((0, 9), (9, 40), (40, 99))[number]
            write(tmp_path, f"{number}.jsonl", [(node, at) for node, at in every if low <= at < high])
            fill(db, tmp_path, now=time.time())
        days, silences = state(db)
        assert silences == SILENCES
        assert sum(row[2] for row in days) == len(every)
        found = (days, silences)
        roll_up_all(db)
        assert state(db) == found


def test_hours_of_a_window_are_those_of_its_heartbeats(tmp_path: Path) -> None:
    write(tmp_path, "n1.jsonl", [("n1", at) for at in BEATS["n1"]])
    with duckdb.connect() as db:
        create(db)
        fill(db, tmp_path, now=time.time())
        window = {"start": START + 20 * HOUR, "end": START + 57 * HOUR}
        row = db.execute(f"SELECT sum(hours * {SHARE}) FROM watched_days WHERE {IN_WINDOW}", window).fetchone()
        assert row is not None
        assert row[0] == pytest.approx(37)


def test_a_store_of_the_first_version_is_summed_up(tmp_path: Path) -> None:
    write(tmp_path, "n.jsonl", [(node, at) for node, ends in BEATS.items() for at in ends])
    with duckdb.connect() as db:
        create(db)
        fill(db, tmp_path, now=time.time())
        before = state(db)
        db.execute("DROP TABLE watched_days; UPDATE about SET version = 1")
        create(db)
        assert state(db) == before


def test_a_store_of_the_second_version_takes_new_records(tmp_path: Path) -> None:
    end = {"kind": "job_end", "node": "n1", "outcome": "no_line"}
    with duckdb.connect() as db:
        create(db)
        db.execute("ALTER TABLE job_end_rows DROP COLUMN started; DROP TABLE fault_rows; DROP TABLE boot_rows")
        db.execute("INSERT INTO job_end_rows (time, node, job, outcome) VALUES (?, 'n1', '8', 'no_line')", [START])
        db.execute("UPDATE about SET version = 2")
        create(db)
        started = end | {"job": {"id": "9"}, "time": rfc3339(START + HOUR), "started": rfc3339(START)}
        (tmp_path / "n.jsonl").write_text(json.dumps(started) + "\n")
        fill(db, tmp_path, now=time.time())
        found = db.execute("SELECT job, started FROM job_ends ORDER BY job").fetchall()
    assert found == [("8", None), ("9", START)]


def test_each_outcome_that_a_node_records_of_a_failed_job_is_stored_and_has_words(tmp_path: Path) -> None:
    ends = [
        {"kind": "job_end", "node": "n1", "outcome": name, "job": {"id": str(n)}, "time": rfc3339(START + n)}
        for n, name in enumerate(job_ends.OUTCOMES)
    ]
    (tmp_path / "n.jsonl").write_text("".join(json.dumps(end) + "\n" for end in ends))
    with duckdb.connect() as db:
        create(db)
        fill(db, tmp_path, now=time.time())
        assert db.execute("SELECT outcome FROM job_ends ORDER BY time").fetchall() == [
            (name,) for name in job_ends.OUTCOMES
        ]
    assert event_timeline.OUTCOMES.keys() == set(job_ends.OUTCOMES)
