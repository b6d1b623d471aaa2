"""The hooks in slurm.conf, run by a real slurmd with a real daemon: they never hold or drain."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.core.decoding.job_files import started_job
from tests.e2e.conftest import Node, eventually, gpufault
from tests.e2e.test_node_check import LOST, Kernel
from tests.support.programs import needs
from tests.support.slurm import Slurm, slurm_of

HOOKS = Path(__file__).parents[2] / "deploy/slurm"
TOLD = "[node_problem] gpufault: gpu_lost_from_pcie nv_xid_79_fallen_off_bus"
NAMES = ("prolog", "epilog", "health-check")

pytestmark = pytest.mark.deploy


@needs("shellcheck")
def test_shellcheck_accepts_the_hooks() -> None:
    command = ["shellcheck", "--shell=sh", *sorted(str(path) for path in HOOKS.iterdir())]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_succeeds_without_gpufault(name: str, tmp_path: Path) -> None:
    jobs = {"GPUFAULT_JOBS_DIR": str(tmp_path / "jobs")}
    for environment in (jobs, {"PATH": "/nowhere", "SLURM_JOB_ID": "7", **jobs}):
        assert subprocess.run([HOOKS / name], env=environment, check=False, timeout=30).returncode == 0
    assert (tmp_path / "jobs/7.started").exists() == (name == "prolog")
    assert not (tmp_path / "jobs/.started").exists()


def test_the_name_that_a_user_gives_a_job_is_one_line_of_its_file(tmp_path: Path) -> None:
    told = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1000", "SLURM_JOB_NAME": "x\nuid=0\r\ngpus=0", "SLURM_JOB_GPUS": "1"}
    environment = {"GPUFAULT_JOBS_DIR": str(tmp_path), **told}
    subprocess.run([HOOKS / "prolog"], env=environment, check=True, timeout=30)
    job = started_job("7", (tmp_path / "7.started").read_text())
    assert (job.uid, job.gpus, job.name) == (1000, ("1",), "xuid=0gpus=0")


@dataclass(frozen=True)
class Site:
    """A Slurm with our hooks, and the file that tells them where the daemon is."""

    slurm: Slurm
    folder: Path

    def daemon_is_at(self, url: str) -> None:
        (self.folder / "defaults").write_text(f"GPUFAULT_URL={url}\nGPUFAULT_JOBS_DIR={self.folder}/jobs\n")

    def checked(self) -> str:
        """Exit code and words of the next health check."""
        before = len(self._lines("checks"))
        return eventually(lambda: next(iter(self._lines("checks")[before:]), None))

    def logged(self, job: str) -> list[str]:
        """What the system log says of a job."""
        return [line for line in self._lines("log") if line.startswith(f"job {job} ")]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The hooks as they are shipped, but for where the command and its defaults lie."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "bin").mkdir()
    (folder / "bin/gpufault").symlink_to(Path(gpufault()).absolute())
    # A machine of tests has no system log.
    (folder / "bin/logger").write_text(f'#!/bin/sh\nfor last; do :; done\necho "$last" >>{folder}/log\n')
    (folder / "bin/logger").chmod(0o755)
    for name in NAMES:
        text = (HOOKS / name).read_text()
        assert "/etc/default/gpufault" in text
        hook = folder / name
        hook.write_text(
            text.replace("/etc/default/gpufault", f"{folder}/defaults").replace("/opt/gpufault", str(folder))
        )
        hook.chmod(0o755)
    recorded = folder / "recorded"
    recorded.write_text(f'#!/bin/sh\nsaid=$({folder}/health-check)\necho "$? $said" >>{folder}/checks\n')
    recorded.chmod(0o755)
    hooks = (f"Prolog={folder}/prolog", f"Epilog={folder}/epilog", f"HealthCheckProgram={recorded}")
    (folder / "defaults").write_text(f"GPUFAULT_JOBS_DIR={folder}/jobs\n")
    with slurm_of(*hooks, "HealthCheckInterval=2") as slurm:
        yield Site(slurm, folder)


@pytest.mark.heavy
def test_a_crash_in_a_job_output_is_counted_with_the_job_id(
    site: Site, make_node: Callable[..., Node], tmp_path: Path
) -> None:
    node = make_node([{"kind": "files", "paths": [f"{tmp_path}/jobs/slurm-*.out"]}])
    node.start()
    site.daemon_is_at(f"http://{node.address}")
    one = site.slurm.submit("echo e2e crash seq=1 of job; exit 1", f"--output={tmp_path}/jobs/slurm-%j.out")
    tasks = site.slurm.submit(
        'test "$SLURM_ARRAY_TASK_ID" = 3 && echo e2e crash seq=2 of job',
        "--array=2-3",
        f"--output={tmp_path}/jobs/slurm-%A_%a.out",
    )
    assert site.slurm.ended(one) == ["FAILED"]
    site.slurm.ended(tasks)
    records = eventually(lambda: found if len(found := node.records()) == 2 else None)
    assert {record["job"]["id"] for record in records} == {one, f"{tasks}_3"}
    assert {record["job"]["kind"] for record in records} == {"slurm"}
    counted = [line for line in node.get("/metrics").splitlines() if line.startswith("gpufault_incidents_total{")]
    assert [line for line in counted if "e2e_crash" in line and line.endswith(" 2.0")]


@pytest.mark.heavy
def test_every_hook_reports_a_fault_and_the_node_stays_in_service(
    site: Site, make_node: Callable[..., Node], tmp_path: Path
) -> None:
    kernel = Kernel(tmp_path)
    node = make_node([{"kind": "kmsg", "path": str(kernel.path)}])
    node.start()
    site.daemon_is_at(f"http://{node.address}")
    eventually(lambda: site.checked().startswith("0 gpufault: healthy since ") or None)
    job = site.slurm.submit(
        f"touch {tmp_path}/begun; until test -e {tmp_path}/end; do sleep 0.1; done", "--output=/dev/null"
    )
    eventually((tmp_path / "begun").exists)
    kernel.say(LOST)
    eventually(lambda: site.checked().startswith(f"0 {TOLD}") or None)
    (tmp_path / "end").touch()
    assert site.slurm.ended(job) == ["COMPLETED"]
    assert [line.partition(" 2")[0] for line in site.logged(job)] == [f"job {job} ended on a node with a fault: {TOLD}"]
    after = site.slurm.submit("true", "--output=/dev/null")
    assert site.slurm.ended(after) == ["COMPLETED"]
    assert [line.partition(": ")[0] for line in site.logged(after)] == [
        f"job {after} starts on a node with a fault",
        f"job {after} ended on a node with a fault",
    ]
    later = {"SLURM_JOB_ID": "999", "SLURM_JOB_START_TIME": str(int(time.time()) + 60)}  # as a newer Slurm has it
    assert subprocess.run([site.folder / "epilog"], env=later, check=False, timeout=30).returncode == 0
    assert site.logged("999") == []
    assert site.slurm.node() == ("idle", "none")


@pytest.mark.heavy
def test_without_a_daemon_the_hooks_neither_hold_nor_drain(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for url in (f"http://127.0.0.1:{port}", "http://127.0.0.1:1"):
            site.daemon_is_at(url)
            started = time.monotonic()
            assert site.slurm.ended(site.slurm.submit("true", "--output=/dev/null")) == ["COMPLETED"]
            # Prolog and epilog wait 2 s each; the rest is Slurm's, and a busy machine's.
            assert time.monotonic() - started < 20
            eventually(lambda: site.checked().startswith("0 gpufault: unknown: ") or None)
    assert site.slurm.node() == ("idle", "none")


def test_documented_hook_paths_match_the_package() -> None:
    text = (HOOKS.parents[1] / "docs/install-slurm.md").read_text()
    assert {name for name in NAMES if f"=/usr/lib/gpufault/slurm/{name}\n" in text} == set(NAMES)


def test_hooks_are_executable() -> None:
    assert sorted(path.name for path in HOOKS.iterdir()) == sorted(NAMES)
    assert all(os.access(path, os.X_OK) for path in HOOKS.iterdir())
