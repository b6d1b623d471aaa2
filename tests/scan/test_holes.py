"""A file may have holes of terabytes that take no place on the disk: a scan skips them, as the daemon does."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from exporter.scan.plan import plan_from
from exporter.scan.spans import spans
from tests.scan.commands import CRASH, scanned

HOLE = 7 << 40  # file systems allow 16 TiB


def sparse(path: Path, *parts: str | int) -> None:
    """A file of texts, and of holes of so many bytes."""
    with path.open("wb") as file:
        for part in parts:
            file.seek(part, io.SEEK_END) if isinstance(part, int) else file.write(part.encode())
        file.truncate()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("end", [f"\n2025-11-20T23:41:00Z {CRASH}", 12345, ""])
@pytest.mark.parametrize("before", ["", "a line that has no end", f"{CRASH}\n" * 20_000])
def test_a_hole_of_terabytes_is_skipped(tmp_path: Path, before: str, end: str | int, workers: str) -> None:
    log = tmp_path / "slurm-1.out"
    sparse(log, CRASH, before, HOLE, *([end] if end else []))
    if not end:
        with log.open("r+b") as file:
            file.truncate(HOLE)
    began = time.monotonic()
    code, records, err = scanned("--workers", workers, str(log))
    assert (code, err) == (1, "")
    assert time.monotonic() - began < 60.0  # a minute of a busy machine; at 5 GB/s, reading the hole takes half an hour
    assert {record["signature"] for record in records} == {records[0]["signature"]}
    assert ("2025-11-20T23:41:00.000Z" in {record["time"] for record in records}) == (
        isinstance(end, str) and bool(end)
    )
    assert sum(record["lines"] for record in records) == 1 + before.count("Memory") + (
        isinstance(end, str) and bool(end)
    )


def test_a_log_with_holes_is_cut_only_where_it_has_lines(tmp_path: Path) -> None:
    log = tmp_path / "slurm-1.out"
    sparse(log, "line\n" * 100_000, HOLE, "\n" + "line\n" * 100_000, HOLE)
    task = plan_from(str(log), "job", b"line\n")
    parts = list(spans(task, 64 << 20))  # type: ignore[arg-type]
    assert 1 <= len(parts) <= 4
    assert parts[-1].stop is None
