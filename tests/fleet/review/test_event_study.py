"""The picture behind a rollout: crashes by days since each node's change, against nodes that never changed on the same days."""

from pathlib import Path

import duckdb
import pytest

from exporter.fleet.history.schema import create
from exporter.fleet.observations import Window
from exporter.fleet.review.event_study import event_study

DAY = 86400.0
WINDOW = Window(start=0.0, end=20 * DAY)


@pytest.fixture
def db() -> duckdb.DuckDBPyConnection:
    """Ten nodes change on day 16 and crash daily from then on; ten do not, and one of them crashes every other day."""
    made = duckdb.connect()
    create(made)
    made.execute("UPDATE about SET horizon = 'infinity'")
    for node in range(20):
        made.execute("INSERT INTO fact_rows (time, node, facts) VALUES (0, ?, ?)", [f"n{node}", '{"driver/x": "1"}'])
        times = [(2 * (node - 10) + 0.5) * DAY]
        if node < 10:
            made.execute(
                "INSERT INTO fact_rows (time, node, facts) VALUES (?, ?, ?)",
                [16 * DAY, f"n{node}", '{"driver/x": "2"}'],
            )
            times = [(16.5 + day) * DAY for day in range(4)]
        made.executemany(
            "INSERT INTO incident_rows (id, time, node, signature, root_cause, role) VALUES (?, ?, ?, 's', 'c', 'root')",
            [[f"{node}-{time}", time, f"n{node}"] for time in times],
        )
    return made


def test_crashes_rise_at_each_nodes_own_change(db: duckdb.DuckDBPyConnection) -> None:
    for crash in ("s", "c"):
        length, steps = event_study(db, crash, "driver/x", "2", WINDOW)
        assert length == 1.0
        assert [(step.day, step.crashes) for step in steps if step.day >= -2] == [
            (-2.0, 0), (-1.0, 0), (0.0, 10), (1.0, 10), (2.0, 10), (3.0, 10),
        ]  # fmt: skip
        after = next(step for step in steps if step.day == 0)
        assert after.expected == pytest.approx(1.0)  # one crash of ten other nodes on that day
        assert after.ratio.value == pytest.approx(10.0, rel=1e-3)
        assert after.ratio.low > 1


def test_without_nodes_to_compare_with_there_is_no_picture(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    assert event_study(db, "s", "driver/x", "3", WINDOW)[1] == ()  # nobody changed to it
    assert event_study(db, "other", "driver/x", "2", WINDOW)[1] == ()  # no crash of the others


def test_a_fleet_that_becomes_worse_by_itself_shows_no_effect(db: duckdb.DuckDBPyConnection) -> None:
    """From day 17 on, each node crashes daily, changed or not."""
    db.execute("DELETE FROM incident_rows")
    for node in range(20):
        db.executemany(
            "INSERT INTO incident_rows (id, time, node, signature, root_cause, role) VALUES (?, ?, ?, 's', 'c', 'root')",
            [[f"{node}-{day}", (day + 0.5) * DAY, f"n{node}"] for day in range(17, 20)],
        )
    steps = event_study(db, "s", "driver/x", "2", WINDOW)[1]

    assert [round(step.ratio.value, 3) for step in steps if step.day >= 1] == [1.0, 1.0, 1.0]
