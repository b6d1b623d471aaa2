"""Which kernel incidents may explain a job's crash: those that something links to the job, not all of the same minute.

A node may run many jobs. A fault of one GPU, or of one process, explains only the jobs that use it. Knows no files and
no clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.jobs import process_job
from exporter.core.diagnosis.incidents import Entry, gpu_of
from exporter.core.model import Incident


class Near(NamedTuple):
    """What is near an incident in time: what may explain it, and kernel incidents that nothing links to its job."""

    linked: list[Entry]
    same_time: list[Entry]


def split(entry: Entry, near: Sequence[Entry], catalogue: Catalogue, *, shares_node: bool) -> Near:
    """Sort what is near in time by whether it may explain an incident.

    A job may write anything, so nothing that a job says explains what the kernel says. `shares_node`: several jobs are
    known to be about, whatever the matches say.
    """
    incident = entry.incident
    if incident.first.source == "kernel":
        return Near([other for other in near if other.incident.first.source == "kernel"], [])
    alone = not shares_node and not any(match.shares_node for match in incident.matches)
    found = Near([], [])
    for other in near:
        is_own = other.incident.scope == incident.scope
        is_linked = is_own or linked(incident, other.incident, catalogue, alone=alone)
        (found.linked if is_linked else found.same_time).append(other)
    return found


def linked(job: Incident, kernel: Incident, catalogue: Catalogue, *, alone: bool) -> bool:
    """Whether a kernel incident can be about a job: it is about the whole node, about a GPU that the job names, about a
    process of the job, or the job is `alone`, so that there is no other that it could be about.
    """
    gpu = gpu_of(kernel)
    if gpu is not None and gpu == gpu_of(job):
        return True
    if named := {match.named_job for match in kernel.matches if match.named_job}:
        own = process_job(job.first.job, job.first.path)
        return own in named if own else alone
    return alone or _is_about_the_node(kernel, catalogue)


def _is_about_the_node(kernel: Incident, catalogue: Catalogue) -> bool:
    """Whether it names neither a GPU nor a process: storage, network and memory are every job's."""
    is_of_gpu = catalogue.signatures[kernel.signature].vendor != "any" or gpu_of(kernel) is not None
    return not is_of_gpu and not any("process" in match.captures for match in kernel.matches)
