"""Jobs that use a GPU while their logs are silent."""

from __future__ import annotations

from exporter.core.decoding.jobs import job_of
from exporter.core.model import Job
from exporter.node.silent_jobs import POLL_SECONDS, SilentJobs
from exporter.sources.node_jobs import LastWrite, NodeJobs

START = 1_000_000.0
AFTER = 1800.0


def write(time: float, path: str = "/jobs/slurm-48213.out") -> LastWrite:
    job = job_of(path)
    assert isinstance(job, Job)
    return LastWrite(time=time, job=job, path=path, origin=path, offset=120, line=4)


def seen(*writes: LastWrite) -> NodeJobs:
    jobs = NodeJobs()
    jobs.wrote(writes)
    return jobs


def test_a_job_that_uses_a_gpu_and_writes_nothing_is_told_once() -> None:
    silent, jobs = SilentJobs(START), seen(write(START + 10))
    told = [
        (now, match)
        for now in range(0, 3 * 3600, 30)
        for match in silent.poll(START + now, AFTER, {"slurm 48213"}, jobs.last_writes)
    ]
    [(now, match)] = told
    assert now == 1830
    assert match.signature == "job_silent"
    assert match.text == "gpufault: job 48213 uses a GPU, but its log has been silent for 1820 s"
    assert (match.path, match.line, match.offset, match.time) == ("/jobs/slurm-48213.out", 4, 120, START + 1830)


def test_a_second_silence_is_told_again() -> None:
    silent, jobs = SilentJobs(START), seen(write(START))
    assert len(silent.poll(START + 1900, AFTER, {"slurm 48213"}, jobs.last_writes)) == 1
    jobs.wrote([write(START + 2000)])
    assert not silent.poll(START + 3000, AFTER, {"slurm 48213"}, jobs.last_writes)
    assert len(silent.poll(START + 3900, AFTER, {"slurm 48213"}, jobs.last_writes)) == 1


def test_what_uses_no_gpu_has_no_log_or_was_silent_before_the_start_is_not_told() -> None:
    silent = SilentJobs(START)
    jobs = seen(write(START - 4000), write(START, "/jobs/slurm-7.out"))
    later = START + 1900
    assert not silent.poll(later, AFTER, {"slurm 48213", "slurm 9"}, jobs.last_writes)
    assert not SilentJobs(START).poll(later, None, {"slurm 7"}, jobs.last_writes)
    assert not SilentJobs(START).poll(float("inf"), AFTER, {"slurm 7"}, jobs.last_writes)
    assert len(SilentJobs(START).poll(later, AFTER, {"slurm 7"}, jobs.last_writes)) == 1


def test_the_latest_of_a_jobs_logs_counts() -> None:
    path = "/var/log/pods/team_train-0_0b9d8a3e-6c57-4e28-9b40-5b0f6a1d2c33/main/0.log"
    jobs = seen(write(START), write(START + 500), write(START + 100), write(START, path))
    assert {name: last.time for name, last in jobs.last_writes.items()} == {
        "slurm 48213": START + 500,
        "pod 0b9d8a3e6c574e289b405b0f6a1d2c33": START,
    }


def test_looks_rest() -> None:
    silent, jobs = SilentJobs(START), seen(write(START))
    assert not silent.poll(START + POLL_SECONDS / 2, 1.0, {"slurm 48213"}, jobs.last_writes)
    assert silent.poll(START + POLL_SECONDS, 1.0, {"slurm 48213"}, jobs.last_writes)
