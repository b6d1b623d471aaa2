import gzip
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from exporter.fleet.history import schema
from exporter.fleet.history.files import NoSuchFolder
from exporter.fleet.history.ingest import fill, prune

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


def test_a_damaged_archive_gives_what_stands_before_the_damage(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(incident(number) for number in range(500)))
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-20])
    fill(db, tmp_path, now=NOW)
    assert len(ids(db)) > 400
    assert db.execute("SELECT kind FROM gaps").fetchall() == [("damaged_files",)]


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


def test_pruning_keeps_the_facts_that_still_hold(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    facts = json.dumps({"kind": "facts", "time": NOW - 5000, "node": "n1", "facts": {"a": "1"}}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(facts + incident(1) + incident(900))
    fill(db, tmp_path, now=NOW)
    prune(db, before=NOW - 500)
    assert ids(db) == ["i900"]
    assert db.execute("SELECT count(*) FROM facts").fetchall() == [(1,)]


def test_rows_and_cursor_are_stored_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j/a.jsonl").write_bytes(incident(1))
    store = str(tmp_path / "s.duckdb")
    with duckdb.connect(store) as db:
        schema.create(db)

        def fail(*_: object) -> None:
            raise RuntimeError("killed here")

        monkeypatch.setattr("exporter.fleet.history.ingest._put_cursors", fail)
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
