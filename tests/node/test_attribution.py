"""What a node knows of whose a line is: processes, hooks' files, owners and cards, in folders that stand for the node's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.core.diagnosis.incidents import condense
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Job, Match
from exporter.node.job_attribution import JobAttribution
from exporter.node.job_folder import JobFolder
from exporter.node.pod_devices import PodDevices
from tests.support.matches import WINDOW, match

GPUS = tuple(Gpu(pci=pci, vendor="nvidia", minor=i) for i, pci in enumerate(("0000:1b:00.0", "0000:43:00.0")))
POD = "3c1f0d5e-8a2b-4c6d-9e7f-0123456789ab"


class Node:
    """A node's /proc, hooks' folder and folder of pods."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.jobs, self.pods = folder / "proc", folder / "jobs", folder / "pods"
        for each in (self.proc / "2", self.jobs, self.pods):
            each.mkdir(parents=True)
        (self.proc / "2/comm").write_text("kthreadd\n")
        self.now = time.time()
        self.attribution = self.started()

    def started(self) -> JobAttribution:
        folder = JobFolder(self.jobs)
        return JobAttribution(self.proc, folder, PodDevices(None), pods=self.pods, clock=lambda: self.now)

    def process(self, pid: int, cgroup: str, ticks: int = 1) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (python) S 1 " + "0 " * 17 + f"{ticks} 0 0\n")
        (folder / "cgroup").write_text(cgroup)

    def end(self, pid: int) -> None:
        for path in (self.proc / str(pid)).iterdir():
            path.unlink()
        (self.proc / str(pid)).rmdir()

    def job(self, raw_id: str, *, whole: bool = True, ending: str = "started", **told: object) -> None:
        lines = [*(f"{name}={value}" for name, value in told.items()), *(["complete=1"] if whole else [])]
        (self.jobs / f"{raw_id}.{ending}").write_text("\n".join(lines) + "\n")

    def look(self) -> list[Any]:
        self.now += 10.0
        return self.attribution.refresh(self.now)

    def told(self, of: Match, only: Callable[[], Job | None] = lambda: None) -> Match:
        [out] = self.attribution.attached([of], GPUS, lambda _: {}, only)
        return out

    def kernel(self, **what: Any) -> Match:
        return match("xid", source="kernel", **{"time": self.now, "captures": {"pid": "100"}, **what})


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def claims(of: Match) -> list[tuple[str, str, str]]:
    return [(job.id, job.method, job.confidence) for job in of.claims]


STEP = "0::/system.slice/slurmstepd.scope/job_103/step_0/user/task_0\n"


def test_a_line_of_the_kernel_names_the_job_of_its_process_while_it_lives_and_after(node: Node) -> None:
    node.process(100, STEP)
    assert claims(node.told(node.kernel())) == [("103", "pid", "high")]  # it was never looked at before
    node.process(100, STEP)
    node.look()
    node.end(100)
    node.look()
    out = node.told(node.kernel())
    assert claims(out) == [("103", "pid", "high")]
    assert out.named_job == "slurm 103"
    assert out.claims[0].step == "0"


def test_a_process_is_forgotten_some_time_after_its_end(node: Node) -> None:
    node.process(100, STEP)
    node.look()
    node.end(100)
    node.process(101, STEP)
    for _ in range(70):
        node.look()
    assert claims(node.told(node.kernel())) == []


def test_a_line_older_than_the_process_is_of_another_process(node: Node) -> None:
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    node.process(100, STEP, ticks=int((node.now - booted) * os.sysconf("SC_CLK_TCK")))
    node.look()
    assert claims(node.told(node.kernel())) == [("103", "pid", "high")]
    assert claims(node.told(node.kernel(time=node.now - 300.0))) == []


def test_pids_of_a_container_are_not_those_of_the_kernels_lines(node: Node) -> None:
    (node.proc / "2/comm").write_text("sh\n")
    node.process(100, STEP)
    node.look()
    assert claims(node.told(node.kernel())) == []


