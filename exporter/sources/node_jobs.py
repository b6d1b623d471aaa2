"""Which jobs run on this node, as their logs show: decides whether a kernel line can only concern one job."""

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from exporter.core.decoding.jobs import process_job
from exporter.core.model import Job
from exporter.core.shares import most_first

ENDED_AFTER_SECONDS = (
    3600.0  # a job that has written nothing for so long has ended, or hangs; collectives time out sooner
)
COUNTED_EVERY_SECONDS = 10.0
MAX_JOBS = 4096  # whose last write is remembered: more than run on a node in a day


# The folders of Slurm's control groups, of version 2 and 1 (task/cgroup and proctrack/cgroup).
_SLURM_CGROUPS = ("system.slice/*slurmstepd.scope", "*/slurm*/uid_*", "*/slurm*")


def runs_slurm_job(job: str, rootfs: Path) -> bool:
    """Whether processes of a Slurm job are on this node, by its control groups."""
    if not job.isdecimal():
        return False  # a task of an array has a number of its own that only Slurm knows
    top = glob.escape(os.path.join(rootfs, "sys/fs/cgroup"))
    return any(glob.glob(f"{top}/{folder}/job_{job}") for folder in _SLURM_CGROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWrite:
    """When a job last wrote to one of its logs, in Unix seconds, and where it stopped."""

    time: float
    job: Job
    path: str
    origin: str
    offset: int
    line: int
    uid: int | None = None  # the owner of the log


class NodeJobs:
    """The jobs of all sources of a daemon, by source name.

    last_writes: the latest of each job, by its name in the control groups of its processes.
    """

    def __init__(self) -> None:
        self.last_writes: dict[str, LastWrite] = {}
        self._by_source: dict[str, dict[str, Job | None]] = {}

    def count(self, source: str, jobs: Mapping[str, Job | None]) -> None:
        """Set the jobs of one source that have written to a log recently."""
        self._by_source[source] = dict(jobs)

    def add(self, source: str, name: str, job: Job | None = None) -> None:
        """Add a job that is writing now. None: its log shows only its owner or folder."""
        self._by_source.setdefault(source, {})[name] = job

    def wrote(self, writes: Iterable[LastWrite]) -> None:
        """Take in the last writes to the logs of one source."""
        for write in writes:
            name = process_job(write.job, write.path)
            last = self.last_writes.get(name or "")
            if name and (last is None or last.time <= write.time):
                self.last_writes.pop(name, None)
                self.last_writes[name] = write
        too_many = max(0, len(self.last_writes) - MAX_JOBS)
        for name in list(islice(most_first(self.last_writes, lambda name: self.last_writes[name].uid), too_many)):
            del self.last_writes[name]

    def several(self) -> bool:
        return len(set().union(*self._by_source.values())) > 1

    def others_than(self, job: str) -> bool:
        """Whether another job runs on the node."""
        return any(not jobs.keys() <= {job} for jobs in self._by_source.values())

    def only(self) -> Job | None:
        """The only job whose logs are written; None if there are several, or its id is unknown."""
        jobs = {name: job for jobs in self._by_source.values() for name, job in jobs.items()}
        return next(iter(jobs.values())) if len(jobs) == 1 else None
