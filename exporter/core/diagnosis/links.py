"""Links: which incidents close in time may explain each other, and which of two may be the consequence.

A node runs many jobs. A line of the kernel follows another only if they share the process, the job or a card that is
itself broken; and a job's crash is explained by the kernel only if the kernel means that job. Knows no files or clocks.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.jobs import process_job
from exporter.core.diagnosis.incidents import are_of_two_runs, device_of, gpu_of, jobs_of
from exporter.core.diagnosis.open_incidents import Entry
from exporter.core.matching.raising import pid_in
from exporter.core.model import Incident

# A job's line may have a stamp in whole seconds, and printk's clock drifts against the wall clock.
CLOCKS_DIFFER_SECONDS = 2.0
REPORT_SECONDS = 5.0  # of one report of the kernel's, as of an OOM kill with its list of processes on a slow console

_WAITED = re.compile(r"\bTimeout after (\d{1,3})s of waiting\b")  # Xid 119


class Nearby(NamedTuple):
    """The incidents close in time: those that may explain an incident, and kernel incidents without a link to its job."""

    linked: list[Entry]
    same_time: list[Entry]


def split_by_link(entry: Entry, nearby: Sequence[Entry], catalogue: Catalogue, *, shares_node: bool) -> Nearby:
    """Split the incidents close in time by whether they may explain this one.

    `shares_node`: several jobs are known to run here, whatever the matches say.
    """
    incident = entry.incident
    if incident.first.source == "kernel":
        return Nearby([e for e in nearby if _concerns_kernel(incident, e.incident, catalogue, shares_node)], [])
    split = Nearby([], [])
    for other in nearby:
        if are_of_two_runs(incident, other.incident):
            continue
        is_own = other.incident.scope == incident.scope
        may_explain = is_own or is_linked(incident, other.incident, catalogue, shares_node=shares_node)
        (split.linked if may_explain else split.same_time).append(other)
    return split


def comes_first(cause: Incident, consequence: Incident, *, second_view: bool = False) -> bool:
    """Whether an incident may be the cause of another by their times: nothing follows what has not happened yet.

    The kernel writes its lines in order. Lines of one job do not tell an order: streams are buffered, and ranks
    print side by side. second_view: the consequence is one of another line of the same report, which may begin with it.
    """
    if cause.first.source == consequence.first.source == "kernel":
        began = cause.first.time - _waited(cause)
        return began <= consequence.first.time + (REPORT_SECONDS if second_view else 0.0)
    if cause.scope == consequence.scope:
        return True
    # A line without a stamp of its own is younger than the stamp before it, and older than its reading.
    earliest = cause.first.time if cause.first.is_stamped else 0.0
    latest = consequence.first.time if consequence.first.time_source == "log" else consequence.first.latest
    return earliest <= latest + CLOCKS_DIFFER_SECONDS


def _waited(incident: Incident) -> float:
    """For how many seconds the driver had waited before it reported a fault: so long before it began."""
    wait = _WAITED.search(incident.first.captures.get("message", ""))
    return float(wait[1]) if wait else 0.0


def is_of_process(incident: Incident, catalogue: Catalogue) -> bool:
    """Whether a kernel incident is one process's own: a user's program can provoke it."""
    return incident.first.source == "kernel" and catalogue.signatures[incident.signature].reach == "job"


def may_follow_jobs(kernel: Incident, signature: str, catalogue: Catalogue) -> bool:
    """Whether a kernel incident may be the consequence of what a job's log says.

    A job may print anything. So only what a user's program can provoke may, and of that what tells no reason, as Xid 43,
    or what its signature names: the runtime's own report of the same page fault.
    """
    gives_no_reason = catalogue.signatures[kernel.signature].role == "cascade"
    return is_of_process(kernel, catalogue) and (gives_no_reason or catalogue.follows(kernel.signature, signature))


def shares_process(a: Incident, b: Incident) -> bool:
    """Whether one process raised two kernel incidents of one boot."""
    if not a.raised_by or not b.raised_by or a.scope != b.scope:
        return False
    return a.raised_by == b.raised_by or pid_in(a.raised_by) == pid_in(b.raised_by) is not None


def _concerns_kernel(incident: Incident, other: Incident, catalogue: Catalogue, shares_node: bool) -> bool:
    """Whether a kernel incident and another may explain each other."""
    if other.first.source == "job":
        if not may_follow_jobs(incident, other.signature, catalogue):
            return False
        return is_linked(other, incident, catalogue, shares_node=shares_node)
    if shares_process(incident, other):
        return True
    if not jobs_of(incident).isdisjoint(jobs_of(other)):
        return True
    of_process = [is_of_process(one, catalogue) for one in (incident, other)]
    if all(of_process):
        return False  # of two processes, or of one that nothing names
    if not any(of_process):
        return True
    process, node = (incident, other) if of_process[0] else (other, incident)
    card, own = device_of(node), gpu_of(process)
    # A GPU's driver does not name the GPU in each line; a CPU's fault concerns none.
    return card is None or card == own or (own is None and catalogue.signatures[process.signature].vendor != "any")


def is_linked(job: Incident, kernel: Incident, catalogue: Catalogue, *, shares_node: bool) -> bool:
    """Whether a kernel incident can concern a job.

    It can if it names the job's process; if it is about the whole node, or a card that the job uses; or if the job is
    alone on the node.
    """
    alone = not shares_node and not any(match.shares_node for match in job.matches)
    of_process = is_of_process(kernel, catalogue)
    gpu = gpu_of(kernel)
    if gpu is not None and gpu == gpu_of(job) and not of_process:
        return True
    if named := jobs_of(kernel):
        own = job.first.named_job or process_job(job.first.job, job.first.path)
        # Processes of an array's task have a number that its log's name lacks, unless the scheduler's hooks told it.
        is_unsure = own is None or (own.startswith("slurm ") and "_" in own)
        return own in named or (is_unsure and alone)
    if of_process:
        return alone or names_process(job, kernel)
    # Storage, network and memory faults, which name neither a GPU nor a process, concern every job.
    is_of_gpu = catalogue.signatures[kernel.signature].vendor != "any" or gpu is not None
    return alone or not (is_of_gpu or any("process" in match.captures for match in kernel.matches))


def names_process(job: Incident, kernel: Incident) -> bool:
    """Whether a job's log reports the end of the very process that the kernel names, by its pid."""
    pid = pid_in(kernel.raised_by)
    if pid is None or not any(match.captures.get("pid") == pid for match in job.matches):
        return False
    users = {match.captures["uid"] for match in kernel.matches if "uid" in match.captures}
    return not users or job.first.uid is None or str(job.first.uid) in users
