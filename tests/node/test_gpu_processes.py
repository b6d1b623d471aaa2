"""GPU processes, looked at in folders that stand for /proc: a machine has no GPU where tests run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.config.node import Config
from exporter.core.model import Job, Match
from exporter.daemon.daemon import Daemon
from exporter.node import gpu_processes
from exporter.node.gpu_processes import MAX_PER_JOB, READS, names_beneath, text_beneath
from exporter.process.own_log import start_logging
from exporter.store.state import State
from tests.support.matches import match
from tests.support.processes import NCCL, Proc

APERTURE_VIOLATION = (
    ":0:rocdevice.cpp            :2984: 1 us: [pid:1 tid:0x7f] Callback: Queue 0x7f0000000000 aborting with error :"
    " HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest legal address."
    " code: 0x29\n"
)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def kernel(pid: int, now: float | None = None) -> Match:
    return match("xid", source="kernel", captures={"pid": str(pid)}, time=time.time() if now is None else now)


def test_a_job_is_known_by_what_its_processes_had_mapped_even_when_they_have_ended(proc: Proc) -> None:
    proc.start(100, environ="NCCL_DEBUG=INFO\0")
    proc.look()
    proc.end(100)
    proc.look()

    assert proc.facts_of_job() == {"nccl_version": "2.21.5", "env.NCCL_DEBUG": "INFO"}
    assert proc.facts_of_job("8") == {}


def test_a_line_of_the_kernel_is_about_the_process_that_it_names(proc: Proc) -> None:
    proc.start(100, environ="NCCL_DEBUG=INFO\0")
    proc.start(101, environ="NCCL_DEBUG=WARN\0")
    proc.look()

    assert [proc.processes.facts_of(kernel(pid)).get("env.NCCL_DEBUG") for pid in (100, 101, 102)] == [
        "INFO",
        "WARN",
        None,
    ]
    assert proc.facts_of_job()["env.NCCL_DEBUG"] == "INFO,WARN"


def test_matches_are_given_what_is_known_of_their_processes(proc: Proc) -> None:
    proc.start(100)
    proc.look()
    matches = [match("gpu_fault", job="7"), match("gpu_fault", job="8"), kernel(100), match("gpu_fault", job=None)]

    attached = proc.processes.attached(matches)

    assert [dict(m.process) for m in attached] == [{"nccl_version": "2.21.5"}, {}, {"nccl_version": "2.21.5"}, {}]


def test_a_line_that_is_older_than_a_process_is_about_another_of_that_number(proc: Proc) -> None:
    proc.start(100)
    proc.look()

    assert proc.processes.facts_of(kernel(100, now=1_000_000_000.0)) == {}


def test_pids_of_another_namespace_are_not_those_of_the_kernel(proc: Proc) -> None:
    proc.start(100)
    (proc.path / "self/ns/pid").unlink()
    (proc.path / "self/ns/pid").symlink_to("pid:[4026532999]")
    proc.look()

    assert proc.processes.facts_of(kernel(100)) == {}


@pytest.mark.parametrize("device", ["/dev/kfd", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dri/renderD128"])
def test_whoever_has_a_gpu_open_is_looked_at(proc: Proc, device: str) -> None:
    proc.start(100, device=device)
    proc.look()

    assert proc.facts_of_job() == {"nccl_version": "2.21.5"}


@pytest.mark.parametrize("device", ["/dev/null", "/dev/nvidiactl", "/home/u/dev/kfd", "socket:[1]"])
def test_others_are_not(proc: Proc, device: str) -> None:
    proc.start(100, device=device)
    proc.look()

    assert proc.facts_of_job() == {}


def test_libraries_that_came_later_are_seen_at_the_second_look_and_no_more_are_taken(proc: Proc) -> None:
    folder = proc.start(100, maps="")
    seen = []
    for version in range(READS + 1):
        (folder / "maps").write_text(NCCL.replace("2.21.5", f"2.21.{version}"))
        proc.look()
        seen.append(proc.facts_of_job()["nccl_version"])

    assert seen == ["2.21.0", "2.21.1", "2.21.1"]


def test_a_number_that_is_used_again_is_another_process(proc: Proc) -> None:
    proc.start(100)
    proc.look()
    proc.start(100, device="/dev/null", ticks=99)
    proc.look()

    assert proc.processes.facts_of(kernel(100)) == {}


def test_of_a_jobs_many_workers_only_the_first_are_read(proc: Proc) -> None:
    for pid in range(100, 100 + MAX_PER_JOB + 5):
        proc.start(pid, environ=f"NCCL_RANK={pid}\0")
    proc.look()

    assert len(proc.facts_of_job()["env.NCCL_RANK"].split(",")) == MAX_PER_JOB
    assert proc.processes.facts_of(kernel(100))["nccl_version"] == "2.21.5"  # by its job


def test_what_is_remembered_is_bounded(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "MAX_KEPT", 3)
    for pid in range(100, 110):
        proc.start(pid, cgroup="0::/\n")
    proc.look()

    assert sum(bool(proc.processes.facts_of(kernel(pid))) for pid in range(100, 110)) == 3


def test_no_look_is_taken_when_switched_off(proc: Proc) -> None:
    proc.start(100)
    proc.processes.refresh(60.0, None, wait=True)

    assert proc.facts_of_job() == {}


def test_looks_rest_between_times_but_not_because_a_clock_was_set_back(proc: Proc) -> None:
    proc.processes.refresh(1000.0, 60.0, wait=True)
    proc.start(100)
    proc.processes.refresh(1059.0, 60.0, wait=True)
    assert proc.facts_of_job() == {}

    proc.processes.refresh(10.0, 60.0, wait=True)
    assert proc.facts_of_job() != {}


def test_a_process_that_ends_under_the_look_or_may_not_be_looked_at_costs_nobody_else(proc: Proc) -> None:
    proc.start(100)
    (proc.start(101) / "maps").unlink()
    (proc.start(102) / "stat").write_text("garbage")
    proc.look()

    assert proc.facts_of_job() == {"nccl_version": "2.21.5"}
    assert proc.processes.failed == {}


def test_a_process_that_never_answers_is_told_and_left_alone(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "HANGS_SECONDS", 0.0)
    proc.start(100)
    hanging = proc.start(101)
    (hanging / "environ").unlink()
    os.mkfifo(hanging / "environ")  # nobody writes: to open it waits for ever
    proc.processes.refresh(60.0, 60.0)
    first = proc.processes._worker
    assert first is not None
    first.join(0.2)

    proc.processes.refresh(120.0, 60.0, wait=True)

    assert proc.processes.failed == {"processes": "process 101 does not answer"}
    assert proc.facts_of_job() == {"nccl_version": "2.21.5"}

    (hanging / "environ").write_bytes(b"")  # it answers after all
    first.join()
    (hanging / "environ").unlink()
    proc.end(101)
    proc.look()
    assert proc.processes.failed == {}


# Below the root of a process, which is its user's


def test_a_containers_own_rocm_and_wheels_are_known(proc: Proc) -> None:
    packages = "/venv/lib/python3.10/site-packages"
    maps = f"7f00-7f01 r-xp 0 0:1 9   {packages}/torch/lib/libamdhip64.so\n"
    root = proc.start(100, maps=maps) / "root"
    (root / "opt/rocm-6.2.3/.info").mkdir(parents=True)
    (root / "opt/rocm-6.2.3/.info/version").write_text("6.2.3-124\n")
    (root / packages[1:] / "torch-2.5.1+rocm6.2.dist-info").mkdir(parents=True)
    proc.look()

    assert proc.facts_of_job() == {"rocm_version": "6.2", "rocm_versions": "6.2.3", "torch_version": "2.5.1+rocm6.2"}


def test_no_link_leads_out_of_a_root(tmp_path: Path) -> None:
    (tmp_path / "outside/.info").mkdir(parents=True)
    (tmp_path / "outside/.info/version").write_text("6.6.6\n")
    root = tmp_path / "root"
    (root / "opt/rocm-7").mkdir(parents=True)
    (root / "opt/rocm-8/.info").mkdir(parents=True)
    (root / "opt/rocm-6").symlink_to(tmp_path / "outside")
    (root / "opt/rocm-7/.info").symlink_to("../../../outside/.info")
    (root / "opt/rocm-8/.info/version").symlink_to("/etc/passwd")

    assert [text_beneath(root, f"/opt/rocm-{n}/.info/version") for n in (6, 7, 8)] == ["", "", ""]
    assert names_beneath(root, "/opt/rocm-6") == names_beneath(root, "/../outside") == []


def test_nothing_but_files_and_folders_is_opened_below_a_root(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "long").write_bytes(b"\xff" * 10_000)

    assert text_beneath(tmp_path, "/fifo") == text_beneath(tmp_path, "/folder") == text_beneath(tmp_path, "/none") == ""
    assert len(text_beneath(tmp_path, "/long")) == 4 * 4096  # backslashes for bytes
    assert names_beneath(tmp_path, "/fifo") == names_beneath(tmp_path, "/long") == []


def test_this_process_can_be_looked_at() -> None:
    facts = gpu_processes.stack_of(Path("/proc/self"), Path("/proc"))

    assert facts["ulimit_nofile"].isdecimal() or facts["ulimit_nofile"] == "unlimited"


def test_an_id_of_a_job_that_is_no_process_job_is_none(proc: Proc) -> None:
    proc.start(100)
    proc.look()

    assert proc.processes.facts_of(match("gpu_fault", job=Job(id="7", kind="path"))) == {}


# In the daemon


def test_a_crash_is_explained_by_what_its_process_had_mapped_though_the_node_has_another(
    proc: Proc, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    config = Config.model_validate(
        {
            "state_dir": tmp_path / "state",
            "sources": [{"kind": "files", "paths": [f"{jobs}/*.out"], "start": "beginning"}],
            "facts": {"extra": {"rocm_version": "6.1.0", "home_fs_type": "ext4"}},
        }
    )
    proc.start(
        100,
        maps="7f00-7f01 r-xp 0 0:1 9   /opt/rocm-6.2.3/lib/libamdhip64.so.6.2.60203\n",
        environ="HOME=/home/ada\0",
        mountinfo="97 28 0:51 / /home rw - nfs4 nfs01:/home rw\n",
    )
    proc.look()
    state = State(config.state_dir)
    try:
        daemon = Daemon(config, packs.load(), state, node="n", log=start_logging("error", "logfmt"))
        daemon.watch.processes = proc.processes
        (jobs / "slurm-7.out").write_text(APERTURE_VIOLATION)
        daemon.drain()
        daemon.finish()
    finally:
        state.close()

    journal = "".join(path.read_text() for path in sorted((config.state_dir / "journal").rglob("*.jsonl")))
    (incident,) = [r for r in map(json.loads, journal.splitlines()) if r["kind"] == "incident"]
    assert incident["root_cause"] == "network_home_cache_unwritable"
    assert incident["verdict"] == "infrastructure"
    assert incident["source"] == "job"  # a user names his own libraries, so it calls no operator
    assert {(e["what"], e["value"]) for e in incident["evidence"]} >= {
        ("fact rocm_version", "6.2.3"),
        ("fact home_fs_type", "nfs4"),
    }
