"""What stands in logs, and in what portions it comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .conftest import Torture

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]


def test_the_same_banner_in_500_logs_26(torture: Torture) -> None:
    banner = b"launcher: an option is at its default\n" * 30
    logs = [torture.logs / f"rank-{number}.log" for number in range(500)]
    for log in logs:
        log.write_bytes(banner)
    for log in logs:
        torture.write(log, 1)
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
