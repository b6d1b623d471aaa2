"""Which kernel lines may explain a job's crash, and that nothing a job says takes anything from the kernel's word."""

from __future__ import annotations

import pytest

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.model import Job, Match
from tests.support.matches import WINDOW, catalogue_of, match

GPU, OTHER_GPU = "0000:3b:00.0", "0000:5e:00.0"
POD = "0a1b2c3d-0000-4000-8000-0123456789a{}"
CATALOGUE = catalogue_of("""
signatures:
  - {id: cuda_fault, vendor: nvidia, layer: runtime, patterns: ['aaaa'], follows: ['xid_*', nfs_stalled, process_killed]}
  - {id: xid_31, vendor: nvidia, layer: kernel, sources: [kernel], patterns: ['bbbb'], follows: [cuda_fault, switch_error]}
  - {id: switch_error, vendor: nvidia, layer: kernel, sources: [job, kernel], patterns: ['cccc']}
  - {id: nfs_stalled, sources: [kernel], patterns: ['dddd']}
  - {id: process_killed, sources: [kernel], patterns: ['eeee']}
  - {id: gpu_lost, vendor: nvidia, layer: runtime, severity: critical, patterns: ['ffff']}
  - {id: aer_corrected, sources: [kernel], patterns: ['gggg']}
root_causes:
  - {id: bad_gpu, signatures: [xid_31], verdict: infrastructure, needs_operator: true, when: {reported_by: kernel}}
  - {id: bad_link, signatures: [gpu_lost], verdict: infrastructure, needs_operator: true,
     when: {match: aer_corrected}, supported_by: [{match: nfs_stalled}]}
""")


def diagnosed(*matches: Match) -> dict[str, Diagnosis]:
    """The diagnoses of what settles together, by signature, or by signature and job where several jobs crashed."""
    book = IncidentTracker(CATALOGUE, "node", window=WINDOW, settle=15.0)
    book.add(matches)
    told = book.settle(0.0, lambda _: {}, everything=True)
    return {f"{d.incident.signature}{'@' + d.incident.first.job.id if d.incident.first.job else ''}": d for d in told}


def pod(name: str, seconds: float, **what: object) -> Match:
    """A crash of one of several pods of a node."""
    path = f"/var/log/pods/{name}_train-0_{POD.format(name)}/main/0.log"
    job = Job(id=name, kind="kubernetes", owner="/var/log/pods", confidence="high")
    return match("cuda_fault", seconds, job=job, path=path, shares_node=True, **what)


def test_one_gpus_fault_explains_no_other_jobs_crash() -> None:
    told = diagnosed(
        match("xid_31", 0, source="kernel", gpu=GPU, named_job=f"pod {POD.format('a').replace('-', '')}"),
        pod("a", 0.5),
        pod("b", 12),
        pod("c", 20),
    )
    assert {name: d.role for name, d in told.items()} == {
        "xid_31": "root", "cuda_fault@a": "cascade", "cuda_fault@b": "root", "cuda_fault@c": "root",
    }  # fmt: skip
    assert told["cuda_fault@a"].same_time == ()
    assert [i.signature for i in told["cuda_fault@b"].same_time] == ["xid_31"]


def test_a_gpu_that_both_name_links_them() -> None:
    told = diagnosed(
        match("xid_31", 0, source="kernel", gpu=GPU), pod("a", 1, gpu=GPU), pod("b", 2, gpu=OTHER_GPU), pod("c", 3)
    )
    assert {name: d.role for name, d in told.items()} == {
        "xid_31": "root", "cuda_fault@a": "cascade", "cuda_fault@b": "root", "cuda_fault@c": "root",
    }  # fmt: skip


def test_without_a_link_each_of_five_pods_has_its_own_incident() -> None:
    crashes = [pod(name, number) for number, name in enumerate("abcde")]
    told = diagnosed(match("xid_31", 0, source="kernel", gpu=GPU), *crashes)
    assert sum(d.role == "root" for d in told.values()) == 6


