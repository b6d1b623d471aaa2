"""Logs that repeat themselves, and logs that come back: what was read is known by all of its bytes, or the doubt is told."""

from __future__ import annotations

import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest

from exporter.sources.files import contents
from exporter.sources.files.contents import HEAD_BYTES, Fingerprint
from tests.support.tailing import Node, copytruncate, lines, write

WARNING = b"W" * 213 + b"\n"


def crashes(*numbers: int, warnings: int = 5) -> bytes:
    """Crash lines of one length, with so many equal warnings behind each."""
    return b"".join(lines(number) + WARNING * warnings for number in numbers)


@pytest.mark.parametrize("warnings", [1, 4, 5, 6, 200])
@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("copies", [True, False])
def test_a_log_that_repeats_a_warning_is_copied_and_truncated_and_longer_than_before(
    tmp_path: Path, warnings: int, *, down: bool, copies: bool
) -> None:
    log, numbers = tmp_path / "job.log", count(100)
    written = [next(numbers) for _ in range(3)]
    write(log, crashes(*written, warnings=warnings))
    node = Node(log).settle().commit()
    for turn in range(3):
        if down:
            node.close()
        if copies:
            copytruncate(log, Path(f"{log}.{turn}"))
        else:
            log.write_bytes(b"")
        new = [next(numbers) for _ in range(4 + 2 * turn)]
        write(log, crashes(*new, warnings=warnings))
        written += new
        if down:
            node.crash()
        node.settle().commit()
    assert node.seen == written
    assert set(node.stats.dropped) <= {"gone_while_down"}
    assert not node.stats.dropped or not copies


def test_a_short_log_that_only_begins_otherwise_than_before_is_told_of(tmp_path: Path) -> None:
    """As one whose first line holds a counter, or as one that was begun anew: nobody can tell."""
    log = tmp_path / "job.log"
    write(log, crashes(100))
    node = Node(log).settle().commit()
    node.close()
    log.write_bytes(b"")
    write(log, crashes(101, 102))
    node.crash().settle()
    assert 102 in node.seen
    assert 101 in node.seen or node.stats.dropped == {"perhaps_truncated": 1}
    assert not node.twice


def test_a_log_in_which_a_line_is_changed_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, crashes(100, 101, 102))
    node = Node(log).settle().commit()
    with log.open("r+b") as file:
        file.seek(HEAD_BYTES + 76 - len(lines(100)))
        file.write(log.read_bytes()[file.tell() :].replace(b"seq=101", b"seq=103", 1))
    assert 103 in node.crash().settle().seen


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("length", [4096, 8192])  # within what was read, and nearly all of it
def test_a_log_whose_space_is_freed_where_it_was_read_is_read_on(tmp_path: Path, length: int, *, down: bool) -> None:
    log, numbers = tmp_path / "job.log", count(100)
    written = [next(numbers) for _ in range(20)]
    write(log, crashes(*written, warnings=2))
    assert log.stat().st_size > 8192
    node = Node(log).settle().commit()
    if down:
        node.close()
    subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", str(length), log], check=True)
    written.append(next(numbers))
    write(log, crashes(written[-1]))
    if down:
        node.crash()
    node.settle().commit()
    assert node.seen == written
    assert set(node.stats.dropped) <= {"perhaps_truncated"}


def test_only_the_last_bytes_of_a_long_log_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "SPAN_BYTES", 4096)
    data = bytes(range(256)) * 200
    mark = Fingerprint()
    for length in range(100, len(data), 100):
        start = min(mark.window, mark.length)
        mark = mark.moved(length, data[start:length], start)
        assert mark.sums_up(lambda many, at: data[at : at + many])
        assert min(length, 4096) - HEAD_BYTES <= mark.summed < 2 * 4096 + 100
    other = data[: length - 3000] + b"x" + data[length - 2999 :]
    assert not mark.sums_up(lambda many, at: other[at : at + many])
    assert mark == Fingerprint.taken(lambda many, at: data[at : at + many], length)


@pytest.mark.parametrize("times", [5, 60])
def test_a_log_that_is_moved_to_another_disk_and_back_counts_once_or_tells(tmp_path: Path, times: int) -> None:
    log, written = tmp_path / "job.log", []
    node = Node(log).rescan()
    for turn in range(6):
        new = list(range(turn * times, (turn + 1) * times))
        written += new
        write(log, lines(*new))
        node.poll().poll(2.0)
        shutil.copy2(log, tmp_path / "elsewhere")
        log.unlink()
        shutil.copy2(tmp_path / "elsewhere", log)
        (tmp_path / "elsewhere").unlink()
    node.settle()
    assert sorted(set(node.seen)) == written
    assert bool(node.twice) <= (node.stats.dropped.get("perhaps_read_twice", 0) > 0)
    assert not (node.twice and times == 60)