def test_a_process_that_its_scheduler_moves_later_is_read_again(node: Node) -> None:
    node.process(100, "0::/system.slice/slurmd.service\n")
    node.look()
    (node.proc / "100/cgroup").write_text(STEP)
    node.look()
    node.end(100)
    assert claims(node.told(node.kernel())) == [("103", "pid", "high")]


def test_a_pod_has_the_name_of_its_log_folder(node: Node) -> None:
    node.process(100, f"0::/kubepods/burstable/pod{POD}/{'ab' * 32}\n")
    assert claims(node.told(node.kernel())) == [(f"pod {POD.replace('-', '')}", "pid", "high")]
    (node.pods / f"ml_train-0_{POD}").mkdir()
    [job] = node.told(node.kernel()).claims
    assert (job.id, job.pod_uid, job.container) == ("ml/train-0", POD, "ab" * 32)


def test_the_prolog_tells_an_arrays_task_its_user_and_its_cards(node: Node) -> None:
    node.job("103", array_job=100, array_task=3, uid=1000, user="ada", account="ml", gpus="1", time=int(node.now))
    node.process(100, STEP)
    node.look()
    by_card = node.told(node.kernel(captures={}, gpu=GPUS[1].pci))
    assert claims(by_card) == [("100_3", "gpu", "high")]
    assert (by_card.claims[0].user, by_card.claims[0].account, by_card.claims[0].raw_id) == ("ada", "ml", "103")
    assert claims(node.told(node.kernel(captures={}, gpu=GPUS[0].pci))) == []  # idle, though there is but one job
    assert claims(node.told(node.kernel(captures={"process": "python"}))) == [("100_3", "time", "low")]
    assert claims(node.told(node.kernel(gpu=GPUS[1].pci))) == [("100_3", "pid", "high"), ("100_3", "gpu", "high")]


def test_the_log_of_an_arrays_task_is_linked_to_its_processes(node: Node) -> None:
    node.job("103", array_job=100, array_task=3, uid=1000)
    node.look()
    for name in ("100_3", "103"):
        log = match("crash", job=Job(id=name, kind="slurm"), uid=1000)
        assert node.told(log).named_job == "slurm 103"


def test_a_kernel_line_about_a_card_is_linked_to_the_job_that_has_it(node: Node) -> None:
    node.job("103", gpus="1")
    node.look()
    assert node.told(node.kernel(captures={}, gpu=GPUS[1].pci)).named_job == "slurm 103"
    by_time = node.told(node.kernel(captures={"process": "python"}))
    assert by_time.named_job is None
    job = node.attribution.job_of(condense([by_time], WINDOW)[0])  # whose exit code may excuse it
    assert job is not None
    assert job.raw_id == "103"


def test_a_card_that_two_jobs_share_names_neither(node: Node) -> None:
    node.job("103", gpus="0,1")
    node.job("104", visible=GPUS[0].pci)
    node.look()
    assert claims(node.told(node.kernel(captures={}, gpu=GPUS[0].pci))) == []
    assert claims(node.told(node.kernel(captures={}, gpu=GPUS[1].pci))) == [("103", "gpu", "high")]
    assert claims(node.told(node.kernel(captures={"mig": "7"}, gpu=GPUS[1].pci))) == []


def test_a_job_that_has_ended_has_its_cards_no_more(node: Node) -> None:
    node.job("103", gpus="1", time=int(node.now))
    node.job("103", ending="ended", time=int(node.now) + 100, exit_code="1:0")
    node.look()
    line = node.kernel(captures={}, gpu=GPUS[1].pci)
    assert claims(node.told(line)) == [("103", "gpu", "high")]
    node.now += 200.0
    assert claims(node.told(node.kernel(captures={}, gpu=GPUS[1].pci))) == []