def test_the_only_job_of_a_node_is_linked_without_more() -> None:
    told = diagnosed(match("xid_31", 0, source="kernel", gpu=GPU), match("cuda_fault", 1))
    assert told["cuda_fault@7"].role == "cascade"


def test_a_kernel_line_that_names_another_job_does_not_explain_the_only_one_that_is_known() -> None:
    told = diagnosed(match("xid_31", 0, source="kernel", gpu=GPU, named_job="slurm 8"), match("cuda_fault", 1))
    assert told["cuda_fault@7"].role == "root"


@pytest.mark.parametrize(
    ("named_job", "shares_node", "role"),
    [
        ("slurm 103", False, "cascade"),  # the only log of the node; without hooks its number is not known
        ("slurm 103", True, "root"),
        ("slurm 100_3", True, "cascade"),
    ],
)
def test_an_arrays_task_is_linked_by_its_number_or_as_the_only_job(
    named_job: str, shares_node: bool, role: str
) -> None:
    told = diagnosed(
        match("xid_31", 0, source="kernel", gpu=GPU, named_job=named_job),
        match("cuda_fault", 1, job="100_3", path="/scratch/slurm-100_3.out", shares_node=shares_node),
    )
    assert told["cuda_fault@100_3"].role == role


@pytest.mark.parametrize(("signature", "role"), [("nfs_stalled", "cascade"), ("process_killed", "root")])
def test_what_concerns_the_whole_node_explains_every_job_and_a_killed_process_only_its_own(
    signature: str, role: str
) -> None:
    captures = {"process": "python3"} if signature == "process_killed" else {}
    told = diagnosed(match(signature, 0, source="kernel", captures=captures), pod("a", 1))
    assert told["cuda_fault@a"].role == role


@pytest.mark.parametrize("seconds", [-1.0, 1.0])
@pytest.mark.parametrize("signature", ["cuda_fault", "switch_error"])
def test_a_jobs_line_never_makes_a_kernel_line_its_consequence(signature: str, seconds: float) -> None:
    told = diagnosed(match("xid_31", 0, source="kernel", gpu=GPU), match(signature, seconds, gpu=GPU))
    assert (told["xid_31"].role, told["xid_31"].root_cause, told["xid_31"].verdict) == (
        "root", "bad_gpu", "infrastructure",
    )  # fmt: skip


def test_of_a_kernel_and_a_job_line_that_follow_each_other_the_jobs_is_the_consequence() -> None:
    for seconds in (-1.0, 1.0):
        told = diagnosed(match("xid_31", 0, source="kernel", gpu=GPU), match("cuda_fault", seconds))
        assert {name: d.role for name, d in told.items()} == {"xid_31": "root", "cuda_fault@7": "cascade"}


def test_lines_of_another_device_are_not_evidence() -> None:
    aer = match("aer_corrected", 0, source="kernel", captures={"device": "0000:81:00.0"})
    assert diagnosed(aer, match("gpu_lost", 1, gpu=GPU))["gpu_lost@7"].root_cause == "unknown"
    assert diagnosed(aer, match("gpu_lost", 1, gpu="0000:81:00.0"))["gpu_lost@7"].verdict == "infrastructure"


def test_two_jobs_of_one_id_share_nothing() -> None:
    alice, mallory = (Job(id="4242", kind="slurm", owner=f"uid {uid}", confidence="high") for uid in (1001, 1002))
    book = IncidentTracker(CATALOGUE, "node", window=WINDOW, settle=15.0)
    book.add([match("cuda_fault", 1, job=alice), match("switch_error", 0, job=mallory, path="/m/slurm-4242.out")])
    assert [d.role for d in book.settle(0.0, lambda _: {}, everything=True)] == ["root", "root"]
    assert len({incident.scope for incident in book.incidents()}) == 2
