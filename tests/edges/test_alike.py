"""Logs that begin alike: runs of one job share a banner, so the same beginning does not make a file a copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from exporter.sources.files import copies
from tests.support.tailing import Node, copytruncate, lines, write

from .test_rotation import BANNER, pack

NEW_RUN = lines(*range(100, 130))
END = b"launcher: all ranks have ended, see the documentation of the launcher for what their exit codes mean\n" * 4


@pytest.mark.parametrize("stopped", ["before", "amid a poll"])
@pytest.mark.parametrize("first_run", [5, 60], ids=["shorter", "longer"])
@pytest.mark.parametrize("glob", ["job.log", "*.log*"])
@pytest.mark.parametrize("name", ["job.log.1", "job-20260801.log"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_a_log_is_begun_anew_with_the_same_banner_and_rotated_while_the_node_is_down(
    tmp_path: Path, how: str, name: str, glob: str, first_run: int, stopped: str, *, packed: bool
) -> None:
    log, rotated = tmp_path / "job.log", tmp_path / name
    write(log, BANNER + lines(*range(first_run)))
    node = Node(tmp_path / glob, exclude=("*.gz",)).settle().commit()
    if stopped == "before":
        node.close()
    log.unlink()
    write(log, BANNER + NEW_RUN)
    if how == "rename":
        log.rename(rotated)
    else:
        copytruncate(log, rotated)
    if packed:
        pack(rotated)
    write(log, lines(999))
    if stopped == "amid a poll":
        node.poll()
    node.crash().settle().settle()
    assert node.seen == [*range(first_run), *range(100, 130), 999]
    assert node.stats.dropped["gone_while_down"] == 1  # more may have been written to the first run's log
    assert node.commit().crash().settle().twice == []


def test_whether_a_short_copy_was_read_is_counted_where_nobody_can_tell(tmp_path: Path) -> None:
    """More was read between the copy and the truncation than is remembered of a log."""
    log = tmp_path / "job.log"
    write(log, BANNER + lines(1))
    node = Node(log).rescan()
    shutil.copyfile(log, f"{log}.1")
    write(log, lines(*range(100, 300)))
    within_one_tick = log.stat().st_mtime_ns  # else the times tell that the copy is older than what was read
    os.utime(f"{log}.1", ns=(within_one_tick, within_one_tick))
    node.poll()
    os.truncate(log, 0)
    assert node.settle().twice == [1]
    assert node.stats.dropped == {"perhaps_read_twice": 1}


def test_logs_that_begin_and_end_alike_are_told_apart(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, BANNER + lines(1) + END)
    node = Node(tmp_path / "*.log*").rescan()
    write(tmp_path / "job.log.1", BANNER + lines(2) + END)
    write(log, lines(3))
    assert node.settle().seen == [1, 2, 3]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_log_that_begins_and_ends_like_a_deleted_one_is_not_its_copy(tmp_path: Path, *, deleted: bool) -> None:
    log = tmp_path / "job.log"
    write(log, BANNER + lines(1) + END)
    node = Node(log).rescan()
    log.unlink()
    if deleted:
        node.poll()
    write(log, BANNER + lines(2) + END)
    assert node.settle().seen == [1, 2]


@pytest.mark.parametrize("what", ["a copy", "another log", "truncated meanwhile"])
def test_long_files_are_compared_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(copies, "COMPARED_BYTES", 4096)
    log, other = tmp_path / "job.log", tmp_path / "job.log.1"
    text = BANNER * 100 + lines(1) + END
    write(log, text)
    node = Node(tmp_path / "*.log*").rescan()
    write(other, BANNER * 100 + lines(2) + END if what == "another log" else text)
    node.rescan()
    if what == "truncated meanwhile":
        os.truncate(log, 0)
    node.poll(times=2 * len(text) // 4096).poll(6.0).settle()
    write(other, lines(3))
    assert node.settle().seen == ([1, 2, 3] if what == "another log" else [1, 3])


def test_copies_that_grow_for_ever_hold_up_no_other_log_and_are_read_in_the_end(tmp_path: Path) -> None:
    pairs = [(tmp_path / f"m{n}.log", tmp_path / f"m{n}.log.b.log", lines(n)) for n in range(copies.MAX_WAITING + 6)]
    numbers = list(range(len(pairs)))
    for log, _, crash in pairs:
        write(log, BANNER + crash)
    node = Node(tmp_path / "*.log").rescan()
    for _, copy, crash in pairs:
        write(copy, BANNER + crash)
    node.rescan()
    assert len(node.twice) == 6  # those that there is no room for
    assert node.stats.dropped == {"perhaps_read_twice": 6}

    write(tmp_path / "other.log", lines(1000))
    for second in range(int(copies.WAIT_SECONDS) + 2):
        for log, copy, _ in pairs:
            write(log, b"step %d\n" % second)
            write(copy, b"step %d\n" % second)
        node.poll(1.0)
        if second == 11:  # the next walk finds it
            assert 1000 in node.seen
            assert len(node.twice) == 6
    assert node.seen == sorted([*numbers, *numbers, 1000])
    assert node.stats.dropped == {"perhaps_read_twice": len(pairs)}


def test_empty_logs_beside_empty_logs_are_begun_when_they_are_written_to(tmp_path: Path) -> None:
    """More of them than can wait: nobody knows yet whether they will be copies, and nothing is counted."""
    logs = [tmp_path / f"m{n}.log.err" for n in range(copies.MAX_WAITING + 6)]
    for log in logs:
        log.with_suffix("").touch()
    node = Node(tmp_path / "*.log*").rescan()
    for log in logs:
        log.touch()
    node.rescan()
    for number, log in enumerate(logs):
        write(log, lines(number))
    assert node.settle().seen == list(range(len(logs)))
    assert node.stats.dropped == {}


def test_a_copy_that_takes_longer_than_others_wait_is_no_log_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "COMPARED_BYTES", 512)
    log, copy = tmp_path / "job.log", tmp_path / "job.log.1"
    text = lines(1) + BANNER * 40
    write(log, text)
    node = Node(tmp_path / "*.log*").rescan()
    for start in range(0, len(text), 512):
        write(copy, text[start : start + 512])
        node.poll(1.0)
    assert len(text) // 512 > copies.WAIT_SECONDS
    os.truncate(log, 0)
    write(log, lines(2))
    assert node.settle().seen == [1, 2]
    assert node.stats.dropped == {}
