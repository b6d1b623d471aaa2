"""Jobs of logs and processes: from Slurm's file names, Kubernetes' pod folders, configured patterns and control groups.

Takes text only; reads no files.
"""

import re
from collections.abc import Callable, Container
from typing import Literal

from exporter.core.decoding.cgroups import bare_uid, job_of_process
from exporter.core.model import Job
from exporter.core.patterns import syntax
from exporter.core.patterns.expression import search_in_time
from exporter.core.values import replace

JobOf = Callable[[str], Job | None]
_UID = "uid "  # not the start of a folder: paths are absolute, but in scans

# A task of an array, a component of a heterogeneous job, a step.
_DIGITS = r"(?P<job>\d{1,10})(?:_(?P<task>\d{1,7}))?(?:\+\d{1,7})?(?:\.(?P<step>\d{1,7}))?"
_DATE = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|1[4-9]\d{8}")  # or Unix seconds
# slurm-%j.out and slurm-%A_%a.out are sbatch's defaults; the others are common at sites and in launchers (NVRx's list).
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
# What one owner runs: the tasks of an array; the pods of a job, a set or a deployment, whose names end in an index or hash.
_ARRAY_TASK = re.compile(r"([0-9]+)(?:_[0-9]+|\[[0-9]+\]).*")
_POD_OF_OWNER = re.compile(r"(.+/.+?)(?:-[0-9]+)*(?:-[a-z0-9]+)?")
_RANK = re.compile(r"(?:^|[/_.-])(?:rank|local_rank|task|proc)[_.-]?(?P<rank>\d{1,6})(?=[/_.-]|$)")


def job_of(path: str) -> Job | None:
    """The job in a path by the conventions of Slurm and Kubernetes, or None."""
    match = _KUBERNETES.search(path)
    if match:
        owner = _folder(path, match.start("namespace"))
        return Job(
            id=f"{match['namespace']}/{match['pod']}", owner=owner, kind="kubernetes", confidence="high",
            pod_uid=match["uid"], container=match["container"], restart=match["restart"],
        )  # fmt: skip
    for pattern in _SLURM:
        match = re.search(pattern, path)
        if match:
            confidence: Literal["high", "medium"] = "high" if "slurm" in match[0] else "medium"
            if confidence == "medium" and _DATE.fullmatch(match["job"]):
                continue
            groups = match.groupdict()
            job = f"{match['job']}_{groups['task']}" if groups.get("task") else match["job"]  # as in sacct
            owner = _folder(path, match.start("job"))
            return Job(
                id=job, owner=owner, kind="slurm", rank=_rank(path), confidence=confidence, step=groups.get("step")
            )
    return None


def party(job: str) -> str:
    """The id of what a job belongs to: an array for its tasks, the workload for its pods, else the job itself. As in the
    rules for pages.
    """
    match = _ARRAY_TASK.fullmatch(job) or _POD_OF_OWNER.fullmatch(job)
    return match[1] if match else job


def with_owner(job: Job | None, uid: int | None, service_accounts: Container[int]) -> Job | None:
    """The job of a log of user `uid`: two users' logs with one job id are two jobs.

    A service account writes the logs of many users. Its logs, and those of unknown owners, are distinguished by folder.
    """
    if job is None or uid is None or uid in service_accounts:
        return job
    return replace(job, owner=f"{_UID}{uid}")


def owner_uid(job: Job | None) -> int | None:
    """The user set by `with_owner`, or None."""
    uid = job.owner.removeprefix(_UID) if job and job.owner.startswith(_UID) else ""
    return int(uid) if uid.isdecimal() else None


def log_group(job: Job | None, path: str) -> str:
    """The name of a log's job on this node. Logs without a job are grouped by folder."""
    return f"job {job.id} of {job.owner}" if job else f"logs in {path.rpartition('/')[0]}"


def _folder(path: str, stop: int) -> str:
    """The folder of the path part at `stop`, which contains all logs of the job."""
    return path[:stop].rpartition("/")[0]


def job_of_cgroup(cgroup: str) -> str | None:
    """The job of a process from `/proc/<pid>/cgroup`, named as by `process_job`, or None."""
    job = job_of_process(cgroup)
    return job.name if job else None


def process_job(job: Job | None, path: str) -> str | None:
    """The name of a log's job in the control groups of its processes."""
    if job is None:
        return None
    if match := _KUBERNETES.search(path):
        return f"pod {bare_uid(match['uid'])}"
    return f"slurm {job.id}" if job.kind == "slurm" else None


def by_pattern(pattern: str) -> JobOf:
    """A finder from the configuration's own pattern with the groups `job` and, if wanted, `user` and `rank`.

    Users choose the file names: a search that takes too long finds no job. Raises ValueError for an invalid pattern.
    """
    if why := syntax.refusal(pattern):
        raise ValueError(why)
    import regex  # takes 12 ms

    compiled = regex.compile(pattern, regex.VERSION0)
    if "job" not in compiled.groupindex:
        raise ValueError("missing group (?P<job>…); add one for the job's id")

    def find(path: str) -> Job | None:
        try:
            match = search_in_time(compiled, path)
        except TimeoutError:
            return None
        if not match or not match["job"]:
            return None
        fields = match.groupdict()
        rank = fields.get("rank") or _rank(path)
        owner = _folder(path, match.start("job"))
        return Job(id=match["job"], owner=owner, kind="slurm", user=fields.get("user"), rank=rank, confidence="high")

    return find


def no_job(_path: str) -> Job | None:
    """The finder for sources without jobs."""
    return None


def _rank(path: str) -> str | None:
    match = _RANK.search(path)
    return match["rank"] if match else None
