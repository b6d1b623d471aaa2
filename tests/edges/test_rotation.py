"""Rotation in all its forms, while the node runs and while it is down. Every line counts once."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from exporter.sources.files import filesystem
from exporter.sources.files.log import Log
from exporter.sources.files.register import Recheck
from tests.support.programs import needs
from tests.support.rotations import BANNER, SCENARIOS, Script, pack
from tests.support.tailing import Node, copytruncate, lines, write


@pytest.fixture(params=["job.log", "*.log", "*.log*", "**/*"], ids=["named", "glob", "glob-of-rotated", "everything"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """Whether or not the glob has the names that rotation gives, the counts are the same."""
    one = Node(tmp_path / request.param, exclude=("*.gz",))
    yield one
    one.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


@pytest.fixture
def followed(node: Node, log: Path) -> Node:
    """A node that has read and committed two lines of a log."""
    write(log, lines(1, 2))
    return node.rescan().commit()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_line_counts_once(followed: Node, log: Path, name: str) -> None:
    last, steps = SCENARIOS[name]
    Script(followed, log).run(steps)
    assert followed.settle().seen == list(range(1, last + 1))
    if "ends no line between" not in name:  # there a loss is counted though none occurs
        assert followed.stats.dropped == {}


# -- by rename


def test_a_log_is_renamed_and_made_again(followed: Node, log: Path) -> None:
    write(log, lines(3))
    log.rename(f"{log}.1")
    write(log, lines(4))
    assert followed.settle().seen == [1, 2, 3, 4]
    assert followed.stats.rotations == 1


def test_rotated_files_that_were_there_before_the_log_was_known_are_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(tmp_path / "job.log.1", lines(100))
    os.utime(tmp_path / "job.log.1", (1, 1))
    write(log, lines(1))
    node = Node(log).rescan()
    Path(f"{log}.1").rename(f"{log}.2")
    log.rename(f"{log}.1")
    write(log, lines(2))
    assert node.settle().seen == [1, 2]


def test_a_file_that_was_done_with_comes_back_under_a_name_of_the_glob(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(tmp_path / "*.log").rescan()
    log.rename(tmp_path / "job.old")
    node.settle()
    assert node.stats.files == 0
    node.restart()
    write(tmp_path / "job.old", lines(2))
    (tmp_path / "job.old").rename(tmp_path / "kept.log")
    assert node.settle().seen == [1, 2]


# -- by copying and truncating


def test_copytruncate_and_the_log_stays_shorter(followed: Node, log: Path) -> None:
    write(log, lines(3))
    copytruncate(log, Path(f"{log}.1"))
    write(log, lines(4))
    assert followed.settle().seen == [1, 2, 3, 4]
    assert followed.stats.truncations == 1


def test_the_writer_goes_on_behind_the_hole_that_truncation_left(followed: Node, log: Path) -> None:
    with log.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        writer.write(b"x" * 100_000 + b"\n")
        followed.poll()
        copytruncate(log, Path(f"{log}.1"))
        writer.write(lines(3))
        followed.poll(times=3)
        assert log.stat().st_size > 100_000
        writer.write(lines(4))
    assert followed.settle().seen == [1, 2, 3, 4]
    assert followed.matches[-1].line == 2


@pytest.mark.parametrize(
    "name", ["job__2026-08-0{}_10-00-00.log", "job_2026080{}.log", "job.log_2026-08-0{}", "job.log-2026080{}"]
)
@pytest.mark.parametrize("down", [False, True])
def test_a_copy_with_a_date_in_its_name_is_no_other_log(tmp_path: Path, name: str, *, down: bool) -> None:
    log = tmp_path / "job.log"
    write(log, lines(0))
    node = Node(tmp_path / "*.log*").rescan().commit()
    for number in range(1, 4):
        write(log, lines(2 * number))
        if down:
            node.crash()
        else:
            node.poll().commit()
        copytruncate(log, tmp_path / name.format(number))
        write(log, lines(2 * number + 1))
        node.settle().commit()
    assert node.crash().settle().seen == [0, *range(2, 8)]


@pytest.mark.parametrize("how", ["renamed", "stays"])
@pytest.mark.parametrize("down", [False, True])
def test_a_counter_in_the_first_line_is_written_over(tmp_path: Path, log: Path, how: str, *, down: bool) -> None:
    write(log, b"step 0000 of 9999\n" + BANNER + lines(1))
    node = Node(log).settle().commit()
    if down:
        node.close()
    with log.open("r+b") as file:
        file.write(b"step 0077")
    write(log, lines(2))
    if how == "renamed":
        log.rename(f"{log}.1")
        write(log, lines(3))
    if down:
        node.crash()
    assert node.settle().commit().crash().settle().seen == [1, 2, 3][: 2 + (how == "renamed")]


@pytest.mark.parametrize("cut", [700, 2000])
def test_what_is_cut_back_by_more_than_is_remembered_is_read_anew(followed: Node, log: Path, cut: int) -> None:
    """A second run of the same job looks the same, and its crash may stand in the very same place."""
    write(log, lines(*range(100, 400)))
    followed.settle()
    os.truncate(log, log.stat().st_size - cut)
    kept = [int(line.split(b"=")[1]) for line in log.read_bytes().splitlines()[:-1]]
    write(log, b"\n" + lines(9))
    followed.settle()
    assert followed.seen.count(9) == 1
    assert followed.twice == ([] if cut == 700 else kept)


def test_a_truncation_without_a_copy_loses_what_was_not_read_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(log).rescan()
    write(log, b"CRASH s")
    node.poll()
    os.truncate(log, 0)
    node.settle()
    assert node.seen == [1]
    assert node.stats.dropped == {"truncated_unread": 1}


# -- compressed


def test_a_large_rest_in_a_compressed_file_takes_several_polls(followed: Node, log: Path) -> None:
    numbers = list(range(3, 1003))
    write(log, b"".join(BANNER * 10 + lines(number) for number in numbers))
    followed.crash()
    log.rename(f"{log}.1")
    pack(Path(f"{log}.1"))
    log.touch()
    assert followed.settle().poll(times=20).seen == [1, 2, *numbers]


@pytest.mark.parametrize("damage", ["cut off", "written over"])
def test_a_damaged_archive_is_read_up_to_the_damage(followed: Node, log: Path, damage: str) -> None:
    write(log, lines(3) + b"".join(os.urandom(20).hex().encode() + b"\n" for _ in range(80_000)) + lines(4))
    followed.crash()
    log.rename(f"{log}.1")
    pack(Path(f"{log}.1"))
    write(log, lines(5))
    archive = log.with_name("job.log.1.gz")
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2] + (b"\0" * 4096 if damage == "written over" else b""))
    assert followed.settle().seen == [1, 2, 3, 5]


def test_compressed_before_it_was_seen(log: Path) -> None:
    write(log, lines(1, 2))
    followed = Node(log).rescan()
    log.rename(f"{log}.2")
    write(log, lines(3))
    log.rename(f"{log}.1")
    pack(Path(f"{log}.1"))
    pack(Path(f"{log}.2"))
    write(log, lines(4))
    assert followed.settle().restart().settle().seen == [1, 2, 3, 4]


def test_what_was_compressed_unseen_by_another_program_is_counted_as_lost(followed: Node, log: Path) -> None:
    log.rename(f"{log}.2")
    Path(f"{log}.1.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    write(log, lines(4))
    assert followed.settle().seen == [1, 2, 4]
    assert sum(followed.stats.dropped.values()) == 1


# -- unlinked, linked, made again


def test_a_deleted_log_that_is_still_written_to(followed: Node, log: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        log.unlink()
        for number in range(3, 8):
            writer.write(lines(number))
            followed.poll(5.0)
    assert followed.seen == [1, 2, 3, 4, 5, 6, 7]
    followed.settle()
    assert followed.stats.open_files == 0  # the disk space of a deleted file is not held


def test_a_deleted_log_whose_writer_rests_for_hours(followed: Node, log: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        log.unlink()
        for number in range(3, 6):
            followed.settle().poll(7200.0).settle()
            writer.write(lines(number))
            followed.poll(1.0)
        assert followed.seen == [1, 2, 3, 4, 5]
    followed.settle()
    assert followed.stats.open_files == 0


@pytest.mark.parametrize("moves", [["job.log.1"], ["job.log.1", "job.log.2"], ["old/job.out"], ["old/a", "old/b"]])
@pytest.mark.parametrize("down", [False, True])
def test_a_log_was_moved_and_its_writer_rests_for_hours(
    followed: Node, log: Path, moves: list[str], *, down: bool
) -> None:
    (log.parent / "old").mkdir()
    with log.open("ab", buffering=0) as writer:
        for number, (path, name) in enumerate(zip(["job.log", *moves], moves, strict=False)):
            (log.parent / path).rename(log.parent / name)
            if number == 0:
                write(log, lines(10))
            followed.settle()
        for number in range(100, 103):
            followed.settle().poll(7200.0).settle().commit()
            writer.write(lines(number))
            if down:
                followed.crash()
            followed.settle()
    assert followed.seen == [1, 2, 10, 100, 101, 102]
    assert followed.commit().crash().settle().twice == []


@pytest.fixture
def settled_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all that a test has written had been written a while ago."""
    monkeypatch.setattr("exporter.sources.files.log.may_stay", lambda _: False)


