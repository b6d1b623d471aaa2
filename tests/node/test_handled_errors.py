"""Which errors a program survived."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis.incidents import condense
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import Incident, Job, Match
from exporter.node.job_ends import HandledErrors
from tests.support.matches import NOW, WINDOW, chunk, match

ENDED_WELL = NodeJob(raw_id="7", id="7", ended=NOW, exit_code=0, signal=0)
FAILED = NodeJob(raw_id="7", id="7", ended=NOW, exit_code=1, signal=0)
RUNNING = NodeJob(raw_id="7", id="7")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load()


def incident(signature: str, **what: Any) -> Incident:
    (found,) = condense([match(signature, **what)], WINDOW)
    return found


def is_handled(
    catalogue: Catalogue,
    error: Incident,
    job: NodeJob | None,
    others: Iterable[Incident] = (),
    *,
    went_on: bool = False,
) -> bool:
    handled = HandledErrors(catalogue, lambda _: job, lambda _: went_on, lambda: [error, *others])
    return handled(error)


OOM = incident("torch_oom")
XID_43 = incident("nv_xid_43_channel_stopped", source="kernel", raised_by="pid 5", gpu="0000:3b:00.0")
GONE = incident("nv_xid_79_fallen_off_bus", source="kernel", gpu="0000:3b:00.0")


@pytest.mark.parametrize("error", [OOM, XID_43, incident("unrecognised_crash"), incident("nccl_watchdog_timeout")])
def test_a_job_that_ended_with_exit_code_0_handled_its_errors(catalogue: Catalogue, error: Incident) -> None:
    assert is_handled(catalogue, error, ENDED_WELL)
    assert not is_handled(catalogue, error, FAILED)
    assert not is_handled(catalogue, error, None)


@pytest.mark.parametrize("death", ["shell_signal_exit", "oom_kill_cgroup", "segfault_user", "process_segfault"])
def test_a_signal_or_an_oom_kill_is_told_although_the_script_ended_well(catalogue: Catalogue, death: str) -> None:
    of_kernel = catalogue.signatures[death].sources == ("kernel",)
    died = incident(death, source="kernel" if of_kernel else "job", seconds=2)
    assert not is_handled(catalogue, died, ENDED_WELL)
    assert not is_handled(catalogue, OOM, ENDED_WELL, [died])


def test_a_death_that_only_the_time_gives_to_a_job_does_not_outweigh_its_exit_code(catalogue: Catalogue) -> None:
    of_time = Job(id="7", kind="slurm", method="time")
    died = incident("segfault_user", source="kernel", raised_by="pid 5", claims=(of_time,))
    assert [is_handled(catalogue, died, job) for job in (ENDED_WELL, FAILED, RUNNING, None)] == [
        True,
        False,
        False,
        False,
    ]
    assert is_handled(catalogue, OOM, ENDED_WELL, [died])
    assert is_handled(catalogue, OOM, RUNNING, [died], went_on=True)


def test_an_uncaught_exception_of_cpp_is_the_death_of_a_process(catalogue: Catalogue) -> None:
    aborted = incident("unrecognised_crash", captures={"kind": "c++"}, seconds=2)
    assert not is_handled(catalogue, OOM, ENDED_WELL, [aborted])


def test_a_card_that_broke_is_not_handled_by_any_job(catalogue: Catalogue) -> None:
    assert not is_handled(catalogue, GONE, ENDED_WELL)


def test_without_an_exit_code_the_log_decides(catalogue: Catalogue) -> None:
    for job in (None, RUNNING):
        assert is_handled(catalogue, OOM, job, went_on=True)
        assert not is_handled(catalogue, OOM, job, went_on=False)
    assert not is_handled(catalogue, OOM, FAILED, went_on=True)
    assert not is_handled(catalogue, incident("torch_elastic_child_failed"), None, went_on=True)


DEBUGGERS = [
    "========= Invalid __global__ write of size 4 bytes",
    "========= Fatal UVM GPU fault of type invalid pde due to invalid address",
    '========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaMalloc.',
    "========= Misaligned Shared or Local Address",
    "CUDA Exception: Warp Illegal Address",
    "CUDA Exception: Warp Misaligned Address",
    'Thread 1 "heat" received signal CUDA_EXCEPTION_14, Warp Illegal Address.',
    'Thread 1 "heat" received signal CUDA_EXCEPTION_4, Warp Illegal Instruction.',
    "warning: Cuda API error detected: cudaDeviceSynchronize returned (0x2bc)",
    "warning: Cuda API error detected: cudaMalloc returned (0x2)",
]


@pytest.mark.parametrize("line", DEBUGGERS)
def test_what_a_debugger_or_sanitizer_reports_is_a_crash_only_by_the_exit_code(catalogue: Catalogue, line: str) -> None:
    (found,) = Pipeline(catalogue).process(chunk(f"{line}\n".encode())).matches
    (reported,) = condense([found], WINDOW)
    assert [is_handled(catalogue, reported, job) for job in (None, RUNNING, ENDED_WELL, FAILED)] == [
        True,
        True,
        True,
        False,
    ]
    of_program = match(found.signature, seconds=1)
    for both in condense([found, of_program], WINDOW):
        assert is_handled(catalogue, both, None) == (of_program not in both.matches)


def test_where_the_kernel_stopped_a_process_the_log_of_other_ranks_decides_nothing(catalogue: Catalogue) -> None:
    assert not is_handled(catalogue, OOM, RUNNING, [XID_43], went_on=True)
    of_rank: Match = match("torch_oom", rank="3")
    assert not is_handled(catalogue, condense([of_rank], WINDOW)[0], None, went_on=True)
