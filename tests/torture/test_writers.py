"""Writers that do more than append: they cut, go back, reserve space, map, pad, replace and swap their files."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually

from .conftest import Torture, both_watchers

pytestmark = pytest.mark.nightly  # programs that write or move logs, many of each kind

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]


# -- within the file


def test_the_last_line_is_overwritten_in_place(followed: Followed) -> None:
    torture, log = followed
    with log.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        for _ in range(5):
            end = writer.tell()
            writer.write(torture.line())
            torture.all_counted()
            writer.seek(end)
            writer.write(torture.line())
            torture.all_counted()
    torture.exact()


def test_a_closing_bracket_is_overwritten_by_the_next_entry(followed: Followed) -> None:
    torture, log = followed
    with log.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        writer.write(b"[\n" + torture.line(ending="") + b"\n]\n")
        for _ in range(5):
            torture.all_counted()
            writer.seek(-3, os.SEEK_END)
            writer.write(b",\n" + torture.line(ending="") + b"\n]\n")
    torture.exact()


def test_the_last_line_is_cut_off_and_written_anew(followed: Followed) -> None:
    torture, log = followed
    for _ in range(5):
        end = log.stat().st_size
        torture.write(log, 1)
        torture.all_counted()
        os.truncate(log, end)
        torture.write(log, 3)
        torture.all_counted()
    torture.exact()


def test_space_is_reserved_and_filled(torture: Torture) -> None:
    log = torture.logs / "job.log"
    with log.open("wb", buffering=0) as writer:
        os.posix_fallocate(writer.fileno(), 0, 1 << 20)
        for _ in range(20):
            writer.write(torture.lines(10))
            torture.all_counted()
        writer.truncate()
    torture.exact()


def test_space_is_filled_with_zeros_first(torture: Torture) -> None:
    log = torture.logs / "job.log"
    with log.open("wb", buffering=0) as writer:
        writer.write(bytes(3 << 20))
        writer.seek(0)
        torture.write(torture.logs / "other.log", 1)
        torture.all_counted()
        for _ in range(10):
            writer.write(torture.lines(10))
            torture.all_counted()
    torture.exact()


def test_a_log_is_written_through_a_mapping(torture: Torture) -> None:
    log = torture.logs / "job.log"
    with log.open("w+b") as file:
        file.truncate(1 << 16)
        with mmap.mmap(file.fileno(), 1 << 16) as memory:
            for _ in range(5):
                memory.write(torture.lines(3))
                torture.all_counted()
    torture.exact()


def test_blocks_are_padded_and_written_over(torture: Torture) -> None:
    """As a writer with O_DIRECT does: whole blocks, the last one again and again with more in it."""
    log, text, size = torture.logs / "job.log", b"", 4096
    with log.open("wb", buffering=0) as writer:
        for _ in range(40):
            text += torture.lines(7)
            first = max(0, (len(text) - 200) // size * size)
            block = text[first:]
            writer.seek(first)
            writer.write(block + bytes(-len(block) % size))
            torture.all_counted()
    torture.exact()


def test_the_time_of_a_log_goes_back(followed: Followed) -> None:
    torture, log = followed
    for stamp in (0, 1, 10**18, 0, 10**18):
        torture.write(log, 10)
        os.utime(log, ns=(stamp, stamp))
        torture.all_counted()
    torture.exact()


# -- the whole file


def test_replaced_by_a_copy_that_has_more(followed: Followed) -> None:
    """As rsync and editors do: a new file with all of the old one's lines is renamed over it."""
    torture, log = followed
    for _ in range(3):
        new = torture.logs / ".job.log.x7Zq"
        shutil.copyfile(log, new)
        torture.write(new, 30)
        new.rename(log)
        torture.all_counted()
    torture.write(log, 10)
    torture.exact()


def test_replaced_by_a_copy_while_down(followed: Followed) -> None:
    """As after a restore, or a move to another disk."""
    torture, log = followed
    torture.node.kill()
    new = torture.logs / "restored"
    shutil.copy2(log, new)
    torture.write(new, 30)
    log.unlink()
    new.rename(log)
    torture.start().exact()


def test_another_file_is_renamed_over_a_log_that_is_written_to(followed: Followed) -> None:
    torture, log = followed
    with log.open("ab", buffering=0) as writer:
        torture.write(torture.logs / "next", 50).rename(log)
        writer.write(torture.lines(50))
        torture.all_counted()
        writer.write(torture.lines(5))
    torture.write(log, 5)
    torture.exact()


def test_two_logs_change_their_names(torture: Torture) -> None:
    first, second, aside = (torture.logs / name for name in ("a.log", "b.log", "c.tmp"))
    torture.write(first, 60)
    torture.write(second, 40)
    torture.all_counted()
    for _ in range(4):
        first.rename(aside)
        second.rename(first)
        aside.rename(second)
        torture.write(first, 7)
        torture.write(second, 9)
    torture.exact()


def test_a_chain_of_names_within_the_glob(torture: Torture) -> None:
    names = [torture.logs / f"{name}.log" for name in "abcde"]
    for _ in range(5):  # in a sixth, what nobody may have read would be renamed over
        for number in range(4, 0, -1):
            if names[number - 1].exists():
                names[number - 1].rename(names[number])
        torture.write(names[0], 30)
    torture.exact()


def test_a_log_becomes_a_folder_and_a_log_again(followed: Followed) -> None:
    torture, log = followed
    for _ in range(3):
        log.unlink()
        log.mkdir()
        torture.write(torture.logs / "other.log", 5)
        torture.all_counted()
        log.rmdir()
        torture.write(log, 60)
        torture.all_counted()
    torture.exact()


