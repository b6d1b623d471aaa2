"""A real Dask cluster, under Slurm too, gives the records that this process gives, and says what it could not read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main
from tests.e2e.conftest import eventually
from tests.scan.commands import AT_MOST_SECONDS, CRASH, archive_that_takes_long, ended, holders, scanned, start
from tests.support.slurm import Slurm

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]

UNREAD = "gpufault scan: 1 file could not be read completely, see above\n"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of some jobs, one of them cut where a test asks for it, and a file that nobody can read."""
    folder = tmp_path_factory.mktemp("archive")
    for number in range(12):
        text = f"2025-11-20T23:40:{number:02d}Z torch version 2.{number}\n{CRASH * (number % 3)}"
        (folder / f"slurm-{number:02d}.out").write_text(text)
    (folder / "slurm-99.out.gz").write_bytes(b"no archive")
    return folder


@contextlib.contextmanager
def dask_cluster(*, workers: int = 2) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A scheduler and its workers as processes of their own session; their address."""
    code = (
        "import sys, signal\n"
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        f"    cluster = LocalCluster(n_workers={workers}, threads_per_worker=1, dashboard_address=None)\n"
        "    print(cluster.scheduler_address, flush=True)\n"
        "    sys.stdin.read()\n"
        "    cluster.close()\n"
    )
    cluster = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"},  # 3 unless a site says so
        start_new_session=True,
    )
    try:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip(), cluster
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.communicate(timeout=20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(cluster.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    with dask_cluster() as (address, _):
        yield address


def records(found: tuple[int, list[dict[str, Any]], str]) -> tuple[int, list[dict[str, Any]]]:
    return found[0], found[1]


def test_dask_gives_the_records_that_one_process_gives(archive: Path, dask: str) -> None:
    code, found, err = scanned("--engine", "dask", "--dask.address", dask, str(archive))
    assert (code, found) == records(scanned(str(archive)))
    assert len(found) == 8
    unread, counted = err.splitlines()
    assert counted + "\n" == UNREAD
    assert unread.startswith(f"{archive / 'slurm-99.out.gz'}: not read: is damaged: ")
    assert unread.endswith(f"(on {socket.gethostname()})")


def test_dask_under_slurm_gives_the_records_that_one_process_gives(archive: Path, slurm: Slurm) -> None:
    """The cluster of docs/scanning.md."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/scanning.md").read_text(), re.DOTALL)
    for text, here in (('queue="cpu"', 'queue="all"'), ("4GB", "1GB"), ("jobs=64", "jobs=2")):
        assert text in code
        code = code.replace(text, here)
    cluster = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=slurm.environment,
        cwd=slurm.folder,
        start_new_session=True,
    )
    try:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        command = ("--engine", "dask", "--dask.address", address, "--task.size", "300KiB")
        code, found, err = scanned(*command, str(archive))
        assert (code, found) == records(scanned(str(archive))), err
        assert err.endswith(f"(on {socket.gethostname()})\n{UNREAD}")
        assert slurm.run("squeue", "--noheader", "--name=dask-worker")
        cluster.communicate("\n", timeout=60)
        eventually(lambda: not slurm.run("squeue", "--noheader", "--name=dask-worker"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(cluster.pid, signal.SIGKILL)


# What goes wrong


def kill_whoever_opens(path: Path, scan: subprocess.Popen[str], session: int) -> int:
    """Until a scan ends: as a log would that takes all memory to unpack. How many processes were killed."""
    killed: set[int] = set()  # a process that ends slowly is killed more than once
    while scan.poll() is None:
        for pid, _ in holders(session, path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if len(killed) == 50:
            os.killpg(scan.pid, signal.SIGKILL)
    return len(killed)


def test_a_log_that_kills_each_dask_worker_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"slurm-{number}.out").write_text(CRASH)
    poison = tmp_path / "slurm-1.out.xz"
    archive_that_takes_long(poison)
    with dask_cluster(workers=4) as (address, cluster):  # two die, whether others come for them or not
        command = ("--engine", "dask", "--dask.address", address, "--task.size", "1KiB", "--format", "json")
        scan = start(*command, str(tmp_path))
        killed = kill_whoever_opens(poison, scan, cluster.pid)
        code, out, err = ended(scan)
    assert (code, out.count("\n")) == (1, 3), err
    assert 2 <= killed < 50
    assert err == f"{poison}: not read: each Dask worker that read it died; did they run out of memory?\n" + UNREAD


def test_a_dask_cluster_that_goes_away_ends_the_scan_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").write_text(CRASH)
    slow = tmp_path / "slurm-2.out.xz"
    archive_that_takes_long(slow)
    with dask_cluster() as (address, cluster):
        command = ("--engine", "dask", "--dask.address", address, "--task.size", "1KiB", "--format", "json")
        scan = start(*command, str(tmp_path))
        eventually(lambda: any(position > 100_000 for _, position in holders(cluster.pid, slow)))
        os.killpg(cluster.pid, signal.SIGKILL)
        code, out, err = ended(scan)
    assert (code, out.count("rocr_memory_access_fault")) == (3, 1), err
    assert err == (
        f"gpufault scan: the Dask scheduler at {address} went away\nstopped in {slow}: what was found so far follows\n"
    )


def test_ctrl_c_lets_go_of_a_dask_cluster(tmp_path: Path, dask: str) -> None:
    slow = tmp_path / "slurm-2.out.xz"
    archive_that_takes_long(slow)
    scan = start("--engine", "dask", "--dask.address", dask, str(slow))
    eventually(lambda: readers_of(slow) or None)
    asked = time.monotonic()
    os.killpg(scan.pid, signal.SIGINT)
    code, _, err = ended(scan)
    assert time.monotonic() - asked < AT_MOST_SECONDS
    assert (code, err.startswith(f"stopped in {slow}: ")) == (128 + signal.SIGINT, True)


def readers_of(path: Path) -> list[int]:
    sessions = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            sessions.add(os.getsid(int(process.name)))
    return [pid for session in sessions for pid, _ in holders(session, path)]


def test_what_is_missing_is_said_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    log.write_text(CRASH)

    def said(*arguments: str) -> tuple[int, str]:
        code = main(["scan", *arguments, str(log)])
        return code, capsys.readouterr().err

    assert said("--engine", "dask") == (
        2, "gpufault scan: --engine dask needs --dask.address tcp://HOST:PORT of its scheduler\n",
    )  # fmt: skip
    code, err = said("--engine", "dask", "--dask.address", "tcp://127.0.0.1:1")
    assert (code, err.startswith("gpufault: no Dask scheduler answers at tcp://127.0.0.1:1 (")) == (3, True)
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, err = said("--engine", "dask", "--dask.address", "tcp://127.0.0.1:1")
    assert (code, err.endswith("[dask]'\n")) == (3, True)
    assert err.startswith(f"gpufault: --engine dask needs the extra dask; {sys.executable} -m pip")
