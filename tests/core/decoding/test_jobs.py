"""Whose log a path is."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from exporter.core.decoding import jobs
from exporter.core.model import Job


@pytest.mark.parametrize(
    ("path", "job", "confidence"),
    [
        ("/home/ada/slurm-123456.out", "123456", "high"),  # sbatch's default
        ("slurm-123456.out", "123456", "high"),
        ("/home/ada/slurm-123456_7.out", "123456_7", "high"),  # a task of an array is a job of its own
        ("/home/ada/slurm-123456_7.rank3.err", "123456_7", "high"),
        ("/home/ada/slurm-123456+1.out", "123456", "high"),  # a component of a heterogeneous job is not
        ("/home/ada/slurm-123456.0.out", "123456", "high"),  # nor a step
        ("/logs/job_123456/stderr.log", "123456", "medium"),
        ("/logs/slurm-123456/rank0.log", "123456", "high"),
        ("/logs/train_job-123456-node3.log", "123456", "medium"),
        ("/logs/llama_123456_date_24-11-01.log", "123456", "medium"),
        ("/logs/llama-70b.123456.err", "123456", "medium"),
        ("/logs/o123456.log", "123456", "medium"),
        ("/home/ada/run.o123456", "123456", "medium"),  # PBS and Grid Engine
    ],
)
def test_slurm_and_those_who_write_like_it_put_the_job_into_the_name(path: str, job: str, confidence: str) -> None:
    found = jobs.job_of(path)
    assert found is not None
    assert (found.id, found.kind, found.confidence) == (job, "slurm", confidence)


def test_kubernetes_puts_the_pod_into_the_path() -> None:
    path = "/var/log/pods/ml_llama-0_0a1b2c3d-0000-4000-8000-0123456789ab/trainer/0.log"
    assert jobs.job_of(path) == Job(
        id="ml/llama-0", owner="/var/log/pods", kind="kubernetes", confidence="high",
        pod_uid="0a1b2c3d-0000-4000-8000-0123456789ab", container="trainer", restart="0",
    )  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/var/log/syslog", "/home/ada/train.log", "/logs/2025-11-20.log", "/logs/loss_1234.csv", "/logs/job.log",
        "/logs/loss.20241101.log", "/logs/run_1732500000.out", "/logs/slurm-.out",
        "/logs/slurm-12345678901.out", "/home/run.o12", "",
    ],
)  # fmt: skip
def test_a_path_without_a_job_has_no_job(path: str) -> None:
    assert jobs.job_of(path) is None


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("/logs/job_123456/rank_3.log", "3"), ("/logs/job_123456/local_rank5/stderr.log", "5"),
        ("/logs/slurm-123456-task7.out", "7"), ("/logs/job_123456/franks_9.log", None),
    ],
)  # fmt: skip
def test_a_path_may_name_the_rank(path: str, rank: str | None) -> None:
    found = jobs.job_of(path)
    assert found is not None
    assert found.rank == rank


def test_a_pattern_of_the_configuration_finds_job_user_and_rank() -> None:
    find = jobs.by_pattern(r"/scratch/(?P<user>\w+)/(?P<job>[\w-]+)/(?:r(?P<rank>\d+))?")
    job = Job(id="exp-7", owner="/scratch/ada", kind="slurm", user="ada", rank="3", confidence="high")
    assert find("/scratch/ada/exp-7/r3.log") == job
    assert find("/scratch/ada/exp-7/rank_5.log") == replace(job, rank="5")
    assert find("/tmp/x.log") is None


ROOT = frozenset({0})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("/home/ada/slurm-42.out", 1001), ("/home/ada/slurm-42.out", 1002)),  # two users
        (("/home/ada/slurm-42.out", 1001), ("/home/ada/slurm-42.out", 0)),
        (("/home/ada/slurm-42.out", 0), ("/home/eve/slurm-42.out", 0)),  # written by a service for two users
        (("/home/ada/slurm-42.out", None), ("/home/eve/slurm-42.out", None)),  # collected elsewhere
    ],
)
def test_logs_that_name_one_job_are_two_jobs_where_owner_or_folder_says_so(
    a: tuple[str, int | None], b: tuple[str, int | None]
) -> None:
    first, second = (jobs.with_owner(jobs.job_of(path), uid, ROOT) for path, uid in (a, b))
    assert first is not None
    assert second is not None
    assert first.id == second.id
    assert first.owner != second.owner


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("/home/ada/slurm-42.out", 1001), ("/scratch/ada/job_42/rank0.log", 1001)),
        (("/logs/slurm-42.out", 0), ("/logs/job_42/deep/rank0.log", 0)),
    ],
)
def test_logs_of_one_owner_that_name_one_job_are_one_job(a: tuple[str, int], b: tuple[str, int]) -> None:
    first, second = (jobs.with_owner(jobs.job_of(path), uid, ROOT) for path, uid in (a, b))
    assert first is not None
    assert second is not None
    assert first.owner == second.owner


def test_a_pattern_that_names_no_job_is_refused() -> None:
    with pytest.raises(ValueError, match="missing group"):
        jobs.by_pattern(r"/scratch/(\d+)")


def test_a_job_that_matched_nothing_is_none() -> None:
    assert jobs.by_pattern(r"x|(?P<job>\d+)")("x") is None


def test_some_logs_are_no_jobs() -> None:
    assert jobs.no_job("/home/ada/slurm-123456.out") is None


POD = "3c1f0d5e-8a2b-4c6d-9e7f-0123456789ab"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_3\n", "slurm 4242"),
        ("0::/system.slice/node7_slurmstepd.scope/job_4242/step_batch/user/task_0\n", "slurm 4242"),
        ("9:memory:/slurm/uid_1000/job_4242/step_0/task_0\n1:name=systemd:/system.slice/sshd.service\n", "slurm 4242"),
        ("9:memory:/slurm_node7/uid_1000/job_4242\n", "slurm 4242"),
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-1.scope\n", "pod"),
        (f"4:memory:/kubepods/burstable/pod{POD}/0a1b2c\n", "pod"),
        ("0::/user.slice/user-1000.slice/session-2.scope/job_4242\n", None),
        ("0::/system.slice/sshd.service\n", None),
        ("", None),
    ],
)
def test_a_control_group_places_a_process_in_its_job(cgroup: str, job: str | None) -> None:
    expected = f"pod {POD.replace('-', '')}" if job == "pod" else job
    assert jobs.job_of_cgroup(cgroup) == expected


def test_a_log_and_the_processes_of_its_job_have_one_name() -> None:
    pod_log = f"/var/log/pods/ml_trainer_{POD}/main/0.log"
    assert jobs.process_job(jobs.job_of("/scratch/slurm-4242.out"), "/scratch/slurm-4242.out") == "slurm 4242"
    assert jobs.process_job(jobs.job_of(pod_log), pod_log) == f"pod {POD.replace('-', '')}"
    assert jobs.process_job(None, "/tmp/x.log") is None


@pytest.mark.parametrize(
    "name",
    [
        "slurm-1" + "-" * 240 + "!.log", "slurm-1" + ".a" * 120 + "!.log", "job1" * 60 + "!.log", "1" * 250 + "!.log",
        "a." * 120 + "!.o123", "pods/" + "a_" * 120, "_1" * 120, "x_" * 120 + "job", "job_1/" * 600, "a/job.1-" * 500,
    ],
)  # fmt: skip
def test_no_name_that_a_user_gives_a_file_takes_long(name: str) -> None:
    start = time.process_time()
    jobs.job_of(f"/logs/{name}")
    assert time.process_time() - start < 1.0  # 1 ms here; a pattern that tries every division takes hours


def test_a_pattern_that_takes_long_on_a_name_finds_no_job() -> None:
    find = jobs.by_pattern(r"/(?P<job>(?:\w+\w+)+)\.log")
    assert find("/job7.log") == Job(id="job7", kind="slurm", confidence="high")
    assert find("/" + "a" * 200 + "!.log") is None


def test_slurms_file_names_have_any_ending() -> None:
    for name in ("slurm-123456-task-7.a.out", "slurm-123456.rank.0.log", "slurm-123456.out"):
        found = jobs.job_of(f"/logs/{name}")
        assert found is not None
        assert found.id == "123456"
