"""How far a scan has come, in bytes on disk: archives count as what they take there, whatever comes out of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.scan import PACKED, WIDE, Progress


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    plain, archive = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_bytes(b"step 1\n" * 100)
    archive.write_bytes(gzip.compress(bytes(range(256)) * 64))
    return plain, archive


def bar(progress: Progress) -> Any:
    return progress._bar.tasks[0]


def test_an_archive_among_the_logs_leaves_no_doubt_of_how_much_there_is(logs: tuple[Path, Path]) -> None:
    plain, archive = logs
    packed = archive.stat().st_size
    with Progress([str(path) for path in logs], wanted=True) as progress:
        assert bar(progress).total == 700 + packed
        progress(str(plain), 700)
        progress(str(plain), 0)
        assert bar(progress).completed == 700
        progress(str(archive), 10 * PACKED)
        assert bar(progress).completed == 710
        progress(str(archive), 1 << 20)  # it holds more than is usual
        assert bar(progress).completed == 700 + packed
        progress(str(archive), 0)
        assert bar(progress).completed == bar(progress).total
        assert bar(progress).fields["files"] == "2 of 2 files"


def test_an_archive_that_holds_little_counts_whole_at_its_end(logs: tuple[Path, Path]) -> None:
    _, archive = logs
    with Progress([str(archive)], wanted=True) as progress:
        progress(str(archive), PACKED)
        progress(str(archive), 0)
        assert bar(progress).completed == archive.stat().st_size


def test_of_a_pipe_nobody_knows_how_much_comes(logs: tuple[Path, Path]) -> None:
    with Progress([str(logs[0]), "-"], wanted=True) as progress:
        assert bar(progress).total is None


@pytest.mark.parametrize(("columns", "wide"), [(40, False), (WIDE, True)])
def test_a_narrow_terminal_shows_what_it_has_room_for(
    columns: int, wide: bool, logs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress([str(logs[0])], wanted=True) as progress:
        assert any(type(column).__name__ == "DownloadColumn" for column in progress._bar.columns) is wide
