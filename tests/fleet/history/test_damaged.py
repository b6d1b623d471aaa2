"""A file of journals that cannot be read, in every form and at every place among others: the others lose nothing."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from exporter.cli.main import main
from exporter.fleet.history import folder_ingest, journal_files
from exporter.fleet.history.folder_ingest import fill
from exporter.fleet.history.schema import create

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOW = 1_780_000_000.0
HONEST = 5


def record(number: int) -> bytes:
    crash = {
        "kind": "incident",
        "id": f"i{number}",
        "time": NOW - 1000 + number,
        "node": f"n{number}",
        "signature": "s",
    }
    beat = {"kind": "heartbeat", "time": NOW - 900, "node": f"n{number}", "hours": 1}
    return b"".join(json.dumps(each).encode() + b"\n" for each in (crash, beat))


WHOLE = b"".join(record(100 + number) for number in range(40))
DAMAGED: dict[str, tuple[str, bytes | None]] = {
    "an empty .gz": (".jsonl.gz", b""),
    "an empty .zst": (".jsonl.zst", b""),
    "gzip of nothing": (".jsonl.gz", gzip.compress(b"")),
    "zstd of nothing": (".jsonl.zst", zstd.compress(b"")),
    "a cut .gz": (".jsonl.gz", gzip.compress(WHOLE)[:-30]),
    "a cut .zst": (".jsonl.zst", zstd.compress(WHOLE)[:-30]),
    "a .gz cut in its header": (".jsonl.gz", gzip.compress(WHOLE)[:5]),
    "garbage as .gz": (".jsonl.gz", bytes(range(256)) * 9),
    "garbage as .zst": (".jsonl.zst", bytes(range(256)) * 9),
    "gzip of garbage": (".jsonl.gz", gzip.compress(bytes(range(256)) * 9)),
    "gzip of a line without end": (".jsonl.gz", gzip.compress(b"x" * (3 << 20))),
    "garbage as lines": (".jsonl", bytes(range(256)) * 9 + b"\n"),
    "an empty file": (".jsonl", b""),
    "zeros": (".jsonl", bytes(100_000)),
    "an empty .parquet": (".parquet", b""),
    "garbage as .parquet": (".parquet", b"PAR1" + bytes(99) + b"PAR1"),
    "a folder": (".jsonl.gz", None),
    "a FIFO": (".jsonl.gz", None),
    "a link to nothing": (".jsonl.gz", None),
    "one that vanishes": (".jsonl.gz", gzip.compress(WHOLE)),
    "one that fails": (".jsonl.gz", gzip.compress(WHOLE)),
}  # fmt: skip
SPECIAL: dict[str, Callable[[Path], Any]] = {
    "a folder": Path.mkdir, "a FIFO": os.mkfifo, "a link to nothing": lambda path: path.symlink_to("/nowhere/x")
}  # fmt: skip


def lay_out(folder: Path, kind: str, place: int) -> Path:
    """Journals of five nodes, some packed, in an order that is theirs, and among them the damaged file."""
    for number in range(HONEST):
        packed = number % 2
        path = folder / f"n{number}.jsonl{'.gz' * packed}"
        path.write_bytes(gzip.compress(record(number)) if packed else record(number))
        os.utime(path, (NOW + 10 * number, NOW + 10 * number))
    ending, data = DAMAGED[kind]
    bad = folder / f"bad{ending}"
    if data is None:
        SPECIAL[kind](bad)
    else:
        bad.write_bytes(data)
        os.utime(bad, (NOW + 10 * place - 5, NOW + 10 * place - 5))
    return bad


@pytest.mark.parametrize(("kind", "place"), [*zip(DAMAGED, itertools.cycle((0, 2, HONEST)))])
def test_a_damaged_file_takes_nothing_from_the_others(
    kind: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = lay_out(tmp_path, kind, place)
    if kind in ("one that vanishes", "one that fails"):
        error = FileNotFoundError if kind == "one that vanishes" else OSError
        plain = journal_files.whole_lines

        def lines(path: str, db: duckdb.DuckDBPyConnection) -> Any:
            yield from plain(path, db)
            if path == str(bad):
                raise error(5, "Input/output error")

        monkeypatch.setattr(folder_ingest, "whole_lines", lines)
    with duckdb.connect() as db:
        create(db)
        fill(db, tmp_path, now=NOW)
        for _ in range(2):  # nothing was marked as read that was not
            found = db.execute("SELECT id FROM incidents WHERE length(id) = 2 ORDER BY id").fetchall()
            assert [row[0] for row in found] == [f"i{number}" for number in range(HONEST)]
            assert db.execute("SELECT count(DISTINCT node) FROM heartbeats WHERE node LIKE 'n_'").fetchone() == (
                HONEST,
            )
            monkeypatch.undo()
            fill(db, tmp_path, now=NOW)
        if kind == "one that fails":  # it is read again
            assert db.execute("SELECT count(*) FROM incidents").fetchone() == (HONEST + 40,)
            assert db.execute("SELECT count(*) FROM gaps").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["gzip of nothing", "garbage as .zst"])
def test_a_report_counts_what_the_others_hold(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path, kind, HONEST)
    assert main(["report", "--journal", str(tmp_path), "--format", "json", f"--end={NOW}"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["incidents"] == HONEST


def test_a_store_of_the_first_version_with_absurd_records_is_migrated(tmp_path: Path) -> None:
    """Its days would be a hundred million."""
    absurd = [-1e13, 1e300, -1.0, float("nan"), float("inf"), 5e9]
    with duckdb.connect() as db:
        create(db)
        (tmp_path / "a.jsonl").write_bytes(record(1))
        fill(db, tmp_path, now=NOW)
        sound = db.execute("SELECT * FROM watched_days").fetchall()
        for time in absurd:
            db.execute("INSERT INTO heartbeat_rows VALUES (?, 'liar', 1, 1e300, 0)", [time])
            db.execute("INSERT INTO fact_rows VALUES (?, 'liar', '{}', 0)", [time])
            db.execute("INSERT INTO incident_rows (id, time, node, signature) VALUES ('x', ?, 'liar', 's')", [time])
        db.execute(
            "INSERT INTO fact_rows VALUES (?, 'liar', ?, 0)", [NOW - 9, json.dumps({"a": [1], "rack\u202e": "r\u202e"})]
        )
        db.execute("INSERT INTO fact_rows VALUES (?, 'liar', '[1]', 0)", [NOW - 9])
        db.execute(
            "INSERT INTO incident_rows (id, time, node, signature, record) VALUES ('y', ?, 'liar\u202e', 's', ?)",
            [NOW - 9, json.dumps({"kind": "incident", "evidence": {"a": 1}})],
        )
        db.execute("UPDATE about SET version = 1")
        create(db)
        assert db.execute("SELECT * FROM watched_days").fetchall() == sound
        assert db.execute("SELECT facts FROM fact_rows").fetchall() == [('{"a":"[1]","rack\\\\u202e":"r\\\\u202e"}',)]
        found = db.execute("SELECT id, node, record FROM incident_rows WHERE id != 'i1'").fetchall()
        assert found == [("y", "liar\\u202e", "{}")]
