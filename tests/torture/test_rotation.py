"""Rotations of a log that the real daemon follows."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import needs

from .conftest import Torture, both_watchers

Followed = tuple[Torture, Path]
Begin = Callable[..., Torture]


def rotate(log: Path, keep: int = 9) -> None:
    """By rename, as logrotate does with `create`."""
    for number in range(keep, 0, -1):
        path = log.with_name(f"{log.name}.{number}")
        if path.exists():
            path.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(f"{log}.1")
    log.touch()


@pytest.mark.parametrize("rotations", [3, 20])
@both_watchers
def test_many_rotations_within_one_poll_8(followed: Followed, rotations: int) -> None:
    torture, log = followed
    for _ in range(rotations):
        rotate(log, keep=rotations)
        torture.write(log, 20)
    torture.exact()


def test_rewritten_to_the_same_size_10(followed: Followed) -> None:
    torture, log = followed
    size = log.stat().st_size
    with log.open("r+b") as writer:
        writer.truncate(0)
        block = torture.lines(90)
        writer.write(block + b"\n" * (size - len(block)))
    assert log.stat().st_size == size
    torture.exact()


def test_rewritten_to_a_larger_size_11(followed: Followed) -> None:
    torture, log = followed
    with log.open("r+b") as writer:
        writer.truncate(0)
        writer.write(torture.lines(300))
    torture.exact()


@both_watchers
def test_unlinked_while_it_is_open_15(followed: Followed) -> None:
    torture, log = followed
    with log.open("ab", buffering=0) as writer:
        log.unlink()
        writer.write(torture.lines(50))
        torture.all_counted()
    torture.exact()


@pytest.mark.parametrize("copies", [1, 3])
def test_copytruncate_while_down_and_longer_than_before_25(followed: Followed, copies: int) -> None:
    torture, log = followed
    torture.node.kill()
    for number in range(copies, 0, -1):
        torture.write(log, 10 + number)
        shutil.copyfile(log, f"{log}.{number}")
        os.truncate(log, 0)
    torture.write(log, 200)
    torture.start().exact()


@pytest.mark.parametrize("delay", [False, True])
def test_compressed_28(followed: Followed, delay: bool) -> None:
    torture, log = followed
    torture.node.kill()
    torture.write(log, 30)
    rotate(log)
    if delay:
        torture.write(log, 10)
        rotate(log)
    rotated = Path(f"{log}.2" if delay else f"{log}.1")
    status = rotated.stat()
    Path(f"{rotated}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    os.utime(f"{rotated}.gz", ns=(status.st_atime_ns, status.st_mtime_ns))
    rotated.unlink()
    torture.write(log, 10)
    torture.start().exact()


@pytest.mark.parametrize(("how", "packed"), [("rename", False), ("copytruncate", True)])
def test_begun_anew_with_the_same_banner_and_rotated_while_down(begin: Begin, how: str, *, packed: bool) -> None:
    banner = b"launcher: this option is at its default value\n" * 40
    torture = begin().start()
    log, rotated = torture.logs / "job.log", torture.logs / "job.log.1"
    log.write_bytes(banner + torture.lines(100))
    torture.all_counted()
    torture.node.kill()
    log.unlink()
    log.write_bytes(banner + torture.lines(30))
    if how == "rename":
        log.rename(rotated)
    else:
        shutil.copyfile(log, rotated)
        os.truncate(log, 0)
    if packed:
        Path(f"{rotated}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
        rotated.unlink()
    torture.write(log, 10)
    torture.start().exact()


@needs("logrotate")
@pytest.mark.parametrize(
    "how", ["create", "nocreate", "copytruncate", "create\ncompress", "create\ncompress\ndelaycompress", "dateext"]
)
@both_watchers
def test_logrotate_itself(followed: Followed, how: str) -> None:
    torture, log = followed
    for round_ in range(6):
        torture.write(log, 30)
        if round_ % 3 == 2:
            torture.node.kill()
        if how != "dateext" or round_ < 1:  # two rotations in one second would have one name
            torture.logrotate(log, f"{how}\ndateformat -%Y%m%d-%s")
        torture.write(log, 20)
        if round_ % 3 == 2:
            torture.start()
    torture.exact()
