"""The built-in catalogue and who may decide what: no job's line takes anything from the kernel's, or drains a node."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from exporter import packs
from exporter.core.casebook import Casebook
from exporter.core.faults import fault_of
from exporter.core.knowledge import Signature
from exporter.core.links import split
from exporter.core.model import Diagnosis, Job, Match, Moment, SourceKind
from tests.helpers import NOW, WINDOW, entries, match

GPU, OTHER_DEVICE = "0000:3b:00.0", "0000:81:00.0"
CATALOGUE = packs.load(whole=True)
MOMENT = Moment(time=NOW, boot="boot", boot_seconds=1000.0)


def signatures(source: SourceKind) -> list[Signature]:
    return [s for s in CATALOGUE.signatures.values() if source in s.sources]


def of(signature: Signature, source: SourceKind, seconds: float, gpu: str | None = GPU) -> Match:
    """A match as its first example gives it."""
    captures = signature.examples[0].captures if signature.examples else {}
    is_of_gpu = signature.vendor != "any"
    return match(signature.id, seconds, source=source, captures=captures, gpu=gpu if is_of_gpu else None)


def diagnosed(*matches: Match) -> list[Diagnosis]:
    book = Casebook(CATALOGUE, "node", window=WINDOW, settle=15.0)
    book.add(matches)
    return book.settle(0.0, lambda _: {}, everything=True)


def word(told: list[Diagnosis], signature: str) -> tuple[str, str, str, str | None]:
    """What was decided of a kernel incident."""
    (found,) = (d for d in told if d.incident.signature == signature and d.incident.first.source == "kernel")
    return found.role, found.root_cause, found.verdict, found.caused_by


def test_no_line_of_a_job_may_explain_a_kernel_line() -> None:
    jobs = entries(*(of(job, "job", 1.0) for job in signatures("job")))
    assert len(jobs) == len(signatures("job"))
    for kernel in signatures("kernel"):
        (entry,) = entries(of(kernel, "kernel", 0))
        for job in jobs:
            assert split(entry, [job], CATALOGUE, shares_node=False).linked == [], (kernel.id, job.incident.signature)


@pytest.mark.parametrize("kernel", [s for s in signatures("kernel") if s.severity == "critical"], ids=lambda s: s.id)
def test_nothing_that_jobs_say_changes_what_is_made_of_a_kernel_line(kernel: Signature) -> None:
    alone = word(diagnosed(of(kernel, "kernel", 0)), kernel.id)
    jobs = [of(job, "job", seconds) for job, seconds in zip(signatures("job"), itertools.cycle((-5.0, 5.0)))]
    assert word(diagnosed(of(kernel, "kernel", 0), *jobs), kernel.id) == alone


def test_no_line_of_a_job_drains_a_node_whatever_the_kernel_says_of_another_device() -> None:
    beside = [of(kernel, "kernel", 0, OTHER_DEVICE) for kernel in signatures("kernel")]
    jobs = [
        replace(of(job, "job", 5.0), job=Job(id=str(number), kind="slurm"))
        for number, job in enumerate(signatures("job"))
    ]
    drained = [d for d in diagnosed(*jobs, *beside) if fault_of(d, CATALOGUE, MOMENT, settled=True)]
    assert drained
    assert [d.incident.signature for d in drained if d.incident.first.source != "kernel"] == []


def test_a_signature_of_the_kernel_alone_follows_none_of_jobs_alone() -> None:
    """It would never do so."""
    for kernel in signatures("kernel"):
        if kernel.sources == ("kernel",):
            for glob in kernel.follows:
                followed = [CATALOGUE.signatures[name] for name in CATALOGUE.matching([glob])]
                assert any("kernel" in s.sources for s in followed), f"{kernel.id} follows {glob}"
