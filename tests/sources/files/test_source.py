"""Job logs in files, when nothing is rotated: what is found, from where it is read, how lines are cut and numbered."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.sources.files.checkpoints import origin_of, split_origin
from exporter.sources.files.source import UNWATCHED_CHECKS
from tests.support.tailing import Node, lines, write


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node(tmp_path / "*.log").poll()
    yield one
    one.close()


# -- from where on


def test_at_the_very_first_start_what_is_there_is_passed_over(tmp_path: Path, log: Path) -> None:
    write(log, lines(1, 2))
    node = Node(tmp_path / "*.log", first_start=True, start="end").poll()
    write(log, lines(3))
    write(tmp_path / "later.log", lines(4, 5))
    assert node.settle().seen == [3, 4, 5]
    assert [match.line for match in node.matches] == [3, 1, 2]


def test_at_the_very_first_start_from_the_beginning(tmp_path: Path, log: Path) -> None:
    write(log, lines(1, 2))
    assert Node(tmp_path / "*.log", first_start=True, start="beginning").poll().seen == [1, 2]


def test_a_line_that_is_being_written_at_the_very_first_start_counts(tmp_path: Path, log: Path) -> None:
    write(log, lines(1) + b"CRASH s")
    node = Node(log, first_start=True, start="end").poll()
    write(log, b"eq=2\n")
    assert node.poll().seen == [2]
    assert (node.matches[0].line, node.matches[0].offset) == (2, len(lines(1)))


def test_a_first_start_that_is_killed_goes_on_passing_over(tmp_path: Path, log: Path) -> None:
    write(log, lines(1))
    node = Node(tmp_path / "*.log", first_start=True, start="end")
    node.commit().crash().poll()
    assert node.commit().seen == []
    write(tmp_path / "later.log", lines(2))
    assert node.restart().poll().seen == [2]


def test_a_file_made_while_the_node_was_down_is_read_from_its_start(node: Node, log: Path, tmp_path: Path) -> None:
    write(log, lines(1))
    node.rescan().restart()
    write(log, lines(*range(2, 52)))
    write(tmp_path / "other.log", lines(52))
    assert node.poll(times=2).seen == list(range(1, 53))


def test_a_crash_before_the_commit_neither_loses_nor_repeats(node: Node, log: Path) -> None:
    write(log, lines(1, 2))
    node.rescan().commit()
    write(log, lines(3))
    assert node.poll().seen == [1, 2, 3]
    assert node.crash().seen == [1, 2]
    assert node.poll().seen == [1, 2, 3]


def test_a_damaged_position_costs_that_file_only(node: Node, log: Path, tmp_path: Path) -> None:
    write(log, lines(1))
    write(tmp_path / "other.log", lines(2))
    node.rescan().commit()
    node.rows[f"files:{log}"] = '{"offset": "here"}'
    node.crash().settle()
    assert node.seen == [1, 1, 2]
    assert node.stats.dropped == {"position_unreadable": 1}
    assert json.loads(node.commit().rows[f"files:{log}"])["offset"] == len(lines(1))


def test_a_file_that_the_configuration_no_longer_names_is_let_go(tmp_path: Path, log: Path) -> None:
    write(log, lines(1))
    node = Node(tmp_path / "*.log").rescan().restart(paths=(str(tmp_path / "*.out"),))
    node.settle()
    assert node.stats.files == 0
    write(log, lines(2))
    assert node.restart(paths=(str(tmp_path / "*.log"),)).settle().seen == [1, 2]


def test_after_a_reboot_the_device_has_another_number(node: Node, log: Path) -> None:
    write(log, lines(1))
    node.rescan().commit()
    key = f"files:{log}"
    node.rows[key] = json.dumps({**json.loads(node.rows[key]), "device": 4711})
    node.crash()
    write(log, lines(2))
    assert node.settle().seen == [1, 2]


@pytest.mark.parametrize("kept", [len(lines(*range(1, 101))), len(lines(*range(1, 101))) + 7])
def test_a_loss_of_power_takes_back_what_was_counted(node: Node, log: Path, kept: int) -> None:
    write(log, lines(*range(1, 101)))
    on_disk = log.stat()
    node.rescan()
    write(log, lines(*range(101, 201)))
    node.poll().restart()
    os.truncate(log, kept)
    os.utime(log, ns=(on_disk.st_atime_ns, on_disk.st_mtime_ns))
    node.settle()
    write(log, b"\n" + lines(201))
    assert node.settle().seen == list(range(1, 202))
    assert node.stats.truncations == 0


def test_a_log_found_behind_a_truncation_is_truncated_again_before_it_is_read(node: Node, log: Path) -> None:
    write(log, lines(1, 2))
    node.rescan()
    for copy in (1, 2):
        write(log, lines(*range(copy * 10, copy * 10 + 9)))
        shutil.copy2(log, f"{log}.{copy}")
        os.truncate(log, 0)
        write(log, lines(*range(copy * 100, copy * 100 + 9)))
        node.poll()
    assert node.settle().seen == sorted([1, 2, *range(10, 19), *range(20, 29), *range(100, 109), *range(200, 209)])


def test_a_log_that_is_written_anew_is_no_loss_of_power(node: Node, log: Path) -> None:
    write(log, b"banner\n" * 200 + lines(1, 2))
    node.rescan().restart()
    log.write_bytes(b"banner\n" * 200 + lines(3))
    assert node.settle().seen == [1, 2, 3]


# -- lines


def test_a_last_line_without_a_newline_counts_after_a_second(node: Node, log: Path) -> None:
    write(log, lines(1) + b"CRASH seq=2")
    assert node.rescan().seen == [1]
    assert node.poll(1.0).seen == [1, 2]
    assert node.stats.lag_bytes == 0
    write(log, b"\n")
    assert node.settle().seen == [1, 2]


def test_one_line_over_a_restart(node: Node, log: Path) -> None:
    write(log, b"CRASH s")
    node.rescan().poll(2.0).restart()
    write(log, b"eq=1")
    node.poll(2.0).poll(2.0).restart()
    write(log, b"\n" + lines(2))
    assert node.settle().seen == [1, 2]
    assert [match.line for match in node.matches] == [1, 2]


def test_a_line_far_beyond_the_limit_is_searched_in_windows(tmp_path: Path, log: Path) -> None:
    node = Node(log, line_bytes=64 << 10).poll()
    write(log, b"x" * 300_000 + b" CRASH seq=1 " + b"y" * 300_000)
    node.rescan().poll(times=20)
    write(log, b"\n" + lines(2))
    node.settle()
    assert node.seen == [1, 2]
    assert node.matches[-1].line == 2


def test_what_a_pipeline_holds_back_is_offered_again(node: Node, log: Path) -> None:
    for part in (b"BLOCK opens\n", b"in the mid", b"dle\nBLOCK seq=5 closes\n", b"BLOCK opens\nand nothing"):
        write(log, part)
        node.rescan()
    assert node.settle().seen == [5]


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
def test_carriage_returns_colours_and_bad_bytes(node: Node, log: Path, newline: bytes) -> None:
    texts = [b"\x1b[31mCRASH seq=1\x1b[0m", b"\xff\xfe CRASH seq=2", b"a\0CRASH seq=3", b"10%\r20%\rCRASH seq=4\r90%"]
    write(log, newline.join(texts) + newline)
    assert node.rescan().seen == [1, 2, 3, 4]


def test_chunks_join_without_a_gap_and_lines_keep_their_numbers(node: Node, log: Path) -> None:
    total = b""
    write(log, lines(0))
    node.rescan()
    for number in range(1, 40):
        text = b"noise\n" * (number % 7) * 9000 + lines(number) * (number % 2)
        write(log, text)
        total += text
        for chunk in node.poll().chunks:
            assert len(chunk.data) <= 1 << 20
    node.poll(times=10)
    content = log.read_bytes()
    assert [(m.offset, m.line) for m in node.matches] == [
        (at, 1 + content.count(b"\n", 0, at)) for at in range(len(content)) if content.startswith(b"CRASH", at)
    ]


def test_many_logs_share_a_poll(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"{number}.log", b"noise\n" * 400_000 + lines(number))
    node = Node(tmp_path / "*.log").poll()
    assert 3 << 20 < sum(len(chunk.data) for chunk in node.chunks) <= 5 << 20
    first = {chunk.path for chunk in node.chunks}
    assert first.isdisjoint(chunk.path for chunk in node.poll().chunks)
    assert node.poll(times=20).seen == list(range(20))


# -- carriers


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2026-08-01T10:00:00.1Z stdout F CRASH seq=1\n", "cri"),
        (b'{"log":"CRASH seq=1\\n","stream":"stdout","time":"2026-08-01T10:00:00.1Z"}\n', "docker"),
        (b"2026-08-01T10:00:00.1Z CRASH seq=1\n", "plain"),
        (b'{"log": "CRASH seq=1"}\n', "plain"),
    ],
)
def test_the_first_lines_tell_what_wraps_them(node: Node, log: Path, line: bytes, expected: str) -> None:
    write(log, line)
    node.rescan().restart()
    write(log, b"no more of it\n")
    assert [chunk.format for chunk in node.poll().chunks] == [expected]


def test_the_configuration_decides_what_wraps_the_lines(tmp_path: Path, log: Path) -> None:
    write(log, lines(1))
    assert [chunk.format for chunk in Node(log, format="cri").poll().chunks] == ["cri"]


# -- discovery


@pytest.mark.parametrize("pattern", ["**/*.log", "**/j*", "a/*/*.log", "a/b/job.log", "*/**/job.log", "a/b/**"])
def test_patterns(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    write(tmp_path / "a/b/job.log", lines(1))
    (tmp_path / "a/.hidden").mkdir()
    write(tmp_path / "a/.hidden/job.log", lines(2))
    write(tmp_path / "a/b/.job.log.swp", lines(3))
    assert Node(tmp_path / pattern).poll().seen == [1]


def test_what_is_excluded_by_name_or_path(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write(tmp_path / "a.log", lines(1))
    write(tmp_path / "b.log", lines(2))
    write(tmp_path / "old/c.log", lines(3))
    assert Node(tmp_path / "**/*.log", exclude=("b.*", "*/old/*")).poll().seen == [1]


def test_a_folder_tree_that_is_deleted_and_made_again(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    node = Node(root / "**/*.log").poll()
    assert not node.stats.up
    assert str(root) in node.stats.down_reason
    for number in range(3):
        (root / "day").mkdir(parents=True)
        write(root / "day/job.log", lines(number))
        node.rescan()
        assert node.stats.up
        (root / "day/job.log").unlink()
        (root / "day").rmdir()
        root.rmdir()
        node.settle()
    assert node.seen == [0, 1, 2]


def test_links_between_folders_lead_in_no_circle(tmp_path: Path) -> None:
    (tmp_path / "logs/a").mkdir(parents=True)
    (tmp_path / "logs/a/up").symlink_to(tmp_path / "logs")
    (tmp_path / "logs/a/self").symlink_to("self")
    write(tmp_path / "logs/a/job.log", lines(1))
    assert Node(tmp_path / "logs/**/*.log").settle().seen == [1]


def test_where_no_event_tells_so_many_quiet_logs_are_looked_at_in_a_poll_and_busy_ones_in_every(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(UNWATCHED_CHECKS + 40)]
    for path in paths:
        write(path, b"banner\n")
    node = Node(tmp_path / "*.log").rescan().poll(70.0).poll()
    for number, path in enumerate(paths):
        write(path, lines(number))
    assert len(node.poll(0.5).seen) == UNWATCHED_CHECKS
    assert node.poll(0.5).seen == list(range(len(paths)))
    for number, path in enumerate(paths):
        write(path, lines(1000 + number))
    assert len(node.poll(0.1).seen) == 2 * len(paths)


def test_what_has_been_quiet_for_days_before_the_first_start_is_not_looked_at_in_every_poll(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(UNWATCHED_CHECKS + 40)]
    for path in paths:
        write(path, b"banner\n")
        os.utime(path, (0, 0))
    node = Node(tmp_path / "*.log", first_start=True, start="end").poll()
    for number, path in enumerate(paths):
        write(path, lines(number))
    assert len(node.poll(0.5).seen) == UNWATCHED_CHECKS
    assert node.poll(0.5).seen == list(range(len(paths)))


def test_the_clock_may_step(node: Node, log: Path) -> None:
    write(log, lines(1))
    node.rescan()
    write(log, b"CRASH seq=2")
    node.poll()
    node.now -= 3600
    assert node.poll().poll(1.0).seen == [1, 2]
    node.now += 86400
    write(log, b"\n" + lines(3))
    assert node.poll().seen == [1, 2, 3]


# -- what is told of it


def test_lag_is_what_has_not_been_handed_out(node: Node, log: Path) -> None:
    write(log, b"noise\n" * 500_000)
    node.rescan()
    size = log.stat().st_size
    assert 0 < node.stats.lag_bytes < size
    assert node.stats.bytes_read < size
    node.poll(times=5)
    assert (node.stats.lag_bytes, node.stats.lag_seconds, node.stats.bytes_read) == (0, 0.0, size)
    assert (node.stats.files, node.stats.open_files) == (1, 1)


@pytest.mark.parametrize("base", ["/a", "/a#1", "/a#1#0", "/a#", "/#2"])
@pytest.mark.parametrize("number", [0, 1, 12])
def test_no_two_logs_share_an_origin(base: str, number: int) -> None:
    assert split_origin(origin_of(base, number)) == (base, number)


def test_a_path_that_looks_like_a_number_of_another_path(tmp_path: Path) -> None:
    log, odd = tmp_path / "job.log", tmp_path / "job.log#1"
    write(log, lines(1))
    write(odd, lines(2))
    node = Node(log, odd).rescan()
    log.unlink()
    log.write_bytes(lines(3))
    node.settle().restart().settle()
    assert node.seen == [1, 2, 3]
    assert len({match.origin for match in node.matches}) == 3


def test_positions_stay_few_and_small(tmp_path: Path) -> None:
    node = Node(tmp_path / "*.log").poll()
    for number in range(30):
        write(tmp_path / f"{number}.log", lines(number))
    node.rescan().commit()
    assert len(node.rows) == 31  # and since when files are looked at
    assert max(map(len, node.rows.values())) < 600
    for path in tmp_path.iterdir():
        path.unlink()
    node.settle().commit()
    assert [key for key in node.rows if "done:" not in key] == ["files:since"]


def test_a_source_whose_chunk_was_not_taken_offers_it_again(node: Node, log: Path) -> None:
    write(log, lines(1))
    first = list(node.source.poll(node.now + 11))
    again = list(node.source.poll(node.now + 12)) or list(node.source.poll(node.now + 14))
    assert [chunk.data for chunk in again] == [chunk.data for chunk in first] == [lines(1)]
    assert os.path.basename(again[0].path) == "job.log"


# -- what comes first when there is more than a poll reads


def is_old(path: Path) -> Path:
    """Nobody has written to a log for an hour."""
    os.utime(path, (Node().now - 3600, Node().now - 3600))
    return path


def in_turn(node: Node) -> list[str]:
    """Whose chunks a poll gave, in order."""
    node.poll(0.01)
    return [Path(chunk.path).name for chunk in node.chunks]


def test_running_jobs_come_before_back_fill_which_never_stands_still(tmp_path: Path) -> None:
    step = b"step 12 loss 0.5 and a line like any other of a training log\n" * 60_000
    for number in range(6):
        write(tmp_path / f"old-{number}.log", step * 2)
        is_old(tmp_path / f"old-{number}.log")
    node = Node(tmp_path / "*.log")
    assert len(in_turn(node)) >= 4, "nobody is running: back-fill has it all"
    assert node.stats.deferred == {"running": 0, "backfill": 1}
    for number in range(6):
        write(tmp_path / f"job-{number}.log", step * 2)
        os.utime(tmp_path / f"job-{number}.log", (node.now, node.now))
    node.rescan()
    polls = [in_turn(node) for _ in range(4)]
    kinds = [[name.split("-")[0] for name in names] for names in polls]
    assert kinds == [sorted(names) for names in kinds], "jobs first"
    assert {name for names in kinds for name in names} == {"job"}, "that back-fill had a turn is less than a second ago"
    assert {name for names in polls for name in names if name.startswith("job")} == {f"job-{n}.log" for n in range(6)}
    assert node.stats.deferred["running"] >= 4
    assert node.stats.deferred["backfill"] >= 4
    node.poll(1.0)
    assert [Path(chunk.path).name.split("-")[0] for chunk in node.chunks][:2] == ["old", "job"]


def test_nothing_is_told_to_wait_when_a_poll_reads_it_all(tmp_path: Path) -> None:
    node = Node(tmp_path / "*.log").poll()
    for number in range(20):
        write(tmp_path / f"{number}.log", lines(number))
    assert node.settle().seen == list(range(20))
    assert node.stats.deferred == {"running": 0, "backfill": 0}
