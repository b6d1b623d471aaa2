"""A real Dask cluster and a real Slurm give the records that this process gives, and say what they could not read."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main
from exporter.config import packs
from exporter.scan.engines.slurm import Slurm as engine_of_slurm  # noqa: N813
from exporter.scan.plan import Unread, Wanted
from exporter.scan.run import scan
from tests.e2e.conftest import eventually
from tests.scan.commands import AT_MOST_SECONDS, CRASH, archive_that_takes_long, ended, holders, scanned, start
from tests.support.slurm import Slurm

pytestmark = pytest.mark.heavy

UNREAD = "gpufault scan: 1 file could not be read whole, see above\n"


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


def test_slurm_gives_the_records_that_one_process_gives(archive: Path, slurm: Slurm, tmp_path: Path) -> None:
    """Though it has no database, which submitit asks whether a job has ended."""
    command = (
        "--engine",
        "slurm",
        "--slurm.folder",
        str(tmp_path),
        "--task.size",
        "300KiB",
        "--slurm.option",
        "mem=1G",
    )
    code, found, err = scanned(*command, str(archive), environment=slurm.environment)
    assert (code, found) == records(scanned(str(archive))), err
    assert err.endswith(f"(on {socket.gethostname()})\n{UNREAD}")
    assert list(tmp_path.iterdir()) == []  # what went to tasks and came back is gone


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
    assert err.startswith(
        f"gpufault scan: the Dask scheduler at {address} went away\nstopped in {slow}: what was found so far follows\n"
        "go on with: gpufault scan --resume "
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


def test_a_slurm_job_that_is_cancelled_is_submitted_again_and_then_named(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm-1.out").write_text(CRASH)
    slow = tmp_path / "slurm-2.out.xz"
    archive_that_takes_long(slow)
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    engine = engine_of_slurm(str(tmp_path / "shared"), {"mem": "1G"}, workers=4, task_bytes=1, grace_seconds=1.0)
    jobs: set[str] = set()
    told: list[Unread] = []

    def cancel_what_reads_it() -> None:
        while not finished.is_set():
            for pid in readers_of(slow):
                with contextlib.suppress(OSError):  # it has ended already
                    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
                    job = dict(entry.partition("=")[::2] for entry in environment)["SLURM_JOB_ID"]
                    jobs.add(job)
                    slurm.run("scancel", job)
            finished.wait(0.2)

    finished = threading.Event()
    canceller = threading.Thread(target=cancel_what_reads_it)
    canceller.start()
    try:
        logs = [Wanted(str(path)) for path in sorted(tmp_path.glob("slurm-*"))]
        summary = scan(logs, packs.load(), node="n", facts={}, workers=engine, report_unread=told.append)
    finally:
        finished.set()
        canceller.join()
    assert len(jobs) == 2
    assert (summary.files, len(summary.diagnoses), summary.broken) == (1, 1, "")
    (unread,) = told
    assert unread.path == str(slow)
    assert "ended (CANCELLED) without a result: " in unread.why


def readers_of(path: Path) -> list[int]:
    sessions = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            sessions.add(os.getsid(int(process.name)))
    return [pid for session in sessions for pid, _ in holders(session, path)]


def test_ctrl_c_cancels_the_jobs_of_a_scan(tmp_path: Path, slurm: Slurm) -> None:
    slow = tmp_path / "slurm-2.out.xz"
    archive_that_takes_long(slow)
    scan = start(
        "--engine", "slurm", "--slurm.folder", str(tmp_path / "shared"), str(slow), environment=slurm.environment
    )
    eventually(lambda: readers_of(slow) or None)
    asked = time.monotonic()
    os.killpg(scan.pid, signal.SIGINT)
    code, _, err = ended(scan)
    assert time.monotonic() - asked < AT_MOST_SECONDS
    assert (code, err.startswith(f"stopped in {slow}: ")) == (128 + signal.SIGINT, True)
    eventually(lambda: not slurm.run("squeue", "--noheader", "--name=gpufault-scan"))
    eventually(lambda: not readers_of(slow))


def test_a_folder_that_the_nodes_do_not_share_is_named(tmp_path: Path, slurm: Slurm) -> None:
    """The scan has another file system mounted there than the node."""
    log, folder = tmp_path / "slurm-1.out", tmp_path / "shared"
    log.write_text(CRASH)
    folder.mkdir()
    code = (
        "import sys\n"
        "from exporter.config import packs\n"
        "from exporter.scan.engines.slurm import Slurm\n"
        "from exporter.scan.plan import Wanted\n"
        "from exporter.scan.run import scan\n"
        "engine = Slurm(sys.argv[1], {}, grace_seconds=1.0)\n"
        "report = lambda unread: print(unread.why)\n"
        "scan([Wanted(sys.argv[2])], packs.load(), node='n', facts={}, workers=engine, report_unread=report)\n"
    )
    mounted = f'mount -t tmpfs none "{folder}" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", code, str(folder), str(log)],
        env=slurm.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "without a result or a log; is " in done.stdout, done.stderr
    assert done.stdout.endswith(" shared with its node? give --slurm.folder\n")


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
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said("--engine", "slurm", "--slurm.folder", str(tmp_path)) == (
        3, "gpufault: there is no sbatch here; run it on a machine of the cluster that submits jobs\n",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "submitit", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    for engine in ("slurm", "dask"):
        code, err = said("--engine", engine, "--dask.address", "tcp://127.0.0.1:1")
        assert (
            code,
            err.startswith(f"gpufault: --engine {engine} needs the extra {engine}; {sys.executable} -m pip"),
        ) == (3, True)
        assert err.endswith(f"[{engine}]'\n")
