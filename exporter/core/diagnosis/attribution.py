"""Attribution: whose job an incident is, from all that names a job for it, and which of these disagree.

The path of a log and the node's own evidence each name a job, with a method and a confidence. The surest one counts. Of
equally sure ones, what a job's user can write counts least. Knows no files or clocks.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from exporter.core.decoding.cgroups import CgroupJob, bare_uid, job_of_group
from exporter.core.model import Confidence, Incident, Job, JobMethod, Match

CONFIDENCES: Final[tuple[Confidence, ...]] = ("high", "medium", "low")
METHODS: Final[tuple[JobMethod, ...]] = (
    "cgroup",
    "pid",
    "path",
    "gpu",
    "owner",
    "header",
    "time",
)  # most trusted first
MAX_CONFLICTS = 4  # told of one incident
# slurmstepd and srun write the job into its own log; so can anybody who writes there.
_OF_SLURM = r"\b(?:slurmstepd|srun)\b.{0,80}?\b(?:JOB |STEP |StepId=|JobId=|job step |step )(?P<job>\d{1,10})\b"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The job of an incident, and the other jobs that were named for it. `job` is None if nothing names one."""

    job: Job | None = None
    conflicts: tuple[Job, ...] = ()


def attribute(incident: Incident) -> Attribution:
    """The job of an incident from all its matches."""
    named: dict[tuple[str, str], Job] = {}
    for match in incident.matches:
        for job in jobs_named_for(match):
            named.setdefault((job.id, job.method), job)
    if not named:
        return Attribution()
    first, *others = sorted(named.values(), key=_rank)
    agreed = [job for job in others if is_same_job(first, job)]
    # A site's own pattern may name jobs as Slurm does not; then a number is only another kind of name.
    comparable = [
        job for job in others if {job.kind, first.kind} != {"slurm"} or has_slurm_id(job) == has_slurm_id(first)
    ]
    conflicts = [job for job in comparable if not is_same_job(first, job)]
    if first.method == "path":
        first = replace(first, confidence=_confidence_of_path(first, agreed=bool(agreed), disputed=bool(conflicts)))
    return Attribution(_completed(first, agreed), tuple(conflicts[:MAX_CONFLICTS]))


def jobs_named_for(match: Match) -> Iterable[Job]:
    """The jobs that the path, the node and the log itself name for a match."""
    if match.job:
        yield match.job
    yield from match.claims
    if match.source == "kernel" and not any(claim.method == "cgroup" for claim in match.claims):
        group = job_of_named_group(match)
        if group and group.kind == "slurm":
            yield Job(id=group.id, kind="slurm", method="cgroup", confidence="high", raw_id=group.id, step=group.step)
        elif group:
            yield Job(
                id=f"pod {group.id}", kind="kubernetes", method="cgroup", confidence="high", pod_uid=group.id,
                container=group.container,
            )  # fmt: skip
    if match.source == "job" and (header := job_of_header(match)):
        yield header


def job_of_named_group(match: Match) -> CgroupJob | None:
    """The job of the control group in a kernel line, as of an OOM kill.

    A user may name a group of a session so that the line seems to go on with another group: then none counts.
    """
    group = match.captures.get("cgroup", "")
    return job_of_group(group) if match.text.count("task_memcg=") <= 1 else None


def job_of_header(match: Match) -> Job | None:
    """The job that a log names in its own text: in an environment dump or a line of Slurm's."""
    is_of_slurm = "slurmstepd" in match.text or "srun" in match.text
    slurm_line = re.search(_OF_SLURM, match.text) if is_of_slurm else None
    number = slurm_line["job"] if slurm_line else match.context.facts.get("env.SLURM_JOB_ID", "")
    return Job(id=number, kind="slurm", method="header") if re.fullmatch(r"\d{1,10}", number) else None


def has_slurm_id(job: Job) -> bool:
    """Whether a job is named by Slurm's number, such as 103 or 100_3."""
    return job.kind == "slurm" and re.fullmatch(r"\d{1,10}(?:_\d{1,7})?", job.id) is not None


def is_same_job(a: Job, b: Job) -> bool:
    """Whether two names are of one job: an array's task has two, and its log may have the array's name."""
    if a.pod_uid and b.pod_uid:
        return bare_uid(a.pod_uid) == bare_uid(b.pod_uid)
    if a.kind != b.kind:
        return False
    if {a.id, a.raw_id} & {b.id, b.raw_id} - {None}:
        return True
    return a.id.partition("_")[0] == b.id or b.id.partition("_")[0] == a.id


def _confidence_of_path(job: Job, *, agreed: bool, disputed: bool) -> Confidence:
    """A path that something else contradicts is less sure by one; one that something else confirms is sure."""
    if disputed:
        return "medium" if job.confidence == "high" else "low"
    return "high" if agreed and job.confidence == "medium" else job.confidence


def _rank(job: Job) -> tuple[int, int, str]:
    return CONFIDENCES.index(job.confidence), METHODS.index(job.method), job.id


def _completed(job: Job, agreed: Iterable[Job]) -> Job:
    """The job with what only others that agree know: its user, account, step and container."""
    for other in agreed:
        missing = {
            name: value
            for name in ("user", "account", "name", "raw_id", "step", "container", "restart", "pod_uid")
            if getattr(job, name) is None and (value := getattr(other, name)) is not None
        }
        job = replace(job, **missing)
    return job
