"""Trust in the built-in catalogue: a job line never changes a kernel diagnosis and never drains a node."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.links import split_by_link
from exporter.core.diagnosis.node_faults import fault_of
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import OPERATOR_ACTIONS, Job, Match, Moment, SourceKind
from tests.support.matches import NOW, WINDOW, chunk, entries, match

GPU, OTHER_DEVICE = "0000:3b:00.0", "0000:81:00.0"
MOMENT = Moment(time=NOW, boot="boot", boot_seconds=1000.0)


@cache
def catalogue() -> Catalogue:
    return packs.load(whole=True)


def signatures(source: SourceKind) -> list[Signature]:
    return [s for s in catalogue().signatures.values() if source in s.sources]


def of(signature: Signature, source: SourceKind, seconds: float, gpu: str | None = GPU) -> Match:
    """Build a match with the captures of the signature's first example."""
    captures = signature.examples[0].captures if signature.examples else {}
    is_of_gpu = signature.vendor != "any"
    return match(signature.id, seconds, source=source, captures=captures, gpu=gpu if is_of_gpu else None)


def diagnosed(*matches: Match) -> list[Diagnosis]:
    book = IncidentTracker(catalogue(), "node", window=WINDOW, settle=15.0)
    book.add(matches)
    return book.settle(0.0, lambda _: {}, everything=True)


def decision(diagnoses: list[Diagnosis], signature: str) -> tuple[str, str, str, str | None]:
    """Return the decisions about a kernel incident."""
    (found,) = (d for d in diagnoses if d.incident.signature == signature and d.incident.first.source == "kernel")
    return found.role, found.root_cause, found.verdict, found.caused_by


def test_a_job_line_explains_a_kernel_line_only_where_that_tells_no_reason_and_blames_no_card() -> None:
    jobs = entries(*(of(job, "job", 1.0) for job in signatures("job")))
    assert len(jobs) == len(signatures("job"))
    for kernel in signatures("kernel"):
        (entry,) = entries(of(kernel, "kernel", 0))
        for job in jobs:
            is_linked = bool(split_by_link(entry, [job], catalogue(), shares_node=False).linked)
            tells_none = kernel.role == "cascade" or catalogue().follows(kernel.id, job.incident.signature)
            assert is_linked == (kernel.reach == "job" and tells_none), (kernel.id, job.incident.signature)


def test_no_line_of_the_kernel_that_a_program_can_provoke_asks_for_an_operator() -> None:
    by_program = [s for s in signatures("kernel") if s.reach == "job"]
    assert len(by_program) > 30
    for kernel in by_program:
        for example in kernel.examples:
            captures = example.captures
            beside = match(kernel.id, 0, source="kernel", captures=captures, gpu=GPU, raised_by="pid 4242")
            assert [d.action for d in diagnosed(beside) if d.action in OPERATOR_ACTIONS] == [], kernel.id


def test_job_lines_do_not_change_the_diagnosis_of_a_kernel_line() -> None:
    """A few at a time: each line of a job is compared with all others of the same minute."""
    jobs = [of(job, "job", seconds) for job, seconds in zip(signatures("job"), itertools.cycle((-5.0, 5.0)))]
    for kernel in [s for s in signatures("kernel") if s.severity == "critical"]:
        line = of(kernel, "kernel", 0)
        alone = decision(diagnosed(line), kernel.id)
        for first in range(0, len(jobs), 20):
            assert decision(diagnosed(line, *jobs[first : first + 20]), kernel.id) == alone


def test_a_job_line_never_drains_a_node_even_if_another_device_fails() -> None:
    beside = [of(kernel, "kernel", 0, OTHER_DEVICE) for kernel in signatures("kernel")]
    jobs = [
        replace(of(job, "job", 5.0), job=Job(id=str(number), kind="slurm"))
        for number, job in enumerate(signatures("job"))
    ]
    drained = [d for d in diagnosed(*jobs, *beside) if fault_of(d, catalogue(), MOMENT, settled=True)]
    assert drained
    assert [d.incident.signature for d in drained if d.incident.first.source != "kernel"] == []


def test_what_is_about_a_card_or_the_node_follows_no_signature_of_jobs() -> None:
    """Such a rule could never apply."""
    for kernel in signatures("kernel"):
        if kernel.sources == ("kernel",) and kernel.reach == "node":
            for glob in kernel.follows:
                followed = [catalogue().signatures[name] for name in catalogue().matching([glob])]
                assert any("kernel" in s.sources for s in followed), f"{kernel.id} follows {glob}"


FORMS = (
    "{name}[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd1c2b3a40 error 4 in {file}[1136,401000+1000] likely on CPU 3",
    "traps: {name}[4242] trap int3 ip:401136 sp:7ffd1c2b3a40 error:0 in {file}[1136,401000+1000]",
    "{name} (4242): Using mlock ulimits for SHM_HUGETLB is deprecated",
    "{name}: page allocation failure: order:5, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null)",
    "{name} invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
)


@pytest.mark.heavy
@pytest.mark.parametrize("form", FORMS)
def test_a_process_named_like_a_node_fault_is_not_counted(form: str) -> None:
    """A user chooses 15 characters of the process name, and the name of the file in which it crashed."""
    pipeline = Pipeline(catalogue(), window=WINDOW)
    of_processes = {"segfault_user", "gpf_user", "page_alloc_failure", "oom_kill_invoked", "process_segfault"}
    for signature in signatures("kernel"):
        for example in signature.examples:
            first = example.text.partition("\n")[0]
            begins = {0, *(at + 1 for at, character in enumerate(first[:60]) if character in " :")}
            for text in (first[at:] for at in sorted(begins)):
                for name in {text[:15], text.partition(": ")[0][:13] + ": ", text[: text.find(")") + 3][:15]} - {""}:
                    line = form.format(name=name, file=text[len(name) :].rpartition("/")[2] or "x")
                    record = chunk(f"3,1,1,-;{line}\n".encode(), source="kernel", format="kmsg", boot_time=NOW)
                    matched = {match.signature for match in pipeline.process(record).matches} - of_processes
                    trusted = {s for s in matched if catalogue().signatures[s].trust == "kernel"}
                    assert trusted == set(), line


def test_a_harmless_line_before_a_fatal_one_does_not_hide_it() -> None:
    """A user can provoke a GPU page fault. A failure within the next minute still requires an operator."""
    for fatal in signatures("kernel"):
        lone = of(fatal, "kernel", 10)
        asked = [fault_of(d, catalogue(), MOMENT, settled=True) for d in diagnosed(lone)]
        if not any(asked):
            continue
        for harmless in signatures("kernel"):
            if catalogue().follows(fatal.id, harmless.id) and harmless.id != fatal.id:
                diagnoses = diagnosed(of(harmless, "kernel", 0), lone)
                assert any(fault_of(d, catalogue(), MOMENT, settled=True) for d in diagnoses), (fatal.id, harmless.id)
