"""Finds the job and the card of a match, from control groups of processes, files of the scheduler's hooks, devices that the
kubelet assigned, and the jobs that write logs.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from exporter.core.decoding.cgroups import CgroupJob, bare_uid
from exporter.core.decoding.job_files import NodeJob
from exporter.core.diagnosis.attribution import has_slurm_id, job_of_header, job_of_named_group
from exporter.core.diagnosis.incidents import jobs_of
from exporter.core.diagnosis.named_cards import card_named_in, names_ordinal
from exporter.core.facts import cards
from exporter.core.facts.gpus import Gpu
from exporter.core.matching.raising import BLOCK
from exporter.core.model import Incident, Job, Match
from exporter.node.job_folder import AT_A_LINE_SECONDS, JobFolder
from exporter.node.pod_devices import PodDevices
from exporter.node.process_jobs import ProcessJobs, Seen
from exporter.sources.calls import Lanes, Stalled, may_hang

READ_SECONDS = 0.75  # of the main loop's time, once: what hangs is not read again before it has answered
MAX_PODS = 4096  # folders of /var/log/pods read
PODS = Path("/var/log/pods")
_POD_FOLDER = re.compile(r"(?P<namespace>[^_]+)_(?P<pod>[^_]+)_(?P<uid>[0-9a-f-]{32,36})")


T = TypeVar("T")
EnvironmentOf = Callable[[Match], Mapping[str, str]]
OnlyJob = Callable[[], Job | None]


class JobAttribution:
    """Adds jobs and PCI addresses to matches."""

    def __init__(
        self,
        proc: Path,
        folder: JobFolder,
        devices: PodDevices,
        *,
        pods: Path = PODS,
        lanes: Lanes | None = None,
        clock: Callable[[], float] = time.time,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        # None: no deadline. /proc and /run are local, and a busy node may take long to answer.
        self._lanes = lanes if any(map(may_hang, (str(proc), str(pods), str(folder.path or "/")))) else None
        self._stalled = ""
        self._folder = folder
        self._devices = devices
        self._pods = pods
        self._clock = clock
        self._processes = ProcessJobs(proc, boot_clock)
        self._pod_names: Mapping[str, tuple[str, str]] = {}

    def refresh(self, now: float) -> list[NodeJob]:
        """Read processes, hook files and the kubelet if due. Returns the jobs that have ended since the last call."""
        self._devices.refresh(now)
        self._within_deadline(self._refresh, now)
        return self._folder.take_ended()

    @property
    def failed(self) -> dict[str, str]:
        """What could not be read: the name and the reason."""
        failures = {
            "jobs folder": self._folder.failed,
            "pod resources": self._devices.failed,
            "processes": self._stalled,
        }
        return {name: why for name, why in failures.items() if why}

    @property
    def pod_resources_up(self) -> bool | None:
        """Whether the kubelet answered last; None if it was not asked."""
        return self._devices.up

    def attached(
        self, matches: Sequence[Match], gpus: Sequence[Gpu], environment_of: EnvironmentOf, only: OnlyJob
    ) -> list[Match]:
        """The matches with their jobs, and with the PCI address of a GPU that they name in another way.

        environment_of: facts of a job's processes. only: the only job whose logs are written.
        """

        def attach() -> list[Match]:
            self._folder.refresh(self._clock(), AT_A_LINE_SECONDS)
            return [
                self._of_log(match, gpus, environment_of)
                if match.source == "job"
                else self._of_kernel(match, gpus, only)
                for match in matches
            ]

        attached = self._within_deadline(attach) if matches else None
        return list(matches) if attached is None else attached

    def over(self, now: float) -> list[NodeJob]:
        """The jobs that have ended, and whose logs have been read to their ends."""
        return self._folder.over(now)

    def job_of(self, incident: Incident) -> NodeJob | None:
        """The job of an incident as the hooks know it, by what the job's user cannot write: also by the time."""
        if incident.first.source == "kernel":
            names = jobs_of(incident) or {
                claim.raw_id or "" for claim in incident.first.claims if claim.method == "time"
            }
            raw_id = next(iter(names)).removeprefix("slurm ") if len(names) == 1 else ""
            return self._folder.jobs.get(raw_id)
        job, uid = self._job_of_log(incident.first.job), incident.first.uid
        return job if job and (None in (uid, job.uid) or uid in (job.uid, 0)) else None

    def _refresh(self, now: float) -> None:
        self._processes.refresh(now)
        self._folder.refresh(now)

    def _within_deadline(self, function: Callable[..., T], *args: Any) -> T | None:
        """What a function returns that reads /proc or the jobs' folder; None if that does not answer."""
        if self._lanes is None:
            return function(*args)
        try:
            result = self._lanes.call("processes and jobs", READ_SECONDS, function, *args)
        except Stalled as error:
            self._stalled = str(error.strerror)
            return None
        self._stalled = ""
        return result

    # -- lines of the kernel

    def _of_kernel(self, match: Match, gpus: Sequence[Gpu], only: OnlyJob) -> Match:
        gpu = match.gpu or card_named_in(match, gpus)
        process = self._process(match)
        claims = [*self._of_process(match, process), *self._of_card(match, gpu, gpus)]
        is_about_one = bool(gpu or {"pid", "process"} & match.captures.keys())
        if not claims and is_about_one and not (process and process.is_of_system):
            claims = self._of_time(match, gpu, gpus, only)
        names = (_process_name(job) for job in claims if job.confidence == "high")
        named = next((name for name in names if name), match.named_job)
        if not claims and gpu == match.gpu:
            return match
        by = match.raised_by
        if by and not by.startswith(BLOCK) and claims and claims[0].method in ("cgroup", "pid"):
            by = f"{by} of {_process_name(claims[0])}"  # a pid is used again
        return replace(match, gpu=gpu, claims=tuple(claims), named_job=named, raised_by=by)

    def _process(self, match: Match) -> Seen | None:
        pid = match.captures.get("pid", "")
        return (
            self._processes.named(int(pid), match.happened, self._clock())
            if re.fullmatch(r"[1-9]\d{0,8}", pid)
            else None
        )

    def _of_process(self, match: Match, process: Seen | None) -> list[Job]:
        """By the control group in the line, else by that of the process that it names."""
        if "cgroup" in match.captures and (cgroup_job := job_of_named_group(match)):
            if (pid := match.captures.get("pid", "")).isdecimal():
                self._processes.put(int(pid), cgroup_job, match.happened, self._clock())
            return [self._job(cgroup_job, "cgroup")]
        return [self._job(process.job, "pid")] if process and process.job else []

    def _of_card(self, match: Match, gpu: str | None, gpus: Sequence[Gpu]) -> list[Job]:
        """By the card, if one job or pod has it."""
        if gpu is None or match.captures.get("mig"):  # an instance of a card, which others share
            return []
        holders = self._folder.with_card(lambda job: gpu in self._cards(job, gpus), match.happened)
        jobs = [job.as_job("gpu", confidence="high") for job in holders]
        pods = self._devices.pods_with(gpu, gpus, match.happened)
        jobs += [
            Job(id=pod, kind="kubernetes", method="gpu", confidence="high", pod_uid=self._uid(pod)) for pod in pods
        ]
        return jobs if len(jobs) == 1 else []

    def _of_time(self, match: Match, gpu: str | None, gpus: Sequence[Gpu], only: OnlyJob) -> list[Job]:
        """By the time, if only one job ran then. A card that is not the job's is idle, or broken by itself."""
        if self._folder.exists:
            jobs = self._folder.running(match.happened)
            own = self._cards(jobs[0], gpus) if len(jobs) == 1 else ()
            return [jobs[0].as_job("time")] if len(jobs) == 1 and not (gpu and own and gpu not in own) else []
        job = only()
        return [replace(job, method="time", confidence="low")] if job else []

    def _job(self, cgroup_job: CgroupJob, method: Literal["cgroup", "pid"]) -> Job:
        if cgroup_job.kind == "kubernetes":
            uid, name = self._pod(cgroup_job.id)
            return Job(
                id=name,
                kind="kubernetes",
                method=method,
                confidence="high",
                pod_uid=uid,
                container=cgroup_job.container,
            )
        if hook_job := self._folder.jobs.get(cgroup_job.id):
            return hook_job.as_job(method, confidence="high", step=cgroup_job.step)
        return Job(
            id=cgroup_job.id, kind="slurm", method=method, confidence="high", raw_id=cgroup_job.id, step=cgroup_job.step
        )

    # -- lines of a job's log

    def _of_log(self, match: Match, gpus: Sequence[Gpu], environment_of: EnvironmentOf) -> Match:
        hook_job = self._job_of_log(match.job)
        job, claims = match.job, []
        is_forged = False
        if job and hook_job and match.uid is not None and hook_job.uid is not None:
            # A log that another user named after the job is not the job's, unless root wrote it.
            is_forged = match.uid not in (hook_job.uid, 0)
            job = replace(job, confidence="low" if is_forged else "high")
        elif job and has_slurm_id(job) and hook_job is None and self._folder.exists:
            # Of a job of another node, on a shared file system, or a number that is not a job's.
            job = replace(job, confidence="medium" if job.confidence == "high" else "low")
        if job is None or job.confidence == "low":
            claims = self._of_owner(match, only_by_header=job is not None and not is_forged)
        if job and hook_job and job.confidence != "low":
            job = replace(
                job, user=job.user or hook_job.user, raw_id=hook_job.raw_id, account=job.account or hook_job.account,
                name=job.name or hook_job.name,
            )  # fmt: skip
        named = hook_job.process_name if hook_job and job and job.confidence != "low" else None
        if job != match.job or claims or named:
            match = replace(match, job=job, claims=tuple(claims), named_job=named)
        if match.gpu is None:
            own = self._cards(hook_job, gpus) if hook_job else ()
            environment = environment_of(match) if names_ordinal(match) else {}
            if gpu := card_named_in(match, gpus, own=own, environment=environment):
                match = replace(match, gpu=gpu)
        return match

    def _of_owner(self, match: Match, *, only_by_header: bool) -> list[Job]:
        """By the log's owner: the job that the log names, if it is that user's, else the user's only job."""
        if match.uid is None or not self._folder.exists:
            return []
        running = [job for job in self._folder.running(match.happened) if job.uid == match.uid]
        header = job_of_header(match)
        named = [job for job in running if header and header.id in (job.raw_id, job.id)]
        if named:
            return [named[0].as_job("header", confidence="medium")]
        return [running[0].as_job("owner", confidence="medium")] if len(running) == 1 and not only_by_header else []

    def _job_of_log(self, job: Job | None) -> NodeJob | None:
        """The job of a log as the hooks know it; a task of an array has two ids."""
        return self._folder.find(job.id) if job and job.kind == "slurm" else None

    # -- names

    def _cards(self, job: NodeJob, gpus: Sequence[Gpu]) -> tuple[str, ...]:
        named = (cards.card_of(name, gpus) for name in job.gpus)
        return tuple(dict.fromkeys(card for card in named if card))

    def _pod(self, bare: str) -> tuple[str, str]:
        """A pod's uid and its namespace and name, from the folder of its logs."""
        if bare not in self._pod_names:
            self._read_pods()
        return self._pod_names.get(bare, (bare, f"pod {bare}"))

    def _uid(self, pod: str) -> str | None:
        """The uid of a pod; None if several had its name."""
        if not any(name == pod for _, name in self._pod_names.values()):
            self._read_pods()
        uids = [uid for uid, name in self._pod_names.values() if name == pod]
        return uids[0] if len(uids) == 1 else None

    def _read_pods(self) -> None:
        with contextlib.suppress(OSError), os.scandir(self._pods) as entries:
            names = (_POD_FOLDER.fullmatch(entry.name) for entry, _ in zip(entries, range(MAX_PODS), strict=False))
            self._pod_names = {bare_uid(m["uid"]): (m["uid"], f"{m['namespace']}/{m['pod']}") for m in names if m}


def _process_name(job: Job) -> str | None:
    if job.kind == "kubernetes":
        return f"pod {bare_uid(job.pod_uid)}" if job.pod_uid else None
    return f"slurm {job.raw_id or job.id}"
