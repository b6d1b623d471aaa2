"""Repeated Xid 13 on one streaming multiprocessor (SM) of a GPU in several jobs: a hint at the hardware, no more.

A broken SM fails in every job, on its own GPU only (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
But a kernel with few blocks runs on the same SM each time: three ordinary bugs of three users look alike. Evidence would be
a program that uses all SMs and fails on one, as DCGM's diagnostics do, or that the driver asks for an action. Only kernel
lines count. Knows no files or clocks; stored as one row per GPU.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from exporter.core.model import JOBS_ON_SM, Match

SIGNATURE = "nv_xid_13_graphics_exception"
JOBS = 3  # two can be one user's retry
USERS = 2  # if known: one user can make a program fail on one SM at will
SECONDS = 7 * 86400.0
MAX_JOBS = 32  # kept per GPU, the latest
MAX_GPUS = 64
_SM = re.compile(r"\bon \(GPC (\d{1,3}), TPC (\d{1,3}), SM (\d{1,3})\)")
_SEVERAL_SMS = ""  # for a job that failed on more than one SM
_OF_USER = " of uid "
JobOf = Callable[[Match], tuple[str | None, int | None]]  # the job and the user of the process in a line
Jobs = dict[str, tuple[float, str]]  # by job: time of the latest failure, SM


class RepeatedXids:
    """The jobs that failed on each SM of each GPU."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._gpus: dict[str, Jobs] = {}
        self._changed: set[str] = set()
        for gpu, text in stored.items():
            try:
                self._gpus[gpu] = {job: (float(time), str(sm)) for job, (time, sm) in json.loads(text).items()}
            except (ValueError, TypeError, AttributeError):  # another version wrote it
                self._changed.add(gpu)

    def with_job_counts(self, matches: Sequence[Match], job_of: JobOf) -> list[Match]:
        """The matches; those of a suspected SM get the number of failed jobs as a fact."""
        locations = {index: location for index, match in enumerate(matches) if (location := _location(match, job_of))}
        for index, (gpu, sm, job) in locations.items():
            self._note(gpu, sm, job, matches[index].read_at)
        out = list(matches)
        for index, (gpu, sm, _) in locations.items():
            if count := self._jobs_on(gpu, sm):
                counted = {**out[index].process, JOBS_ON_SM: str(count)}
                out[index] = replace(out[index], process=counted)
        return out

    def hints(self) -> list[str]:
        """What an operator may look into when the node is idle, in a sentence for each SM."""
        sms = {(gpu, sm) for gpu, jobs in self._gpus.items() for _, sm in jobs.values() if sm}
        counts = ((gpu, sm, self._jobs_on(gpu, sm)) for gpu, sm in sorted(sms))
        return [
            f"GPU {gpu}: {count} jobs failed on {_named(sm)} only. No evidence of a fault: a kernel with few blocks runs on "
            "the same SM each time. `dcgmi diag -r 3` on the idle GPU tells."
            for gpu, sm, count in counts
            if count
        ]

    def _jobs_on(self, gpu: str, sm: str) -> int:
        """How many jobs failed on an SM, if it is of note; else 0."""
        failed = [job for job, (_, other) in self._gpus.get(gpu, {}).items() if sm == other]
        users = {job.rpartition(_OF_USER)[2] for job in failed}  # a job without a known user counts as one
        others = (jobs for other, jobs in self._gpus.items() if other != gpu)
        elsewhere = any(sm == other for jobs in others for _, other in jobs.values())  # then it is the program
        return len(failed) if len(failed) >= JOBS and len(users) >= USERS and not elsewhere else 0

    def _note(self, gpu: str, sm: str, job: str, now: float) -> None:
        jobs = {name: seen for name, seen in self._gpus.get(gpu, {}).items() if abs(now - seen[0]) <= SECONDS}
        before = jobs.pop(job, None)
        jobs[job] = (now, sm if before is None or before[1] == sm else _SEVERAL_SMS)
        self._gpus[gpu] = dict(list(jobs.items())[-MAX_JOBS:])
        self._changed.add(gpu)
        while len(self._gpus) > MAX_GPUS:
            oldest = min(self._gpus, key=lambda name: max(time for time, _ in self._gpus[name].values()))
            del self._gpus[oldest]
            self._changed.add(oldest)

    def unsaved(self) -> Mapping[str, str | None]:
        """The rows changed since `saved`: JSON by GPU, or None if removed."""
        return {gpu: json.dumps(self._gpus[gpu]) if gpu in self._gpus else None for gpu in self._changed}

    def saved(self) -> None:
        self._changed.clear()


def _named(location: str) -> str:
    gpc, tpc, sm = location.split()
    return f"GPC {gpc}, TPC {tpc}, SM {sm}"


def _location(match: Match, job_of: JobOf) -> tuple[str, str, str] | None:
    """The GPU, SM and job of an Xid 13 with all three. An unknown job is named by its process."""
    if match.signature != SIGNATURE or match.source != "kernel" or not match.gpu:
        return None
    numbers, pid = _SM.search(match.captures.get("message", "")), match.captures.get("pid")
    name, uid = job_of(match)
    job = name or (pid and f"pid {pid} of boot {match.origin}")
    job = f"{job}{_OF_USER}{uid}" if job and uid is not None else job
    return (match.gpu, " ".join(numbers.groups()), job) if numbers and job else None
