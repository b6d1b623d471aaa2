"""Links between kernel incidents and jobs: which kernel incidents may explain a job's crash.

A node may run many jobs. A fault of one GPU or one process explains only the jobs that use it. Knows no files or clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.jobs import process_job
from exporter.core.diagnosis.incidents import Entry, gpu_of
from exporter.core.model import Incident


class Nearby(NamedTuple):
    """The incidents close in time: those that may explain an incident, and kernel incidents without a link to its job."""

    linked: list[Entry]
    same_time: list[Entry]


def split_by_link(entry: Entry, nearby: Sequence[Entry], catalogue: Catalogue, *, shares_node: bool) -> Nearby:
    """Split the incidents close in time by whether they may explain this one.

    A job may print anything, so job lines never explain kernel lines. `shares_node`: several jobs are known to run here,
    whatever the matches say.
    """
    incident = entry.incident
    if incident.first.source == "kernel":
        return Nearby([other for other in nearby if other.incident.first.source == "kernel"], [])
    alone = not shares_node and not any(match.shares_node for match in incident.matches)
    found = Nearby([], [])
    for other in nearby:
        is_own = other.incident.scope == incident.scope
        may_explain = is_own or is_linked(incident, other.incident, catalogue, alone=alone)
        (found.linked if may_explain else found.same_time).append(other)
    return found


def is_linked(job: Incident, kernel: Incident, catalogue: Catalogue, *, alone: bool) -> bool:
    """Whether a kernel incident can concern a job.

    It can if it concerns the whole node, the job's GPU or the job's process, or if the job is `alone` on the node.
    """
    gpu = gpu_of(kernel)
    if gpu is not None and gpu == gpu_of(job):
        return True
    if named := {match.named_job for match in kernel.matches if match.named_job}:
        own = job.first.named_job or process_job(job.first.job, job.first.path)
        # Processes of an array's task have a number that its log's name lacks, unless the scheduler's hooks told it.
        is_unsure = own is None or (own.startswith("slurm ") and "_" in own)
        return own in named or (is_unsure and alone)
    # Storage, network and memory faults, which name neither a GPU nor a process, concern every job.
    is_of_gpu = catalogue.signatures[kernel.signature].vendor != "any" or gpu is not None
    return alone or not (is_of_gpu or any("process" in match.captures for match in kernel.matches))
