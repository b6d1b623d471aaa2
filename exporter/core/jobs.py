"""Whose log a path is: Slurm's file names, Kubernetes' pod folders, or a pattern of the configuration. And whose a process.

Takes a path or a control group as text. Reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import regex

from exporter.core import patterns
from exporter.core.expression import search_in_time
from exporter.core.model import Job

JobOf = Callable[[str], Job | None]

_DIGITS = r"(?P<job>\d{1,10})(?:_(?P<task>\d{1,7})|[+.]\d{1,7})?"  # a task of an array; a component; a step
# slurm-%j.out and slurm-%A_%a.out are sbatch's defaults; the others are what sites and launchers write (NVRx's list).
_SLURM = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:^|/)slurm-{_DIGITS}(?:[.-][\w.-]+)?\.(?:out|err|log|txt)$",
        r"(?:^|/)(?:job|jobid|slurm)[_.-]?(?P<job>\d{1,10})/",
        r"(?:^|/)(?:[\w.-]*[_.-])?job[_.-]?(?P<job>\d{1,10})[\w.-]*\.(?:out|err|log|txt)$",
        r"_(?P<job>\d{3,10})_date_",
        r"(?:^|[/_.-])(?:[oe])?(?P<job>\d{5,10})\.(?:out|err|log|txt)$",
        r"(?:^|/)[\w.-]+\.[oe](?P<job>\d{3,10})$",
    )
)
_KUBERNETES = re.compile(
    r"/pods/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[0-9a-f-]{32,36})/(?P<container>[^/]+)/(?P<restart>\d+)\.log"
)
_RANK = re.compile(r"(?:^|[/_.-])(?:rank|local_rank|task|proc)[_.-]?(?P<rank>\d{1,6})(?=[/_.-]|$)")


def job_of(path: str) -> Job | None:
    """The job that a path names by the conventions of Slurm and Kubernetes, or None."""
    found = _KUBERNETES.search(path)
    if found:
        return Job(id=f"{found['namespace']}/{found['pod']}", kind="kubernetes", confidence="high")
    for pattern in _SLURM:
        found = re.search(pattern, path)
        if found:
            confidence: Literal["high", "medium"] = "high" if "slurm" in found[0] else "medium"
            task = found.groupdict().get("task")
            job = f"{found['job']}_{task}" if task else found["job"]  # as sacct names a task of an array
            return Job(id=job, kind="slurm", rank=_rank(path), confidence=confidence)
    return None


# Slurm's plug-ins for cgroup v1 (slurm/uid_1000/job_7/step_0) and v2 (slurmstepd.scope/job_7/step_0), and the kubelet's
# two drivers (pod1b2c-… and kubepods-pod1b2c_….slice). Only the kernel's own hierarchy counts: a user can write neither.
_CGROUP_SLURM = re.compile(r"/(?:slurm|[\w.-]*slurmstepd\.scope)[^\n:]{0,200}?/job_(\d{1,10})(?:/|$)", re.MULTILINE)
_CGROUP_POD = re.compile(r"/kubepods[^\n:]{0,300}?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})\b")


def job_of_cgroup(cgroup: str) -> str | None:
    """The job that `/proc/<pid>/cgroup` places a process in, as `process_job` names the one of a log; None for none."""
    if found := _CGROUP_SLURM.search(cgroup):
        return f"slurm {found[1]}"
    if found := _CGROUP_POD.search(cgroup):
        return f"pod {_bare(found[1])}"
    return None


def process_job(job: Job | None, path: str) -> str | None:
    """The name under which the processes of a log's job are known."""
    if job is None:
        return None
    if found := _KUBERNETES.search(path):
        return f"pod {_bare(found['uid'])}"
    return f"slurm {job.id}" if job.kind == "slurm" else None


def _bare(uid: str) -> str:
    return re.sub(r"[-_]", "", uid)


def by_pattern(pattern: str) -> JobOf:
    """A finder from the configuration's own pattern with the groups `job` and, if wanted, `user` and `rank`.

    Users choose the names that it is tried on: one that takes too long is no job's. Raises ValueError for a wrong pattern.
    """
    if why := patterns.refusal(pattern):
        raise ValueError(why)
    compiled = regex.compile(pattern, regex.VERSION0)
    if "job" not in compiled.groupindex:
        raise ValueError("needs a group (?P<job>…) for the job's id")

    def find(path: str) -> Job | None:
        try:
            found = search_in_time(compiled, path)
        except TimeoutError:
            return None
        if not found or not found["job"]:
            return None
        fields = found.groupdict()
        rank = fields.get("rank") or _rank(path)
        return Job(id=found["job"], kind="slurm", user=fields.get("user"), rank=rank, confidence="high")

    return find


def no_job(_path: str) -> Job | None:
    """For sources whose logs are no job's."""
    return None


def _rank(path: str) -> str | None:
    found = _RANK.search(path)
    return found["rank"] if found else None
