"""Whose job an incident is: which name counts, which others are told, and what a job's user cannot forge."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.core.diagnosis.attribution import attribute, is_same_job
from exporter.core.diagnosis.incidents import condense
from exporter.core.model import Job, LogContext, Match
from tests.support.matches import WINDOW, match

POD = "3c1f0d5e-8a2b-4c6d-9e7f-0123456789ab"


def attributed(*matches: Match) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    """Job, method, and the names that disagree, of the incident of these matches."""
    [incident] = condense(matches, WINDOW)
    found = attribute(incident)
    job = found.job
    return job.id if job else None, job.method if job else None, [(other.id, other.method) for other in found.conflicts]


def named(job: str, method: Any, confidence: Any = "high", **more: Any) -> Job:
    return Job(id=job, kind="slurm", method=method, confidence=confidence, **more)


def kernel(*claims: Job, **captures: str) -> Match:
    return match("xid_31", source="kernel", claims=claims, captures=captures)


def test_an_incident_without_a_name_has_no_job() -> None:
    assert attributed(kernel()) == (None, None, [])
    assert attributed(match("crash", job=None)) == (None, None, [])


def test_the_group_in_the_kernels_line_counts_before_its_process_and_that_before_its_card() -> None:
    claims = [named("9", "gpu"), named("8", "pid"), named("5", "time", "low")]
    assert attributed(kernel(*claims)) == ("8", "pid", [("9", "gpu"), ("5", "time")])
    told = kernel(*claims, cgroup="/system.slice/slurmstepd.scope/job_7/step_0/user/task_0")
    assert attributed(told) == ("7", "cgroup", [("8", "pid"), ("9", "gpu"), ("5", "time")])


def test_a_group_that_a_user_named_like_the_rest_of_the_kernels_line_does_not_count() -> None:
    group = "/slurm/uid_1/job_7"
    text = (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/user-1000.slice/x,task_memcg={group},task=python"
    )
    assert attributed(match("oom", source="kernel", captures={"cgroup": group}, text=text)) == (None, None, [])


def test_a_pod_is_named_by_the_group_in_the_kernels_line() -> None:
    job, method, _ = attributed(kernel(cgroup=f"/kubepods/burstable/pod{POD}/{'ab' * 32}"))
    assert (job, method) == (f"pod {POD.replace('-', '')}", "cgroup")


def test_names_that_agree_are_no_conflict_and_complete_each_other() -> None:
    [incident] = condense(
        [kernel(named("100_3", "gpu", raw_id="103", user="ada"), named("103", "pid", step="0"))], WINDOW
    )
    found = attribute(incident)
    assert found.conflicts == ()
    assert found.job is not None
    assert (found.job.id, found.job.method, found.job.user, found.job.step) == ("103", "pid", "ada", "0")


def test_a_forged_header_loses_against_the_path_and_is_told() -> None:
    context = LogContext(facts={"env.SLURM_JOB_ID": "666"})
    path = named("7", "path")
    assert attributed(match("crash", job=path, context=context)) == ("7", "path", [("666", "header")])
    text = "slurmstepd: error: *** JOB 666 ON gpu-7 CANCELLED AT 2026-01-01T00:00:00 ***"
    assert attributed(match("crash", job=path, text=text)) == ("7", "path", [("666", "header")])


def test_a_forged_path_loses_against_the_owner_and_is_told() -> None:
    forged = match("crash", job=named("7", "path", "low"), claims=(named("9", "owner", "medium"),))
    assert attributed(forged) == ("9", "owner", [("7", "path")])


def test_a_number_in_the_text_does_not_contradict_a_name_by_a_sites_pattern() -> None:
    context = LogContext(facts={"env.SLURM_JOB_ID": "666"})
    assert attributed(match("crash", job=named("exp-7", "path"), context=context)) == ("exp-7", "path", [])


@pytest.mark.parametrize(
    ("path", "header", "confidence"),
    [
        ("high", "7", "high"),
        ("high", "8", "medium"),
        ("medium", "7", "high"),
        ("medium", "8", "low"),
        ("low", "7", "low"),
    ],
)
def test_a_header_that_agrees_makes_a_path_surer_and_one_that_differs_less_sure(
    path: Any, header: str, confidence: str
) -> None:
    context = LogContext(facts={"env.SLURM_JOB_ID": header})
    [incident] = condense([match("crash", job=named("7", "path", path), context=context)], WINDOW)
    job = attribute(incident).job
    assert job is not None
    assert (job.id, job.confidence) == ("7", confidence)


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("slurmstepd: error: Detected 3 oom-kill event(s) in StepId=4242.batch. Some of your processes", "4242"),
        ("slurmstepd-gpu-7: error: *** STEP 4242.0 ON gpu-7 CANCELLED AT 2026-01-01T00:00:00 ***", "4242"),
        ("srun: Terminating StepId=4242.0", "4242"),
        ("Terminating StepId=4242.0", None),
        ("step 4242 of 10000: loss 0.3", None),
    ],
)
def test_a_log_that_slurm_writes_to_names_its_job(text: str, job: str | None) -> None:
    assert attributed(match("crash", job=None, text=text))[0] == job


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (Job(id="7", kind="slurm"), Job(id="7", kind="slurm"), True),
        (Job(id="7", kind="slurm"), Job(id="8", kind="slurm"), False),
        (Job(id="100_3", kind="slurm", raw_id="103"), Job(id="103", kind="slurm"), True),
        (Job(id="100_3", kind="slurm"), Job(id="100", kind="slurm"), True),  # slurm-%A.out
        (Job(id="100_3", kind="slurm"), Job(id="100_4", kind="slurm"), False),
        (Job(id="7", kind="slurm"), Job(id="7", kind="kubernetes"), False),
        (
            Job(id="ml/a", kind="kubernetes", pod_uid=POD),
            Job(id="x", kind="kubernetes", pod_uid=POD.replace("-", "")),
            True,
        ),
    ],
)
def test_an_arrays_task_and_a_pod_have_two_names(a: Job, b: Job, same: bool) -> None:
    assert is_same_job(a, b) is same
    assert is_same_job(b, a) is same
