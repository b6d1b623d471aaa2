"""What stands in logs, and in what portions it comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Torture

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]


def test_appended_1(torture: Torture) -> None:
    for _ in range(20):
        torture.write(torture.logs / "job.log", 5)
    torture.exact()


def test_what_was_there_before_the_first_start_2(begin: Begin) -> None:
    torture = begin(start="beginning")
    torture.write(torture.logs / "job.log", 50)
    torture.start().write(torture.logs / "job.log", 50)
    torture.exact()


def test_a_short_job_3(torture: Torture) -> None:
    for number in range(20):
        torture.write(torture.logs / f"job-{number}.log", 100)
    torture.exact()


def test_a_partial_line_is_completed_18(followed: Followed) -> None:
    torture, log = followed
    line = torture.line()
    with log.open("ab", buffering=0) as writer:
        for byte in line:
            writer.write(bytes([byte]))
    torture.exact()


def test_a_last_line_without_newline_19(followed: Followed) -> None:
    torture, log = followed
    with log.open("ab") as writer:
        writer.write(torture.line(ending=""))
    torture.exact()


def test_one_line_over_a_restart_20(followed: Followed) -> None:
    torture, log = followed
    line = torture.line()
    with log.open("ab") as writer:
        writer.write(line[:15])
    torture.node.kill()
    torture.node.start()
    with log.open("ab") as writer:
        writer.write(line[15:])
    torture.exact()


def test_written_while_down_21(followed: Followed) -> None:
    torture, log = followed
    torture.node.kill()
    torture.write(log, 50)
    torture.write(torture.logs / "new.log", 50)
    torture.start().exact()


def test_the_same_banner_in_500_logs_26(torture: Torture) -> None:
    banner = b"launcher: an option is at its default\n" * 30
    logs = [torture.logs / f"rank-{number}.log" for number in range(500)]
    for log in logs:
        log.write_bytes(banner)
    for log in logs:
        torture.write(log, 1)
    torture.exact()


def test_files_of_one_line_27(torture: Torture) -> None:
    for number in range(100):
        torture.write(torture.logs / f"tiny-{number}.log", 1)
    torture.exact()


def test_hard_links_and_two_globs_29(begin: Begin) -> None:
    torture = begin("*.log", "job*").start()
    log = torture.write(torture.logs / "job.log", 50)
    os.link(log, torture.logs / "other.log")
    torture.write(torture.logs / "other.log", 50)
    torture.exact()


def test_a_line_of_100_mib_36(followed: Followed) -> None:
    torture, log = followed
    with log.open("ab") as writer:
        for _ in range(100):
            writer.write(b"x" * (1 << 20))
        writer.write(b"\n" + torture.lines(10))
    torture.exact()


def test_a_sparse_file_36(followed: Followed) -> None:
    torture, log = followed
    os.truncate(log, log.stat().st_size + (4 << 30))
    torture.write(log, 50)
    torture.exact()


def test_a_core_dump_that_is_called_a_log_36(torture: Torture) -> None:
    (torture.logs / "core.log").write_bytes(b"\x7fELF" + os.urandom(1 << 20))
    torture.write(torture.logs / "job.log", 50)
    torture.exact()
    assert torture.dropped("binary") == 1.0


@pytest.mark.parametrize("noise", [b"\r\n", b"\0\n", b"\xff\xfe\x80\n", b"\x1b[31mred\x1b[0m\n"], ids=repr)
def test_odd_bytes_between_the_lines_37_40_41(followed: Followed, noise: bytes) -> None:
    torture, log = followed
    with log.open("ab") as writer:
        for _ in range(50):
            writer.write(noise + torture.line())
    torture.exact()


def test_ten_hits_between_carriage_returns_38(followed: Followed) -> None:
    torture, log = followed
    with log.open("ab") as writer:
        writer.write(b"\r".join(torture.line(ending="") + b" 10%|#   |" for _ in range(10)) + b"\n")
        writer.write(torture.lines(10))
    torture.exact()
