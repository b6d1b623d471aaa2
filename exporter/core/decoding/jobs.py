"""Whose log a path is: Slurm's file names, Kubernetes' pod folders, or a pattern of the configuration. And whose a process.

Takes a path or a control group as text. Reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Literal

import regex

from exporter.core.model import Job
from exporter.core.patterns import syntax
from exporter.core.patterns.expression import search_in_time

JobOf = Callable[[str], Job | None]
_UID = "uid "  # no folder begins so: paths of logs are absolute, but for a scan's

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
        owner = _folder(path, found.start("namespace"))
        return Job(id=f"{found['namespace']}/{found['pod']}", owner=owner, kind="kubernetes", confidence="high")
    for pattern in _SLURM:
        found = re.search(pattern, path)
        if found:
            confidence: Literal["high", "medium"] = "high" if "slurm" in found[0] else "medium"
            task = found.groupdict().get("task")
            job = f"{found['job']}_{task}" if task else found["job"]  # as sacct names a task of an array
            owner = _folder(path, found.start("job"))
            return Job(id=job, owner=owner, kind="slurm", rank=_rank(path), confidence=confidence)
    return None


def with_owner(job: Job | None, uid: int | None, service_accounts: Container[int]) -> Job | None:
    """The job of a log that belongs to user `uid`: another user's log of the same job id is another job's.

    A service account writes the logs of many users. There the folder that the path names the job in tells them apart,
    as it does where the owner is not known.
    """
    if job is None or uid is None or uid in service_accounts:
        return job
    return replace(job, owner=f"{_UID}{uid}")


def owner_uid(job: Job | None) -> int | None:
    """The user that owns a job's log, where `owned` has found one."""
    uid = job.owner.removeprefix(_UID) if job and job.owner.startswith(_UID) else ""
    return int(uid) if uid.isdecimal() else None


def log_group(job: Job | None, path: str) -> str:
    """What tells a log's job from the others of a node. Logs that name none are one job where they share a folder."""
    return f"job {job.id} of {job.owner}" if job else f"logs in {path.rpartition('/')[0]}"


def _folder(path: str, stop: int) -> str:
    """The folder in which a path names a job, at `stop`: all logs of the job lie below it."""
    return path[:stop].rpartition("/")[0]


# Slurm's plug-ins for cgroup v1 (slurm/uid_1000/job_7/step_0) and v2 (slurmstepd.scope/job_7/step_0), and the kubelet's
# two drivers (pod1b2c-… and kubepods-pod1b2c_….slice). Only the kernel's own hierarchy counts: a user can write neither,
# but for what systemd gives each user below user.slice.
_CGROUP_SLURM = re.compile(
    r"/(?:slurm|[\w.-]*slurmstepd\.scope)[^\n:]{0,200}?/job_(\d{1,10})(?:/|$)",
    re.MULTILINE,
)
_CGROUP_POD = re.compile(
    r"/kubepods[^\n:]{0,300}?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})\b",
    re.MULTILINE,
)


def job_of_cgroup(cgroup: str) -> str | None:
    """The job that `/proc/<pid>/cgroup` places a process in, as `process_job` names the one of a log; None for none."""
    cgroup = "\n".join(line for line in cgroup.splitlines() if "/user.slice/" not in line)
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
    if why := syntax.refusal(pattern):
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
        owner = _folder(path, found.start("job"))
        return Job(id=found["job"], owner=owner, kind="slurm", user=fields.get("user"), rank=rank, confidence="high")

    return find


def no_job(_path: str) -> Job | None:
    """For sources whose logs are no job's."""
    return None


def _rank(path: str) -> str | None:
    found = _RANK.search(path)
    return found["rank"] if found else None