def test_a_file_that_is_half_written_is_read_again(node: Node) -> None:
    node.job("103", whole=False, gpus="1")
    node.look()
    line = node.kernel(captures={}, gpu=GPUS[1].pci)
    assert claims(node.told(line)) == []
    node.job("103", gpus="1")
    node.look()
    assert claims(node.told(line)) == [("103", "gpu", "high")]
    node.job("103", ending="ended", whole=False, exit_code="0:9")
    assert node.look() == []
    node.job("103", ending="ended", exit_code="0:9", time=int(node.now))
    assert [(job.raw_id, job.signal) for job in node.look()] == [("103", 9)]
    assert node.look() == []  # told once


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_what_a_user_could_have_written_is_not_read(node: Node, what: str) -> None:
    node.job("103", gpus="1")
    if what == "folder":
        node.jobs.chmod(0o777)
    elif what == "file":
        (node.jobs / "103.started").chmod(0o666)
    else:
        (node.jobs / "103.started").rename(node.jobs / "x")
        (node.jobs / "103.started").symlink_to(node.jobs / "x")
    node.look()
    assert claims(node.told(node.kernel(captures={}, gpu=GPUS[1].pci))) == []
    assert bool(node.attribution.failed) is (what == "folder")


def test_the_owner_of_a_log_decides_whose_it_is(node: Node) -> None:
    node.job("103", uid=1000, user="ada")
    node.job("104", uid=1001, user="eve")
    node.look()
    path = Job(id="103", kind="slurm", confidence="medium")

    own = node.told(match("crash", job=path, uid=1000))
    assert own.job is not None
    assert (own.job.confidence, own.job.user, claims(own)) == ("high", "ada", [])

    forged = node.told(match("crash", job=path, uid=1001))
    assert forged.job is not None
    assert (forged.job.confidence, claims(forged)) == ("low", [("104", "owner", "medium")])
    assert forged.named_job is None  # its crash is not linked to the other's processes

    assert claims(node.told(match("crash", job=None, uid=1001))) == [("104", "owner", "medium")]
    assert claims(node.told(match("crash", job=None, uid=1002))) == []
    assert claims(node.told(match("crash", job=None))) == []


def test_a_user_with_two_jobs_is_told_apart_by_the_logs_header(node: Node) -> None:
    node.job("103", uid=1000)
    node.job("104", uid=1000)
    node.look()
    text = "slurmstepd: error: *** JOB 104 ON gpu-7 CANCELLED AT 2026-01-01T00:00:00 ***"
    assert claims(node.told(match("crash", job=None, uid=1000))) == []
    assert claims(node.told(match("crash", job=None, uid=1000, text=text))) == [("104", "header", "medium")]


def test_the_only_job_whose_log_is_written_is_the_last_resort(node: Node) -> None:
    line = node.kernel(gpu=GPUS[0].pci)
    only = Job(id="7", kind="slurm", confidence="high")
    node.jobs.rmdir()
    node.look()
    assert claims(node.told(line, lambda: only)) == [("7", "time", "low")]
    assert claims(node.told(line)) == []
    assert claims(node.told(node.kernel(captures={}), lambda: only)) == []  # about no process and no card


def test_a_process_of_the_system_is_no_jobs(node: Node) -> None:
    node.job("103")
    for cgroup, found in (("0::/system.slice/cron.service\n", []), ("0::/system.slice/slurmd.service\n", ["103"])):
        node.process(100, cgroup)
        node.look()
        assert [job.id for job in node.told(node.kernel()).claims] == found


def test_a_number_that_is_not_a_job_of_this_node_is_less_sure(node: Node) -> None:
    node.job("103", uid=1000)
    node.look()
    for job, confidence in (("404250", "low"), ("404251", "medium")):
        before = "medium" if confidence == "low" else "high"
        out = node.told(match("crash", job=Job(id=job, kind="slurm", confidence=before), uid=1000))  # type: ignore[arg-type]
        assert out.job is not None
        assert (out.job.confidence, claims(out)) == (confidence, [])


def test_a_line_of_a_job_names_its_card_by_a_node_of_kfd_or_an_ordinal(node: Node) -> None:
    node.job("103", uid=1000, gpus="1")
    node.look()
    oom = match("torch_oom", job="103", uid=1000, captures={"index": "0"})
    assert node.told(oom).gpu == GPUS[1].pci
    fault = match("rocr_memory_access_fault", captures={"node": "2"})
    mi300 = (Gpu(pci="0000:05:00.0", vendor="amd", kfd_nodes=(2,)),)
    [told] = node.attribution.attached([fault], mi300, lambda _: {}, lambda: None)
    assert told.gpu == "0000:05:00.0"
