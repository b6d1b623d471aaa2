"""The jobs that the scheduler's hooks have written into a folder: who runs on this node with which GPUs, and how it ended.

Reads only files of root or of the daemon's own user, in a folder that nobody else can write to: a job's user must not be
able to change whose a crash is. An incomplete file is read again; one that no hook writes is refused.
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.core.decoding.job_files import (
    MAX_BYTES,
    STARTED,
    Forged,
    Incomplete,
    NodeJob,
    ended_job,
    job_of_file_name,
    started_job,
)

EVERY_SECONDS = 2.0
SLACK_SECONDS = 5.0  # a driver tells a fault when the job that caused it has been killed
LAST_LINES_SECONDS = 3.0  # after a job's end, by the epilog's whole seconds: then its logs are read to their ends
ENDED_SECONDS = 600.0  # for so long a log of an ended job may still be read: a shared file system is slow
AT_A_LINE_SECONDS = 0.2  # before a line is attributed: its job may have started just now
MAX_FILES = 4096  # a node starts some hundred jobs an hour; the hook removes those that ended an hour ago
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class JobFolder:
    """`jobs` by Slurm's number, running ones and those that ended lately.

    failed: why the folder, or a file in it, is not used.
    """

    def __init__(self, folder: Path | None) -> None:
        self.jobs: Mapping[str, NodeJob] = {}
        self.failed = ""
        self.exists = False
        self.path = folder
        self._read_at: float | None = None
        self._by_id: Mapping[str, NodeJob] = {}
        self._ended: list[NodeJob] = []
        self._files: dict[str, tuple[int, int, int]] = {}  # inode, size and time of change of complete files
        self._refused: dict[str, str] = {}  # by file name, why

    def take_ended(self) -> list[NodeJob]:
        """The jobs whose end was seen since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def refresh(self, now: float, every: float = EVERY_SECONDS) -> None:
        """Read new files, if the last time is `every` seconds ago."""
        if self.path is None or (self._read_at is not None and 0 <= now - self._read_at < every):
            return
        self._read_at = now
        try:
            names = self._names(self.path)
        except FileNotFoundError:
            self.exists, self.failed, self.jobs, self._by_id, self._files = False, "", {}, {}, {}
            return
        except OSError as error:
            self.failed = f"{self.path}: {error.strerror or error}"
            return
        self.exists = True
        jobs = {raw_id: job for raw_id, job in self.jobs.items() if f"{raw_id}{STARTED}" in names}
        self._files = {name: seen for name, seen in self._files.items() if name in names}
        self._refused = {name: why for name, why in self._refused.items() if name in names}
        for name in sorted(names, key=lambda name: not name.endswith(STARTED)):
            read = self._read_if_new(self.path, name)
            job_and_ending = job_of_file_name(name)
            if read is None or job_and_ending is None:
                continue
            raw_id, ending = job_and_ending
            text, identity = read
            try:
                if ending == STARTED:
                    jobs[raw_id] = started_job(raw_id, text)
                elif raw_id in jobs:
                    jobs[raw_id] = ended_job(jobs[raw_id], text)
                    self._ended.append(jobs[raw_id])
                else:
                    continue  # its other half is still to come
            except Incomplete:
                continue
            except Forged as error:
                self._refused[name] = str(error)
            self._files[name] = identity
        self.failed = next((f"{self.path}/{name}: not used: {why}" for name, why in self._refused.items()), "")
        self.jobs = jobs
        self._by_id = {job.id: job for job in jobs.values()}

    def find(self, name: str) -> NodeJob | None:
        """The job of one of its ids: Slurm's number, or 100_3."""
        return self.jobs.get(name) or self._by_id.get(name)

    def over(self, now: float) -> list[NodeJob]:
        """The jobs that ended some seconds ago, so that the last lines of their logs have been read."""
        ended = ((job, now - job.ended) for job in self.jobs.values() if job.ended is not None)
        return [job for job, age in ended if LAST_LINES_SECONDS <= age <= ENDED_SECONDS]

    def running(self, at: float) -> list[NodeJob]:
        """The jobs that ran at a time."""
        return [job for job in self.jobs.values() if job.ran_at(at, 0.0)]

    def with_card(self, has: Callable[[NodeJob], bool], at: float) -> list[NodeJob]:
        """The jobs that had a card at a time; if none had it, those that had it some seconds before or after."""
        holders = [job for job in self.jobs.values() if job.ran_at(at, SLACK_SECONDS) and has(job)]
        return [job for job in holders if job.ran_at(at, 0.0)] or holders

    def _names(self, folder: Path) -> set[str]:
        status = os.stat(folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or not _is_trusted(status):
            raise PermissionError(0, "not used: other users than root can write to it; chown root, chmod 755")
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(2 * MAX_FILES), strict=False)]
        return {name for name in names if job_of_file_name(name)}

    def _read_if_new(self, folder: Path, name: str) -> tuple[str, tuple[int, int, int]] | None:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # gone, a link, not readable
            return None
        try:
            status = os.fstat(descriptor)
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if not stat.S_ISREG(status.st_mode) or not _is_trusted(status) or self._files.get(name) == identity:
                return None
            return os.read(descriptor, MAX_BYTES).decode(errors="backslashreplace"), identity
        finally:
            os.close(descriptor)


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & _WRITABLE_BY_OTHERS
