import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from exporter.fleet.history import insert, schema
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.insert import ROWS, VALUES
from exporter.fleet.history.journal_files import NoSuchFolder
from exporter.fleet.history.retention import FOLDER_SECONDS, count_running, prune

NOW = 1_780_000_000.0


@pytest.fixture
def db() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    schema.create(connection)
    return connection


def incident(number: int, node: str = "n1", **more: Any) -> bytes:
    record = {
        "kind": "incident",
        "time": NOW - 1000 + number,
        "node": node,
        "id": f"i{number}",
        "signature": "s",
        **more,
    }
    return json.dumps(record).encode() + b"\n"


def ids(db: duckdb.DuckDBPyConnection) -> list[str]:
    return [row[0] for row in db.execute("SELECT id FROM incidents ORDER BY time, id").fetchall()]


def test_a_growing_file_is_read_from_where_it_was_left(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(incident(1) + incident(2)[:20])
    assert fill(db, tmp_path, now=NOW).records == 1
    path.write_bytes(incident(1) + incident(2) + incident(3))
    assert fill(db, tmp_path, now=NOW).records == 2
    assert fill(db, tmp_path, now=NOW).files == 0
    assert ids(db) == ["i1", "i2", "i3"]


def test_a_renamed_a_replaced_and_a_truncated_file_double_and_lose_nothing(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(incident(1))
    fill(db, tmp_path, now=NOW)
    path.rename(tmp_path / "b.jsonl")
    path.write_bytes(incident(2))
    fill(db, tmp_path, now=NOW)
    new = tmp_path / "new"  # as rsync replaces a file
    new.write_bytes(incident(2) + incident(3))
    os.replace(new, path)
    fill(db, tmp_path, now=NOW)
    path.write_bytes(incident(4))  # truncated, and written anew
    fill(db, tmp_path, now=NOW)
    assert ids(db) == ["i1", "i2", "i3", "i4"]


def test_an_archive_of_what_was_read_adds_nothing(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(incident(1) + incident(2))
    fill(db, tmp_path, now=NOW)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes() + incident(3)))
    path.unlink()
    fill(db, tmp_path, now=NOW)
    assert ids(db) == ["i1", "i2", "i3"]
    assert fill(db, tmp_path, now=NOW).files == 0


def test_bad_lines_are_counted_with_their_place_once(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    hostile = [
        b"not json", b"[1]", b"null", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":"\x00"}', b"{}", b"[" * 100_000,
        b'{"kind":"incident","time":"never","node":"n","signature":"s"}', b'{"kind":"incident","time":1,"signature":"s"}',
        b'{"kind":"facts","time":1,"node":"n","facts":[1]}', b'{"kind":"heartbeat","time":1,"node":"n","hours":1e9}',
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(incident(1) + b"\n".join(hostile) + b"\n" + incident(2))
    assert fill(db, tmp_path, now=NOW).bad_lines == len(hostile)
    fill(db, tmp_path, now=NOW)
    places = db.execute("SELECT line FROM gaps WHERE kind = 'bad_lines' ORDER BY line").fetchall()
    assert places == [(number + 2,) for number in range(len(hostile))]
    assert ids(db) == ["i1", "i2"]


def test_another_nodes_id_hides_no_incident(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(incident(1, "liar") + incident(1, "honest"))
    fill(db, tmp_path, now=NOW)
    assert {row[0] for row in db.execute("SELECT node FROM incidents").fetchall()} == {"liar", "honest"}
    assert len(set(ids(db))) == 2


def test_a_record_from_the_future_waits_until_its_time(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    lines = b"".join(incident(number, f"n{number}") for number in range(5)) + incident(100_000, "ahead")
    (tmp_path / "a.jsonl").write_bytes(lines)
    fill(db, tmp_path, now=NOW)
    assert len(ids(db)) == 5
    fill(db, tmp_path, now=NOW + 100_000)
    assert len(ids(db)) == 6


def test_only_changes_of_facts_are_kept(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    rows = [(1, "1"), (2, "1"), (3, "2"), (4, "2"), (5, "1")]
    lines = (
        json.dumps({"kind": "facts", "time": NOW - 100 + at, "node": "n", "facts": {"a": value}}) for at, value in rows
    )
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    fill(db, tmp_path, now=NOW)
    found = db.execute("SELECT time, facts ->> 'a' FROM facts ORDER BY time").fetchall()
    assert found == [(NOW - 99, "1"), (NOW - 97, "2"), (NOW - 95, "1")]


def facts(time: float, value: str) -> bytes:
    return json.dumps({"kind": "facts", "time": time, "node": "n1", "facts": {"a": value}}).encode() + b"\n"


def test_what_came_long_ago_goes_and_the_facts_that_still_hold_stay(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(facts(NOW - 6000, "0") + facts(NOW - 5000, "1") + incident(1))
    fill(db, tmp_path, now=NOW)
    count_running(db, 1000)
    (tmp_path / "b.jsonl").write_bytes(incident(900))
    fill(db, tmp_path, now=NOW)
    prune(db, 1500)
    assert ids(db) == ["i1", "i900"]
    prune(db, 500)
    assert ids(db) == ["i900"]
    assert db.execute("SELECT facts ->> 'a' FROM facts").fetchall() == [("1",)]


@pytest.mark.parametrize("time", [946684800.0, NOW - 1e8, NOW, NOW + 4e8], ids=lambda time: f"{time:g}")
def test_no_time_in_a_record_decides_how_long_anything_is_kept(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, time: float
) -> None:
    """Of a fleet of one honest node and three liars, each with every kind of record."""
    kinds: list[dict[str, Any]] = [
        {"kind": "incident", "signature": "s"}, {"kind": "heartbeat", "hours": 1}, {"kind": "facts", "facts": {"a": "1"}},
        {"kind": "job_end", "job": "1", "outcome": "signal"}, {"kind": "fault", "signature": "s", "state": "open"},
    ]  # fmt: skip
    lies = [json.dumps({**kind, "node": f"liar{number}", "time": time}) for number in range(3) for kind in kinds]
    (tmp_path / "a.jsonl").write_bytes(incident(1) + facts(NOW - 900, "1") + "\n".join(lies).encode() + b"\n")
    fill(db, tmp_path, now=NOW)
    count_running(db, 1000)
    prune(db, 2000)
    assert db.execute("SELECT count(*) FROM incident_rows").fetchall() == [(4,)]
    prune(db, 500)
    assert db.execute("SELECT count(*) FROM incident_rows").fetchall() == [(0,)]


def test_records_from_the_future_of_most_nodes_are_hidden(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    ahead = b"".join(incident(10**9 + number, f"liar{number}") for number in range(20))
    (tmp_path / "a.jsonl").write_bytes(incident(1) + ahead)
    fill(db, tmp_path, now=NOW)
    assert ids(db) == ["i1"]


def test_deleted_records_do_not_come_back_while_their_file_is_in_the_folder(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(incident(1))
    for _ in range(5):
        fill(db, tmp_path, now=NOW)
        count_running(db, FOLDER_SECONDS + 1)
        fill(db, tmp_path, now=NOW)
        prune(db, FOLDER_SECONDS)
    assert fill(db, tmp_path, now=NOW).files == 0
    assert ids(db) == []


COLUMNS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{name: lambda value, name=name: {name: value} for name in (
        "signature", "root_cause", "vendor", "severity", "source", "gpu")},
    "job": lambda value: {"job": {"id": value}},
    **{column: lambda value, name=name: {"job": {"id": "1", name: value}} for column, name in (
        ("job_user", "user"), ("account", "account"), ("job_name", "name"), ("image", "image"),
        ("namespace", "namespace"), ("pod", "pod"))},
}  # fmt: skip


@pytest.mark.parametrize("column", VALUES)
def test_what_one_node_makes_up_costs_that_node_its_place(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "_FEWEST", 5)
    monkeypatch.setattr(insert, "VALUES", {**VALUES, column: 10})
    for batch in range(3):
        lies = [incident(100 * batch + n, "liar", **COLUMNS[column](f"v{batch}-{n}")) for n in range(40)]
        honest = [incident(1000 + 10 * batch + n, "honest", **COLUMNS[column](f"h{n}")) for n in range(10)]
        (tmp_path / f"{batch}.jsonl").write_bytes(b"".join([*lies, *honest]))
        fill(db, tmp_path, now=NOW)
    values = db.execute(
        f"SELECT node, count(*), count(DISTINCT {column}) FROM incidents GROUP BY node ORDER BY node"
    ).fetchall()
    assert values == [("honest", 30, 10), ("liar", 120, 11)]
    told = db.execute("SELECT path, count FROM gaps WHERE kind = 'node_budget'").fetchall()
    assert told == [("liar", 110)]


def test_of_a_node_that_floods_the_latest_records_are_kept_and_all_of_the_others(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "ROWS", {**ROWS, "incident_rows": 50, "fact_rows": 5})
    (tmp_path / "honest.jsonl").write_bytes(incident(9999, "honest") + facts(NOW - 100, "1"))
    for batch in range(3):
        lines = [incident(100 * batch + n, "liar") for n in range(40)]
        lines += [facts(NOW - 99 + 40 * batch + n, f"{batch}-{n}").replace(b'"n1"', b'"liar"') for n in range(40)]
        (tmp_path / f"{batch}.jsonl").write_bytes(b"".join(lines))
        fill(db, tmp_path, now=NOW)
    assert db.execute("SELECT node, count(*) FROM incident_rows GROUP BY node ORDER BY node").fetchall() == [
        ("honest", 1), ("liar", 50),
    ]  # fmt: skip
    assert db.execute("SELECT node, count(*) FROM fact_rows GROUP BY node ORDER BY node").fetchall() == [
        ("liar", 5),
        ("n1", 1),
    ]
    assert db.execute(
        "SELECT max(time) = $1 FROM incident_rows WHERE node = 'liar'", [NOW - 1000 + 239]
    ).fetchall() == [(True,)]
    told = db.execute("SELECT path, sum(count) FROM gaps WHERE kind = 'node_budget' GROUP BY path").fetchall()
    assert told == [("liar", 70 + 115)]


def test_rows_and_cursor_are_stored_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_bytes(incident(1))
    store = str(tmp_path / "s.duckdb")
    with duckdb.connect(store) as db:
        schema.create(db)

        def fail(*_: object) -> None:
            raise RuntimeError("killed here")

        monkeypatch.setattr("exporter.fleet.history.folder_ingest._put_cursors", fail)
        with pytest.raises(RuntimeError):
            fill(db, tmp_path / "j", now=NOW)
        monkeypatch.undo()
    with duckdb.connect(store) as db:
        assert db.execute("SELECT count(*) FROM incident_rows").fetchall() == [(0,)]
        fill(db, tmp_path / "j", now=NOW)
        assert ids(db) == ["i1"]


def test_a_fifo_is_named_and_not_opened(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    fill(db, tmp_path, now=NOW)
    assert db.execute("SELECT kind FROM gaps").fetchall() == [("unreadable_files",)]
    with pytest.raises(NoSuchFolder):
        fill(db, tmp_path / "missing", now=NOW)
