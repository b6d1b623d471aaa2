"""Several processes read what one reads, and some of them die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually
from tests.scan.commands import CRASH, archive_that_takes_long, ended, holders, scanned, start


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Logs of jobs and of a kernel, small ones and one that is cut."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(30):
        (folder / f"slurm-{number}.out").write_text(f"2025-11-20T23:40:{number:02d}Z step 1\n{CRASH * (number % 3)}")
    line = "2025-11-20T23:41:{:02d}Z step {} loss 2.25 lr 0.001 tokens/s 18231 eta 3:21:09\n"
    with (folder / "slurm-900.out").open("w") as large:
        large.write("torch version 2.1\n")
        for part in range(60):
            large.writelines(line.format(step % 60, step) for step in range(40_000))
            large.write(f"2025-11-20T23:{part % 60:02d}:59Z 3: {CRASH}")
    (folder / "kern.log").write_text(
        "Nov 20 23:41:00 n1 kernel: NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    )
    return folder


@pytest.mark.heavy  # 190 MB
def test_workers_give_the_records_that_one_process_gives(archive: Path) -> None:
    assert (archive / "slurm-900.out").stat().st_size > 2 * (64 << 20)  # cut into three
    alone = scanned(str(archive))
    assert alone[0] == 1
    assert len({record["path"] for record in alone[1]}) == 22
    assert scanned("--workers", "3", str(archive)) == alone


@pytest.mark.heavy
def test_a_log_that_kills_its_workers_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    """Whatever opens the poisoned log is killed, as a log would that takes all memory to unpack."""
    for number in range(20):
        (tmp_path / f"slurm-{number:02d}.out").write_text(CRASH)
    poison = tmp_path / "slurm-07.out.xz"
    archive_that_takes_long(poison)
    scan = start("--workers", "2", "--format", "json", str(tmp_path))
    killed = set[int]()  # on a loaded machine a process holds the log for a while after its signal
    while scan.poll() is None:
        for pid, _ in holders(scan.pid, poison):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        assert len(killed) < 50
    code, out, err = ended(scan)
    assert len(killed) >= 2
    assert (code, out.count("rocr_memory_access_fault")) == (1, 20), err
    assert err.splitlines() == [
        f"{poison}: not read: the process that read it died; did it run out of memory? See `dmesg`",
        "gpufault scan: 1 file could not be read completely, see above",
    ]


def test_no_worker_outlives_a_scan_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "slurm-1.out.xz"
    archive_that_takes_long(log)
    (tmp_path / "slurm-2.out").write_text(CRASH)
    scan = start("--workers", "2", str(tmp_path))
    readers = eventually(lambda: [pid for pid, _ in holders(scan.pid, log)] or None)
    scan.kill()
    ended(scan)
    eventually(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in readers))


def test_the_catalogue_is_not_packed_for_forked_workers(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").write_text(CRASH)
    code = (
        "import sys; from exporter.cli.main import main; from exporter.scan.work import Recipe; Recipe.of = None; "
        "sys.exit(main(['scan', '--quiet', '--workers', '2', sys.argv[1]]))"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "")
