"""What a log does behind an error: it goes on, ends well, or its program is started again and crashes once more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.scan.plan import Wanted
from exporter.scan.run import scan

CATALOGUE = packs.load()
REFUSED = "srun: error: Unable to create step for job 417: More processors requested than permitted\n"
OUT_OF_MEMORY = "RuntimeError: CUDA error: out of memory\n"
DIED = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: out of memory\n"
STARTS = "[2026-03-02 03:04:05,678] [INFO] [init.py:12:f] > initializing model parallel cuda seeds on global rank 0, \n"
RESTARTS = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
SUMMARY = "=================== {counts} in 12.31s ===================\n"
WORK = "".join(f"step {step}: loss 0.25\n" for step in range(60))


def diagnoses(folder: Path, *lines: str, name: str = "job.out", workers: int = 1) -> list[Diagnosis]:
    path = folder / name
    path.write_text("".join(lines))
    found = scan([Wanted(str(path))], CATALOGUE, node="n1", facts={}, workers=workers)
    return list(found.diagnoses)


def roots(found: Iterable[Diagnosis]) -> list[tuple[str, int]]:
    return [(d.incident.signature, d.incident.first.line) for d in found if d.role == "root"]


@pytest.mark.parametrize("behind", ["", "\nJob ended at Mon Mar  2 03:04:05 UTC 2026\n", REFUSED])
def test_a_refused_step_with_which_a_log_ends_is_a_crash(tmp_path: Path, behind: str) -> None:
    assert roots(diagnoses(tmp_path, WORK, REFUSED, behind)) == [("slurm_step_refused", 61)]


@pytest.mark.parametrize("behind", [WORK, REFUSED + WORK, "exit code: 0\n", WORK + REFUSED + WORK])
def test_a_refused_step_is_no_crash_if_the_job_goes_on(tmp_path: Path, behind: str) -> None:
    assert diagnoses(tmp_path, REFUSED, behind) == []


def test_a_refused_step_does_not_hide_another_crash(tmp_path: Path) -> None:
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nShapeError: 3 is not 4\n'
    assert roots(diagnoses(tmp_path, REFUSED, traceback)) == [("unrecognised_crash", 4)]
    assert roots(diagnoses(tmp_path, REFUSED, WORK, OUT_OF_MEMORY)) == [("cuda_out_of_memory", 62)]


@pytest.mark.parametrize("counts", ["5 passed", "5 passed, 2 warnings", "7 passed, 1 xfailed"])
@pytest.mark.parametrize("error", [OUT_OF_MEMORY, "========= Invalid __global__ read of size 4 bytes\n"])
def test_a_success_that_ends_a_log_makes_errors_before_it_context(tmp_path: Path, counts: str, error: str) -> None:
    assert diagnoses(tmp_path, WORK, error, SUMMARY.format(counts=counts)) == []


@pytest.mark.parametrize(
    "behind",
    [
        SUMMARY.format(counts="1 failed, 5 passed"),
        SUMMARY.format(counts="5 passed") + OUT_OF_MEMORY,
        SUMMARY.format(counts="5 passed") + "srun: error: n1: task 3: Exited with exit code 1\n",
        "",
    ],
)
def test_another_end_leaves_an_error_a_crash(tmp_path: Path, behind: str) -> None:
    assert roots(diagnoses(tmp_path, OUT_OF_MEMORY, behind)) == [("cuda_out_of_memory", 1)]


@pytest.mark.parametrize("start", [STARTS, RESTARTS, "INFO 03-02 03:04:05 [api.py:1] vLLM API server version 0.8.2\n"])
def test_a_second_start_makes_a_second_crash(tmp_path: Path, start: str) -> None:
    found = diagnoses(tmp_path, start, OUT_OF_MEMORY, DIED, start, WORK, OUT_OF_MEMORY, DIED)
    assert roots(found) == [("cuda_out_of_memory", 2), ("cuda_out_of_memory", 66)]
    assert all(d.caused_by is None or d.role == "cascade" for d in found)


@pytest.mark.parametrize("before", [OUT_OF_MEMORY, WORK])
def test_a_start_behind_no_death_of_a_process_changes_nothing(tmp_path: Path, before: str) -> None:
    """As where one rank prints an error while others start."""
    assert len(roots(diagnoses(tmp_path, before, STARTS, OUT_OF_MEMORY, DIED))) == 1


def test_a_flood_ends_with_the_run_that_printed_it(tmp_path: Path) -> None:
    flood = OUT_OF_MEMORY * 100
    found = diagnoses(tmp_path, flood, DIED, STARTS, flood, DIED)
    assert [(d.incident.first.line, d.incident.lines) for d in found if d.role == "root"] == [(1, 101), (104, 101)]


def test_only_the_last_run_ended_well(tmp_path: Path) -> None:
    found = diagnoses(tmp_path, OUT_OF_MEMORY, DIED, STARTS, OUT_OF_MEMORY, SUMMARY.format(counts="5 passed"))
    assert roots(found) == [("cuda_out_of_memory", 1)]


def test_ranks_that_miss_a_barrier_of_gloo_are_no_timeout_of_nccl(tmp_path: Path) -> None:
    late = "RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 30000 ms\n"
    peer = (
        "[rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
    )
    (found,) = diagnoses(tmp_path, late, peer)
    assert (found.incident.signature, found.incident.captures()["missing"]) == ("gloo_barrier_timeout", "2, 5")
