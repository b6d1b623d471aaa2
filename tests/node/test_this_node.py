"""A log of this node is read together with what its kernel says of the log's job."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline
from exporter.node import this_node
from exporter.node.this_node import ThisNode
from exporter.sources.kernel.kernel_log import KmsgSource

XID = (
    "NVRM: Xid (PCI:0000:c1:00): 31, pid={pid}, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    " GPCCLIENT_T1_0 faulted @ 0x7f75_7bd4f000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/slurmstepd.scope"
    "/job_4242,task_memcg=/system.slice/slurmstepd.scope/job_4242/step_batch/user/task_0,task=python3,pid=6728,uid=20001"
)
PAGE_FAULT = (
    "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python3"
    " pid 811 thread python3 pid 811)"
)
KILLED = "/var/spool/slurmd/job04242/slurm_script: line 6:  6728 Killed                  python3 train.py\n"

Kernel = Callable[..., Path]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Lets this node's kernel say lines, each so many seconds ago."""
    path = tmp_path / "kmsg"

    def say(*lines: tuple[float, str]) -> Path:
        clock = time.clock_gettime(time.CLOCK_BOOTTIME)
        records = (f"3,{n},{int((clock - ago) * 1e6)},-;{text}\n" for n, (ago, text) in enumerate(lines))
        path.write_text("".join(records))
        return path

    here = partial(ThisNode, jobs=tmp_path / "run", kernel=lambda: KmsgSource("auto", str(path), {}))
    monkeypatch.setattr(this_node, "ThisNode", here)
    return say


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of Slurm's job 4242, which ended just now."""
    path = tmp_path / "logs" / "slurm-4242.out"
    path.parent.mkdir()
    path.write_text("step 1\n" + KILLED)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) in (0, 1)
    done = capsys.readouterr()
    return " ".join((done.out + done.err).split())


def test_explain_finds_the_kill_in_the_kernels_log(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((5, OOM))
    told = run(capsys, "explain", "--facts=host", str(log))
    assert told.startswith("kernel log, 20")
    assert "job_exceeded_its_memory" in told
    assert "shell_signal_exit (line 2) – as a consequence" in told
    assert "was read too" not in told
    assert "job_exceeded_its_memory" not in run(capsys, "explain", str(log))


def test_a_scan_joins_what_the_kernel_says_of_the_logs_jobs(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((5, OOM), (4, XID.format(pid=999)))
    told = run(capsys, "scan", "--facts=host", str(log))
    assert "oom_kill_cgroup · 1 line · job 4242" in told
    assert "1 incident, 1 known cause" in told
    assert "nv_xid_31" not in told  # of another process


def test_another_jobs_fault_explains_nothing_and_is_named_as_such(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((4, OOM.replace("job_4242", "job_17").replace("6728", "99")))
    told = run(capsys, "explain", "--facts=host", str(log))
    assert told.startswith("line 2:")
    assert "killed_without_message" in told
    assert "meanwhile oom_kill_cgroup on this node at the same time; nothing links it to this job" in told
    assert "The kernel log of this node was read too: nothing in it is known to be of this job." in told


def test_what_the_kernel_said_an_hour_before_does_not_count(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((3600, OOM))
    for command in ("explain", "scan"):
        assert "oom_kill" not in run(capsys, command, "--facts=host", str(log))


def test_the_last_report_of_a_kernel_log_counts_although_lines_may_follow(kernel: Kernel) -> None:
    kernel(
        (6, "audit: operation 1"),
        (5, PAGE_FAULT),
    )
    read = this_node.ThisNode().kernel_log(Pipeline(packs.load()), 60.0)
    assert [incident.signature for incident in read.incidents] == ["amdgpu_vm_page_fault"]


def test_lines_of_the_kernel_are_no_lines_of_the_file(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((9, "audit: operation 1"), (5, OOM))
    told = run(capsys, "explain", "--facts=host", f"{log}:2")
    assert told.startswith("kernel log, 20")
    assert "reported by the kernel –" in told
    assert "Line 1 is not in an incident. Incidents begin at line 2." in run(
        capsys, "explain", "--facts=host", f"{log}:1"
    )


def test_a_kernel_log_that_cannot_be_read_is_said(
    kernel: Kernel, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("explain", "scan"):
        told = run(capsys, command, "--facts=host", str(log))
        assert "kernel log of this node cannot be read: file: No such file or directory" in told
        assert "shell_signal_exit" in told


def test_a_kernel_log_that_is_given_is_not_read_twice(
    kernel: Kernel, tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel((5, OOM))
    text = tmp_path / "logs" / "dmesg.txt"
    text.write_text(f"[  100.000000] {OOM}\n")
    assert "1 incident" in run(capsys, "scan", "--facts=host", "--source=kernel", str(text))
    assert run(capsys, "explain", "--facts=host", str(text)).count("oom-kill:constraint") == 1


def test_all_of_a_long_kernel_log_is_read(kernel: Kernel) -> None:
    kernel(*((1000 - n / 100, f"audit: operation {n}") for n in range(20_000)), (5, OOM))
    read = this_node.ThisNode().kernel_log(Pipeline(packs.load()), 60.0)
    assert [incident.signature for incident in read.incidents] == ["oom_kill_cgroup"]
    assert read.unread == ""