def test_a_log_goes_out_of_sight_and_comes_back(followed: Followed) -> None:
    torture, log = followed
    hidden = torture.logs / ".job.log"
    for _ in range(3):
        log.rename(hidden)
        torture.write(hidden, 20)
        torture.write(torture.logs / "other.log", 1)
        torture.all_counted()
        hidden.rename(log)
        torture.write(log, 20)
    torture.exact()


# -- among folders


def test_hard_links_across_folders(begin: Begin) -> None:
    torture = begin("a/*.log", "b/*.log", "**/*.out")
    for name in "ab":
        (torture.logs / name).mkdir(parents=True)
    torture.start()
    log, other = torture.logs / "a/job.log", torture.logs / "b/other.log"
    torture.write(log, 50)
    os.link(log, other)
    torture.write(other, 50)
    torture.all_counted()
    log.unlink()
    torture.write(other, 50)
    os.link(other, torture.logs / "a/again.out")
    torture.write(torture.logs / "a/again.out", 20)
    torture.exact("a/last.log")


def test_a_log_moves_between_two_folders_that_are_watched(begin: Begin) -> None:
    torture = begin("running/*.log", "done/*.log")
    for name in ("running", "done"):
        (torture.logs / name).mkdir(parents=True)
    torture.start()
    for number in range(4):
        log = torture.write(torture.logs / "running/job.log", 50)
        if number % 2:
            torture.all_counted()
        with log.open("ab", buffering=0) as writer:
            log.rename(torture.logs / f"done/job-{number}.log")
            writer.write(torture.lines(20))
    torture.exact("done/last.log")


@both_watchers
def test_a_folder_changes_places_with_another_and_with_a_link(begin: Begin) -> None:
    torture = begin("run/*.log", "old*/*.log")
    run = torture.logs / "run"
    run.mkdir(parents=True)
    torture.start()
    torture.write(run / "job.log", 50)
    torture.all_counted()
    run.rename(torture.logs / "old-1")
    run.mkdir()
    torture.write(run / "job.log", 60)
    torture.write(torture.logs / "old-1/job.log", 5)
    torture.all_counted()
    run.rename(torture.logs / "old-2")
    run.symlink_to("old-1")
    torture.write(run / "job.log", 5)
    torture.write(torture.logs / "old-2/job.log", 5)
    torture.exact("old-1/last.log")


@both_watchers
def test_a_link_to_a_folder_is_swapped(begin: Begin) -> None:
    torture = begin("current/*.log")
    for name in ("run-1", "run-2"):
        (torture.logs / name).mkdir(parents=True)
    torture.start()
    current = torture.logs / "current"
    for round_ in range(6):
        name = f"run-{round_ % 2 + 1}"
        (torture.logs / "next").symlink_to(name)
        (torture.logs / "next").rename(current)
        torture.write(current / "job.log", 40)
        torture.all_counted()
    torture.exact("current/last.log")


def test_a_folder_is_moved_out_of_the_root_and_back(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    run, away = torture.logs / "run", torture.node.folder / "away"
    run.mkdir()
    torture.write(run / "job.log", 50)
    torture.all_counted()
    run.rename(away)
    torture.write(away / "job.log", 30)
    torture.write(torture.logs / "other.log", 3)
    away.rename(run)
    torture.write(run / "job.log", 30)
    torture.exact()


def test_odd_and_long_names(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    deep = torture.logs
    while len(str(deep)) < 3800:
        deep /= "d" * 200
    deep.mkdir(parents=True)
    names = ["new\nline.log", "-rf.log", "a b\t'\"$(x).log", "*.log", "[a].log", f"{'x' * 251}.log", "\u202egol.log"]
    for path in [*(torture.logs / name for name in names), deep / "job.log"]:
        torture.write(path, 20)
    torture.all_counted()
    for path in [*(torture.logs / name for name in names), deep / "job.log"]:
        torture.write(path, 20)
    torture.exact()


def test_a_path_that_is_too_long_hides_nothing_else(begin: Begin) -> None:
    torture = begin("**/*.log").start()
    here = os.open(torture.logs, os.O_RDONLY)
    try:
        for _ in range(25):
            os.mkdir("d" * 200, dir_fd=here)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        torture.write(torture.logs / "job.log", 50)
        torture.exact()
    finally:
        os.close(here)
        shutil.rmtree(torture.logs / ("d" * 200), ignore_errors=True)


# -- with the daemon


def test_everything_happens_while_the_daemon_stands_still(followed: Followed) -> None:
    torture, log = followed
    assert torture.node.process is not None
    torture.node.process.send_signal(signal.SIGSTOP)
    torture.write(log, 20)
    for number in range(4, 0, -1):
        old = log.with_name(f"{log.name}.{number}")
        log.rename(old)
        torture.write(log, 20)
    shutil.copyfile(log, f"{log}.0")
    os.truncate(log, 0)
    torture.write(log, 70)
    torture.node.process.send_signal(signal.SIGCONT)
    torture.exact()


def test_reloaded_in_the_middle_of_a_rotation(followed: Followed) -> None:
    torture, log = followed
    assert torture.node.process is not None
    with log.open("ab", buffering=0) as writer:
        for number in range(3):
            log.rename(f"{log}.{number}")
            torture.node.process.send_signal(signal.SIGHUP)
            writer.write(torture.lines(10))
            torture.write(log, 60)
            eventually(lambda: sum(torture.counted()) >= sum(torture.written) or None)
            writer.write(torture.lines(10))
    torture.exact()
