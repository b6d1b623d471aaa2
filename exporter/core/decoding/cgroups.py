"""The job of a process from its control group: Slurm's and the kubelet's layouts of cgroup v1 and v2.

Takes the text of `/proc/PID/cgroup`, or the path in a line of the kernel. A job may create groups below its own, named
as it likes, so the first part of a path that names a job decides.
"""

import re
from typing import Literal, NamedTuple

MAX_LINES = 64  # cgroup v1 has 14 hierarchies
MAX_PATH = 4096  # characters, as PATH_MAX
MAX_PARTS = 32

# Compiled when first used: most scans see no control group.
# slurm/uid_1000/job_7/step_0/task_0 and slurm_node7/… (v1); slurmstepd.scope/job_7/step_0/user/task_0 (v2)
_SLURM_ROOT = r"slurm(?:_[\w.-]+)?|(?:[\w.-]+_)?slurmstepd\.scope"
_SLURM_JOB = r"job_(\d{1,10})"
_SLURM_UID = r"uid_(\d{1,10})"
_SLURM_STEP = r"step_(\d{1,10}|batch|extern|interactive)(?:\+\d{1,7})?"
_SLURM_TASK = r"task_(\d{1,7})"

_UID = r"(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})"
# The systemd driver: kubepods-burstable-pod1b2c_….slice, in kind kubelet-kubepods-…; without a delegated slice the
# container follows a colon. The cgroupfs driver: pod1b2c-… below kubepods, or below `..` seen from another group.
_POD_SLICE = rf"(?:[\w-]+-)?kubepods(?:-besteffort|-burstable)?-pod{_UID}\.slice(?::(?P<rest>.+))?"
_POD_FOLDER = rf"pod{_UID}"
_POD_ROOT = r"kubepods|besteffort|burstable|\.\."
_CONTAINER = (
    r"(?:(?P<runtime>cri-containerd|crio|docker|cri-o)[-:])?(?P<id>[0-9a-f]{64}|[0-9a-f]{12,63}(?=\.scope))(?:\.scope)?"
)
_RUNTIMES = {"cri-containerd": "containerd", "crio": "cri-o", "cri-o": "cri-o", "docker": "docker"}
_USERS_OWN = "user.slice"  # a user's systemd may create any group here


class CgroupJob(NamedTuple):
    """The job that a control group belongs to. `id`: Slurm's number of the job, or the pod's uid without dashes."""

    kind: Literal["slurm", "kubernetes"]
    id: str
    step: str | None = None
    rank: str | None = None  # of the task on this node
    user: str | None = None  # "uid 1000"
    container: str | None = None  # the container's id
    runtime: str | None = None

    @property
    def name(self) -> str:
        """The name of the job among processes, as `jobs.process_job` gives it."""
        return f"{'slurm' if self.kind == 'slurm' else 'pod'} {self.id}"


def job_of_process(cgroup: str) -> CgroupJob | None:
    """The job in the text of `/proc/PID/cgroup`; None if it has none, or its hierarchies name different jobs."""
    merged_job: CgroupJob | None = None
    for line in cgroup[: MAX_LINES * MAX_PATH].splitlines()[:MAX_LINES]:
        job = job_of_group(line.split(":", 2)[-1])
        if job is None:
            continue
        if merged_job and merged_job.name != job.name:
            return None
        merged_job = job if merged_job is None else _with_more(merged_job, job)
    return merged_job


def job_of_group(path: str) -> CgroupJob | None:
    parts = path[:MAX_PATH].strip("/\n ").split("/")[:MAX_PARTS]
    for index, part in enumerate(parts):
        if part == _USERS_OWN:
            return None
        if re.fullmatch(_SLURM_ROOT, part) and (job := _slurm_job(parts[index + 1 :])):
            return job
        if pod := re.fullmatch(_POD_SLICE, part):
            return _pod(pod["uid"], [pod["rest"]] if pod["rest"] else parts[index + 1 :])
        if index and re.fullmatch(_POD_ROOT, parts[index - 1]) and (pod := re.fullmatch(_POD_FOLDER, part)):
            return _pod(pod["uid"], parts[index + 1 :])
    return None


def bare_uid(uid: str) -> str:
    """A pod's uid without dashes, as systemd's names have underscores instead."""
    return uid.replace("-", "").replace("_", "")


def _slurm_job(parts: list[str]) -> CgroupJob | None:
    """The job in the parts below Slurm's own group: an optional user, the job, its step, `user` in v2, the task."""
    user = re.fullmatch(_SLURM_UID, parts[0]) if parts else None
    rest = iter(parts[1:] if user else parts)
    job = re.fullmatch(_SLURM_JOB, next(rest, ""))
    if job is None:
        return None
    step = re.fullmatch(_SLURM_STEP, next(rest, ""))
    task = re.fullmatch(_SLURM_TASK, next((part for part in rest if part != "user"), "")) if step else None
    return CgroupJob(
        "slurm", job[1], step=step[1] if step else None, rank=task[1] if task else None,
        user=f"uid {user[1]}" if user else None,
    )  # fmt: skip


def _pod(uid: str, below: list[str]) -> CgroupJob:
    match = re.fullmatch(_CONTAINER, below[0]) if below else None
    runtime = _RUNTIMES.get(match["runtime"] or "") if match else None
    return CgroupJob("kubernetes", bare_uid(uid), container=match["id"] if match else None, runtime=runtime)


def _with_more(a: CgroupJob, b: CgroupJob) -> CgroupJob:
    """Two groups of one job: some hierarchies end at the job, others at the task."""
    missing = {name: value for name, value in b._asdict().items() if getattr(a, name) is None}
    return a._replace(**missing)