@pytest.mark.usefixtures("settled_times")
@pytest.mark.parametrize("minutes", [31, 61])
def test_a_log_that_rested_long_tells_its_last_lines_and_is_deleted(tmp_path: Path, minutes: int) -> None:
    """As that of a job that hung until its collectives timed out. Of one that was closed since, nobody can tell."""
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(tmp_path / "*.log").settle().poll(minutes * 60.0)
    write(log, lines(2))
    log.unlink()
    node.settle()
    assert (node.seen, node.stats.dropped) == (([1, 2], {}) if minutes == 31 else ([1], {"gone_while_closed": 1}))
    assert node.stats.open_files == 0


@pytest.mark.usefixtures("settled_times")
@pytest.mark.parametrize("what", ["renamed", "written"])
def test_a_log_that_rested_long_is_found_again(tmp_path: Path, what: str) -> None:
    log = tmp_path / "job.log"
    write(log, lines(1))
    node = Node(tmp_path / "*.log").settle().poll(4000.0)
    if what == "renamed":
        write(log, lines(2))
        log.rename(f"{log}.1")
    else:
        write(log, lines(2))
        node.poll()
        log.unlink()
    assert node.settle().seen == [1, 2]
    assert node.stats.dropped == {}


def test_made_again_with_the_same_bytes_and_inode_while_the_node_was_down(followed: Node, log: Path) -> None:
    followed.settle().restart()
    first = log.stat().st_ino
    followed.close()
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)
    if log.stat().st_ino != first:
        pytest.skip("this file system did not use the inode again")
    followed.crash()
    assert followed.settle().seen == [1, 1, 2, 2]


