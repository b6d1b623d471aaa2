"""What follows what, over all pairs of built-in signatures and all kinds of links.

A line of the kernel follows another only if they share the process, the job or a card that is itself broken, and nothing
follows what has not happened yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.config import packs
from exporter.core.catalogue.pack_types import Signature
from exporter.core.diagnosis.diagnose import root_of
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.links import REPORT_SECONDS, split_by_link
from exporter.core.diagnosis.open_incidents import Entry, OpenIncidents
from exporter.core.model import Match
from tests.support.matches import WINDOW, match

GPU, OTHER_GPU = "0000:3b:00.0", "0000:81:00.0"
CATALOGUE = packs.load()
KERNEL = [s for s in CATALOGUE.signatures.values() if "kernel" in s.sources and s.role != "context"]
JOB = [s for s in CATALOGUE.signatures.values() if s.sources == ("job",) and s.role != "context"]


def follows(consequence: Match, cause: Match) -> bool:
    """Whether one of two incidents that are alone on a node of several jobs is a consequence of the other."""
    found = OpenIncidents(WINDOW)
    for incident in condense([consequence, cause], WINDOW):
        found.join(incident)
    entries = {entry.incident.first.text: entry for entry in found}
    if len(entries) < 2:  # one incident
        return True
    entry: Entry = entries[consequence.text]
    near = split_by_link(entry, found.nearby(entry), CATALOGUE, shares_node=True)
    root = root_of(entry, near.linked, CATALOGUE)
    return root is not None and root.number == entries[cause.text].number


def of(signature: Signature, seconds: float, text: str, **what: Any) -> Match:
    source = "kernel" if signature in KERNEL else "job"
    if source == "kernel" and signature.reach == "node":
        what = {k: v for k, v in what.items() if k == "gpu"}
    return match(signature.id, seconds, source=source, text=text, **what)


def pairs(of_consequence: str, of_cause: str) -> Iterator[tuple[Signature, Signature]]:
    for a in KERNEL:
        for b in KERNEL:
            if (a.reach, b.reach) == (of_consequence, of_cause):
                yield a, b


def test_two_processes_share_nothing_but_their_job() -> None:
    checked = 0
    for a, b in pairs("job", "job"):
        cause = of(b, 0, "cause", gpu=GPU, raised_by="pid 1", named_job="slurm 1")
        assert not follows(of(a, 1, "later", gpu=GPU, raised_by="pid 2", named_job="slurm 2"), cause), (a.id, b.id)
        assert not follows(of(a, 1, "later", gpu=GPU, raised_by="pid 2"), cause), (a.id, b.id)
        assert not follows(of(a, 1, "later", gpu=GPU, raised_by="block 7"), cause), (a.id, b.id)
        if CATALOGUE.follows(a.id, b.id):
            checked += 1
            assert follows(of(a, 1, "later", gpu=GPU, raised_by="pid 1"), cause), (a.id, b.id)
            for gpu in (GPU, OTHER_GPU):  # the ranks of a job
                assert follows(of(a, 1, "later", gpu=gpu, raised_by="pid 2", named_job="slurm 1"), cause), (a.id, b.id)
    assert checked > 50


@pytest.mark.heavy
def test_a_process_follows_its_own_card_and_no_other() -> None:
    checked = 0
    for a, b in pairs("job", "node"):
        later = of(a, 1, "later", gpu=GPU, raised_by="pid 1", named_job="slurm 1")
        assert not follows(later, of(b, 0, "cause", gpu=OTHER_GPU)), (a.id, b.id)
        if CATALOGUE.follows(a.id, b.id):
            checked += 1
            assert follows(later, of(b, 0, "cause", gpu=GPU)), (a.id, b.id)
    assert checked > 100


def test_a_process_without_a_card_follows_no_card() -> None:
    for a in (CATALOGUE.signatures[name] for name in ("segfault_user", "gpf_user", "oom_kill_cgroup")):
        for b in (s for s in KERNEL if s.vendor != "any"):
            later = of(a, 1, "later", gpu=None, raised_by="pid 1")
            cause = of(b, 0, "cause", gpu=GPU, raised_by="pid 2", named_job="slurm 1")
            assert not follows(later, cause), (a.id, b.id)


@pytest.mark.heavy
def test_no_line_of_the_kernel_follows_its_own_future() -> None:
    for a in KERNEL:
        for b in (s for s in KERNEL if s is not a):  # of one signature they are one incident
            later = of(b, REPORT_SECONDS + 1, "cause", gpu=GPU, raised_by="pid 1", named_job="slurm 1")
            assert not follows(of(a, 0, "first", gpu=GPU, raised_by="pid 1", named_job="slurm 1"), later), (a.id, b.id)


@pytest.mark.heavy
def test_a_jobs_crash_follows_only_the_processes_of_its_job() -> None:
    checked = 0
    for a in JOB:
        for b in (s for s in KERNEL if s.reach == "job"):
            crash = of(a, 1, "later", gpu=GPU, path="/logs/slurm-7.out")
            for others in (
                {"raised_by": "pid 1", "named_job": "slurm 8"},
                {"raised_by": "pid 1"},
                {"raised_by": "block 1"},
            ):
                assert not follows(crash, of(b, 0, "cause", gpu=GPU, **others)), (a.id, b.id)
            own = of(b, 0, "cause", gpu=GPU, raised_by="pid 1", named_job="slurm 7")
            if CATALOGUE.follows(a.id, b.id) and b.role != "cascade":
                checked += 1
                assert follows(crash, own), (a.id, b.id)
            future = of(b, 30, "cause", gpu=GPU, raised_by="pid 1", named_job="slurm 7")
            assert not follows(crash, future), (a.id, b.id)
    assert checked > 100
