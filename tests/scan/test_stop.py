"""Ctrl-C: what was found so far, and no waiting."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import termios
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually
from tests.scan.commands import AT_MOST_SECONDS, CRASH, archive_that_takes_long, ended, holders, start


@pytest.mark.heavy
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_prints_what_was_found_so_far(tmp_path: Path, workers: str) -> None:
    found, slow, later = (tmp_path / name for name in ("slurm-1.out", "slurm-2.out.xz", "slurm-3.out"))
    found.write_text(CRASH + "fine\n" * 2_000_000)  # a batch of its own
    archive_that_takes_long(slow)
    later.write_text(CRASH)
    scan = start("--workers", workers, "--format", "json", str(tmp_path))

    def others_are_read() -> bool:
        reading = [position for _, position in holders(scan.pid, slow)]
        # Far enough into the slow one that the other worker has long been done with the rest.
        return bool(reading) and min(reading) > 200_000 and not [*holders(scan.pid, found), *holders(scan.pid, later)]

    eventually(others_are_read, seconds=60)
    asked = time.monotonic()
    os.killpg(scan.pid, signal.SIGINT)  # as a terminal does: all processes get it
    code, out, err = ended(scan)
    assert time.monotonic() - asked < AT_MOST_SECONDS
    assert code == 128 + signal.SIGINT
    assert [line.count(str(found)) for line in out.splitlines()] == [1]
    assert err == f"stopped in {slow}: what was found so far follows\n"
    assert not list(holders(scan.pid, slow))


@pytest.mark.heavy
def test_ctrl_c_in_a_flood_of_matches_is_no_internal_error(tmp_path: Path) -> None:
    log = tmp_path / "slurm-1.out"
    log.write_text(CRASH * 1_000_000)
    scan = start("--format", "json", str(log))
    (before,) = eventually(lambda: [_bytes_read(pid) for pid, _ in holders(scan.pid, log)] or None)
    eventually(lambda: _bytes_read(scan.pid) > before + (1 << 20))
    os.killpg(scan.pid, signal.SIGINT)
    code, out, err = ended(scan)
    assert (code, out.count("\n")) == (128 + signal.SIGINT, 1), err
    assert err.startswith(f"stopped in {log}: ")


def test_ctrl_c_ends_a_scan_of_a_pipe_to_which_nobody_writes() -> None:
    read, write = os.pipe()
    os.write(write, CRASH.encode())
    scan = start("-", stdin=read)
    eventually(lambda: _bytes_in(read) == 0)
    asked = time.monotonic()
    os.killpg(scan.pid, signal.SIGINT)
    code, _, err = ended(scan)
    assert time.monotonic() - asked < AT_MOST_SECONDS
    assert (code, err) == (128 + signal.SIGINT, "stopped in -: what was found so far follows\n")
    os.close(read)
    os.close(write)


def _bytes_read(pid: int) -> int:
    """From whatever file: a log that is read by offsets has no position that moves."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def _bytes_in(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
