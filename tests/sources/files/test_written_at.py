"""When lines without a time were written: at the latest when their log was last written to, if that was before us."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.core.model import Match
from tests.support.tailing import Node, lines, write

DAY = 86400.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


def only(node: Node, number: int) -> Match:
    (match,) = (match for match in node.matches if match.captures["seq"] == str(number))
    return match


def written(path: Path, at: float, data: bytes) -> None:
    write(path, data)
    os.utime(path, (at, at))


def test_an_old_log_tells_of_an_old_crash(log: Path) -> None:
    node = Node(log)
    written(log, node.now - 90 * DAY, lines(1))
    at = log.stat().st_mtime
    match = only(node.rescan(), 1)
    assert match.happened == match.time == pytest.approx(at, abs=0.001)
    assert match.time_source == "file"
    assert match.read_at == pytest.approx(node.now, abs=60)


def test_so_does_one_that_takes_many_looks_to_read(log: Path) -> None:
    node = Node(log)
    at = node.now - 90 * DAY
    written(log, at, b"noise of a training step\n" * 400_000 + lines(1))
    assert only(node.rescan().poll(times=20), 1).happened == pytest.approx(at, abs=0.001)


def test_a_stamp_of_its_own_is_believed(log: Path) -> None:
    node = Node(log)
    written(log, node.now - 90 * DAY, b"2026-03-01T00:00:00Z " + lines(1))
    assert only(node.rescan(), 1).time_source == "log"


def appended(log: Path) -> None:
    write(log, lines(2))


def appended_with_a_time_of_old(log: Path) -> None:
    status = log.stat()
    write(log, lines(2))
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("how", [appended, appended_with_a_time_of_old])
@pytest.mark.parametrize("looks", [1, 2])
def test_what_is_written_while_we_look_is_of_now(log: Path, how: Callable[[Path], None], looks: int) -> None:
    node = Node(log)
    written(log, node.now - 90 * DAY, lines(1))
    node.poll(10.0).poll(times=looks)
    how(log)
    assert only(node.rescan(), 2).happened == pytest.approx(node.now, abs=60)


def test_what_was_written_while_we_were_down_is_of_before(log: Path) -> None:
    node = Node(log)
    write(log, lines(1))
    node.rescan().commit()
    at = node.now - 2 * DAY
    written(log, at, lines(2))
    assert only(node.crash().settle(), 2).happened == pytest.approx(at, abs=0.001)


def test_a_time_to_come_is_not_believed(log: Path) -> None:
    node = Node(log)
    written(log, node.now + 90 * DAY, lines(1))
    match = only(node.rescan(), 1)
    assert match.happened == match.read_at


def test_space_that_was_reserved_long_ago_is_filled_now(log: Path) -> None:
    """A mapping changes neither size nor time."""
    node = Node(log)
    at = node.now - 90 * DAY
    written(log, at, b"begun\n" + bytes(4096))
    node.rescan()
    with log.open("r+b") as file:
        file.seek(6)
        file.write(lines(2))
    os.utime(log, (at, at))
    assert only(node.settle(), 2).happened == pytest.approx(node.now, abs=60)