def test_a_second_run_of_a_job_gets_ids_of_its_own_and_a_replay_the_same(followed: Node, log: Path) -> None:
    log.unlink()
    log.write_bytes(lines(1, 2))
    followed.settle()
    second = [match.origin for match in followed.matches]
    assert second == [str(log), str(log), f"{log}#1", f"{log}#1"]
    followed.crash().settle()
    assert [match.origin for match in followed.matches] == second


def test_a_link_is_swapped(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    old, new, link = tmp_path / "runs/1", tmp_path / "runs/2", tmp_path / "current.log"
    write(old, lines(1))
    link.symlink_to(old)
    node = Node(tmp_path / "*.log").rescan()
    for restart in (False, True):
        write(old, lines(3 if restart else 2))
        write(new, lines(5 if restart else 4))
        (tmp_path / "next").symlink_to(new)
        (tmp_path / "next").rename(link)
        if restart:
            node.restart()
        node.poll()
        old, new = new, tmp_path / "runs/3"
    assert node.settle().seen == [1, 2, 3, 4, 5]


def test_hard_links_and_two_globs_count_once(tmp_path: Path) -> None:
    write(tmp_path / "a.log", lines(1))
    os.link(tmp_path / "a.log", tmp_path / "b.log")
    (tmp_path / "c.log").symlink_to("a.log")
    node = Node(tmp_path / "*.log", tmp_path / "a*", tmp_path / "**/*.log").rescan()
    (tmp_path / "a.log").unlink()
    write(tmp_path / "b.log", lines(2))
    node.settle().restart()
    write(tmp_path / "b.log", lines(3))
    assert node.settle().seen == [1, 2, 3]


def test_logs_with_the_same_banner_are_told_apart(tmp_path: Path) -> None:
    node = Node(tmp_path / "*.log").poll()
    for number in range(200):
        write(tmp_path / f"rank.{number}.log", BANNER)
    node.rescan().restart()
    for number in range(200):
        write(tmp_path / f"rank.{number}.log", lines(number))
    assert node.rescan().seen == list(range(200))


# -- the real thing


@needs("logrotate")
@pytest.mark.parametrize(
    "how",
    [
        "create",
        "copytruncate",
        "renamecopy",
        "create\ncompress",
        "create\ncompress\ndelaycompress",
        "copytruncate\ncompress",
        "copytruncate\ncompress\nextension .log",
    ],
)
def test_logrotate_itself(node: Node, log: Path, how: str) -> None:
    run_logrotate(node, log, how)


@needs("logrotate")
def test_logrotate_copies_and_nobody_truncates(node: Node, log: Path) -> None:
    write(log, BANNER)
    run_logrotate(node, log, "copy")


@needs("logrotate")
@pytest.mark.parametrize("how", ["create", "copytruncate", "renamecopy"])
@pytest.mark.parametrize("globs", [("**/*",), ("*.log", "old/*")])
def test_logrotate_moves_logs_to_another_folder_of_the_globs(tmp_path: Path, globs: tuple[str, ...], how: str) -> None:
    node = Node(*(tmp_path / glob for glob in globs), exclude=("logrotate.*",))
    run_logrotate(node, tmp_path / "job.log", f"olddir old\ncreateolddir\n{how}")


def run_logrotate(node: Node, log: Path, how: str) -> None:
    config = log.with_name("logrotate.conf")
    config.write_text(f"{log} {{\nrotate 9\nsize 1\n{how}\n}}\n")
    config.chmod(0o600)
    log.parent.chmod(0o755)
    write(log, lines(0))
    node.rescan().commit()
    for number in range(1, 8):
        write(log, lines(number))
        state = log.with_name("logrotate.state")
        subprocess.run(["logrotate", "--force", "--state", state, config], check=True)
        if number % 3 == 0:
            node.restart()
        node.poll(times=2)
        write(log, lines(100 + number))
        node.poll()
    assert node.settle().seen == [*range(8), *range(101, 108)]


@pytest.mark.parametrize("to", ["old/job.log", "old/job-1.out", "../old/job.log"])
@pytest.mark.parametrize("again", [False, True])
def test_a_log_was_moved_to_a_folder_nearby_while_the_node_was_down(tmp_path: Path, to: str, *, again: bool) -> None:
    log = tmp_path / "run" / "job.log"
    for folder in (log.parent / "old", tmp_path / "old"):
        folder.mkdir(parents=True)
    write(log, lines(1))
    node = Node(tmp_path / "*/*.log").settle().commit()
    node.close()
    write(log, lines(2))
    log.rename(log.parent / to)
    if again:
        write(log, lines(3))
    node.crash().settle()
    write(log.parent / to, lines(4))
    assert node.settle().commit().crash().settle().seen == [1, 2, 3, 4] if again else [1, 2, 4]
    assert node.stats.dropped == {}


def test_a_log_that_went_while_nobody_looked_is_counted(tmp_path: Path) -> None:
    """Whether more was written to it nobody can tell; what it told is kept."""
    (tmp_path / "else/where").mkdir(parents=True)
    logs = [tmp_path / f"{name}.log" for name in "ab"]
    for number, log in enumerate(logs):
        write(log, lines(number))
    node = Node(tmp_path / "*.log").settle()
    node.commit().close()
    write(logs[0], lines(2))
    logs[0].rename(tmp_path / "else/where/a.log")
    assert node.restart().settle().seen == [0, 1]
    assert node.stats.dropped == {"gone_while_down": 1}
    logs[1].unlink()
    assert node.settle().seen == [0, 1]
    assert node.stats.dropped == {"gone_while_down": 1}  # it was read to its end


@pytest.mark.parametrize("rewritten", [1, 40], ids=["shorter", "longer"])
@pytest.mark.parametrize("down", [False, True], ids=["watched", "down"])
@pytest.mark.parametrize("made_anew", [False, True], ids=["truncated", "made-anew"])
def test_what_may_be_lost_of_a_log_that_is_begun_anew_is_counted(
    tmp_path: Path, *, rewritten: int, down: bool, made_anew: bool
) -> None:
    """Watched, it was read to its end; while nobody looked, more may have been written to it first. A restart after that
    changes nothing.
    """
    log = tmp_path / "job.log"
    write(log, lines(1, 2, 3))
    node = Node(log).settle().commit()
    if down:
        node.close()
    if made_anew:
        log.unlink()  # ext4 gives the inode's number to the next file
    else:
        os.truncate(log, 0)
    write(log, lines(*range(4, 4 + rewritten)))
    if not down:
        node.poll(times=2)
    node.restart().settle()
    assert node.seen == list(range(1, 4 + rewritten))
    assert node.stats.dropped.get("gone_while_down", 0) == (down or made_anew)
    assert node.stats.dropped.get("truncated_unread", 0) == 0


def test_replaced_by_a_copy_again_and_again_while_the_node_was_down(tmp_path: Path) -> None:
    """As editors do with each save. ext4 gives the first file's inode number to the second copy."""
    log = tmp_path / "job.log"
    write(log, BANNER + lines(1, 2))
    node = Node(tmp_path / "*.log").settle().commit()
    node.close()
    for number in (3, 4):
        copy = tmp_path / ".job.log.swp"
        shutil.copy(log, copy)
        copy.rename(log)
        write(log, lines(number))
    assert node.restart().settle().seen == [1, 2, 3, 4]
    assert node.stats.dropped == {}


def test_renamed_and_copied_back_while_the_node_was_down_and_its_writer_goes_on(tmp_path: Path) -> None:
    """What has the name of the log is a copy; the log goes on in the renamed file, which has no name of the globs."""
    log, renamed = tmp_path / "job.log", tmp_path / "kept"
    write(log, BANNER + lines(1))
    node = Node(tmp_path / "*.log").settle().commit()
    node.close()
    with log.open("ab", buffering=0) as writer:
        log.rename(renamed)
        shutil.copy(renamed, log)
        writer.write(lines(2))
        node.crash().rescan()
        writer.write(lines(3))
    assert set(node.settle().seen) == {1, 2, 3}


@pytest.mark.parametrize("order", [1, -1])
def test_replaced_by_a_copy_while_another_log_got_its_inode(tmp_path: Path, order: int) -> None:
    """As a file system gives a freed number to the very next file."""
    other, log = tmp_path / "a.log", tmp_path / "b.log"
    write(other, lines(0))
    write(log, BANNER + lines(1))
    for path, age in ((other, order), (log, 0)):
        os.utime(path, (1e9 + age, 1e9 + age))  # the order in which they are looked at
    node = Node(tmp_path / "*.log").rescan().commit()
    for number in (2, 4):
        copy = log.read_bytes()
        log.rename(tmp_path / "tmp")
        (tmp_path / "tmp").write_bytes(lines(number))
        (tmp_path / "tmp").rename(other)
        write(log, copy + lines(number + 1))
        node.crash().poll(times=3).commit()
    assert node.settle().seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("parts", [10**9, 10**7], ids=["whole seconds", "the kernel's tick"])
def test_rewritten_to_the_same_size_and_all_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """As ext3, ramfs and older kernels stamp what is written within one second, or within one tick."""
    see = Log.see

    def see_in_whole_parts(log: Log, status: os.stat_result, now: float) -> None:
        times = {name: getattr(status, name) // parts * parts for name in ("st_mtime_ns", "st_ctime_ns")}
        see(log, cast("os.stat_result", SimpleNamespace(st_size=status.st_size, st_nlink=1, st_uid=0, **times)), now)

    monkeypatch.setattr(Log, "see", see_in_whole_parts)
    log = tmp_path / "job.log"
    node = Node(log)
    for number in range(100, 200, 10):
        log.write_bytes(lines(number))
        node.rescan()
        log.write_bytes(lines(number + 1))
        node.settle()
    assert node.seen == [number + more for number in range(100, 200, 10) for more in (0, 1)]


@pytest.mark.parametrize("looks", range(4))
def test_renamed_and_copied_to_its_rotated_name(followed: Node, log: Path, looks: int) -> None:
    """As logrotate's renamecopy does, and mv between file systems."""
    moved, copy = log.with_name("job.log.tmp"), log.with_name("job.log.1")
    half = len(log.read_bytes()) // 2
    steps: list[Callable[[], object]] = [
        lambda: log.rename(moved),
        lambda: copy.write_bytes(moved.read_bytes()[:half]),
        lambda: copy.write_bytes(moved.read_bytes()),
        moved.unlink,
    ]
    for number, step in enumerate(steps):
        step()
        if number >= looks:
            followed.poll()
    write(log, lines(3))
    assert followed.settle().seen == [1, 2, 3]
    assert followed.stats.dropped == {}


@pytest.mark.parametrize("seconds", [False, True], ids=["to the nanosecond", "to the second"])
@pytest.mark.parametrize("numbers", [(1,), tuple(range(1, 200))], ids=["short", "long"])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_a_copy_that_was_given_the_time_of_its_log(
    tmp_path: Path, numbers: tuple[int, ...], *, seconds: bool, gone: bool, down: bool
) -> None:
    """As mv makes it on another disk, rsync, cp -p and a restore anywhere."""
    log, copy = tmp_path / "job.log", tmp_path / "elsewhere" / "other.log"
    copy.parent.mkdir()
    write(log, lines(*numbers))
    past = 1_700_000_000_123_456_789
    os.utime(log, ns=(past, past))
    node = Node(tmp_path / "**/*.log").settle()
    if down:
        node.commit().close()
    shutil.copyfile(log, copy)
    time = past // 10**9 * 10**9 if seconds else past
    os.utime(copy, ns=(time, time))
    if gone:
        log.unlink()
    if down:
        node.crash()
    node.settle()
    write(copy, lines(500))
    assert node.restart().settle().seen == [*numbers, 500]
    assert node.matches[-1].line == len(numbers) + 1


@pytest.mark.parametrize("what", ["another time", "other text", "more text", "no time of its own"])
def test_what_is_no_copy_of_a_log_counts(tmp_path: Path, what: str) -> None:
    log, other = tmp_path / "job.log", tmp_path / "other.log"
    write(log, lines(1))
    past = 1_700_000_000_123_456_789
    os.utime(log, ns=(past, past))
    node = Node(tmp_path / "*.log").settle()
    write(other, {"other text": lines(2), "more text": lines(1, 2)}.get(what, lines(1)))
    if what != "no time of its own":
        time = past + (what == "another time")
        os.utime(other, ns=(time, time))
    assert node.settle().seen == {"other text": [1, 2], "more text": [1, 1, 2]}.get(what, [1, 1])


def test_a_log_that_goes_on_in_a_copy_is_not_found_there_again_after_a_restart(tmp_path: Path) -> None:
    """Both logs of the path are stored; the later one has all of the earlier."""
    log = tmp_path / "job.log"
    write(log, lines(*range(200)))
    node = Node(log).rescan()
    text = log.read_bytes()
    log.unlink()
    node.poll(times=2)
    write(log, text + lines(300))
    node.poll(times=2)
    before = node.seen
    write(log, lines(400))
    assert node.restart().settle().seen == [*before, 400]


@pytest.mark.parametrize("first_start", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_log_that_goes_while_the_node_runs_did_not_go_while_it_was_down(
    tmp_path: Path, *, first_start: bool, restarted: bool
) -> None:
    """ext4 gives the numbers of deleted files to new ones. The node has more logs than it may keep open."""
    for number in range(40):
        write(tmp_path / f"{number}.log", lines(number))
    start = "end" if first_start else "beginning"
    node = Node(tmp_path / "*.log", open_files=8, first_start=first_start, start=start).settle().commit()
    if restarted:
        node.restart().settle()
    for number in range(40):
        (tmp_path / f"{number}.log").unlink()
        write(tmp_path / f"{number + 100}.log", lines(number + 100))
        if number % 4 == 0:
            node.rescan().commit()
    node.settle()
    assert node.seen == [*([] if first_start else range(40)), *range(100, 140)]
    assert set(node.stats.dropped) == {"gone_while_closed"}


@pytest.mark.parametrize("glob", ["*.log", "*.log*"])
def test_two_logs_are_swapped_and_one_is_copied_and_truncated_between_two_looks(tmp_path: Path, glob: str) -> None:
    one, other = tmp_path / "a.log", tmp_path / "b.log"
    write(one, lines(1))
    write(other, lines(2))
    node = Node(tmp_path / glob).rescan()
    one.rename(tmp_path / "c")
    other.rename(one)
    (tmp_path / "c").rename(other)
    write(one, lines(3))
    copytruncate(one, tmp_path / "a.log.1")
    assert node.settle().seen == [1, 2, 3]


def test_a_log_is_replaced_by_a_copy_that_is_copied_and_truncated_between_two_looks(tmp_path: Path) -> None:
    log, copy = tmp_path / "job.log", tmp_path / "copy"
    write(log, BANNER + lines(1))
    node = Node(log).rescan()
    shutil.copyfile(log, copy)
    write(copy, lines(2))
    copy.rename(log)
    copytruncate(log, tmp_path / "job.log.1")
    assert node.settle().seen == [1, 2]


def test_a_log_that_comes_back_while_archives_are_searched_for_it_goes_on(tmp_path: Path) -> None:
    log, away = tmp_path / "logs" / "job.log", tmp_path / "far" / "away" / "job.log"
    for folder in (log.parent, away.parent):
        folder.mkdir(parents=True)
    node = Node(log.parent / "*.log")
    banner = b"step: still running\n" * 200
    write(log, banner + lines(1))
    node.settle().commit()
    log.rename(away)
    for number in range(1, 30):  # more than are looked at in one poll
        Path(f"{log}.{number}.gz").write_bytes(gzip.compress(banner))
    node.crash().poll()
    away.rename(log)
    write(log, lines(2))
    assert node.rescan().poll(10.0, times=30).seen == [1, 2]


def test_a_file_that_listings_lacked_while_a_log_was_rotated_again_and_again_is_read(
    followed: Node, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's listing may lack a file that is renamed meanwhile. Here the log is renamed before and in each look, too."""
    numbers, listings, begun = count(3), count(), log.stat().st_mtime
    entries, pop = filesystem.entries, followed.source._follower.rechecks.pop

    def rotate() -> None:
        old = sorted(log.parent.glob("job.log.*"), key=lambda path: -int(path.suffix[1:]))
        for path in [*old, log]:
            path.rename(f"{log}.{int(path.suffix[1:]) + 1 if path != log else 1}")
        number = next(numbers)
        write(log, lines(number))
        os.utime(log, (begun + number / 20, begun + number / 20))  # as if a tick had passed

    def torn(path: str) -> list[os.DirEntry[str]]:
        found = list(entries(path))
        if next(listings) < 15:
            rotate()
            names = {path.name for path in log.parent.iterdir() if path.stat().st_ino == lacking}
            found = [entry for entry in found if entry.inode() != lacking and entry.name not in names]
        return found

    def popped() -> Iterator[tuple[str, Recheck]]:
        for item in pop():
            rotate()
            yield item

    rotate()
    lacking = log.stat().st_ino
    rotate()
    monkeypatch.setattr(filesystem, "entries", torn)
    monkeypatch.setattr(followed.source._follower.rechecks, "pop", popped)
    followed.poll(1.0, times=3)
    monkeypatch.undo()
    assert followed.settle().seen == [*range(1, next(numbers))]
