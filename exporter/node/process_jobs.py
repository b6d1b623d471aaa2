"""The job of each process on the node, from its control group; kept for a while, since kernel lines name ended processes.

Reads only `cgroup` and `stat`, which every user can read and which never block.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from exporter.core.decoding.cgroups import CgroupJob, job_of_process

EVERY_SECONDS = 1.0  # 40 µs for a new process and 1 ms for a thousand old ones; a program can crash within a second
MOVED_SECONDS = 10.0  # after its start a process has been moved into its job's group
KEPT_SECONDS = 600.0  # after the end of a process; the kernel log is read within seconds
MAX_READ = 4096  # new processes of one refresh, 40 µs each; the rest has its turn at the next
MAX_KEPT = 32_768  # 400 bytes each
_TICKS = os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    """A process, identified by its pid and its start (seconds since boot), and when it was first and last seen."""

    started: float
    job: CgroupJob | None
    is_of_system: bool  # in no job's group, nor in slurmd's, which has the jobs where Slurm uses no groups
    first_read: float
    last_seen: float


class ProcessJobs:
    """The jobs of the processes below `proc`. In a container, `proc` is where the node's /proc is mounted."""

    def __init__(self, proc: Path, boot_clock: Callable[[], float]) -> None:
        """boot_clock: seconds since boot, as in `stat`."""
        self._proc = proc
        self._boot_clock = boot_clock
        self._seen: dict[int, Seen] = {}
        self._read_at: float | None = None
        self._usable: bool | None = None
        self._last_pid: list[str] = []

    def refresh(self, now: float) -> None:
        """Read the control groups of new processes if it is due."""
        if self._read_at is not None and 0 <= now - self._read_at < EVERY_SECONDS:
            return
        self._read_at = now
        if not self.usable() or not self._has_new():
            return
        try:
            pids = [int(name) for name in os.listdir(self._proc) if name.isdecimal()]
        except OSError:
            return
        new = 0
        for pid in sorted(pids, reverse=True):  # the youngest first: the others were there before
            seen = self._seen.get(pid)
            # slurmstepd moves a process into its job's group some milliseconds after its start.
            if seen and (seen.job or now - seen.first_read > MOVED_SECONDS):
                self._seen[pid] = seen._replace(last_seen=now)
            elif new < MAX_READ:
                new += 1
                self._read(pid, now)
        if self._seen.keys() - set(pids):
            kept = {pid: seen for pid, seen in self._seen.items() if now - seen.last_seen <= KEPT_SECONDS}
            self._seen = dict(sorted(kept.items(), key=lambda item: item[1].last_seen)[-MAX_KEPT:])

    def _has_new(self) -> bool:
        """Whether a process was started since the last refresh: by the last pid, the fifth field of loadavg."""
        with contextlib.suppress(OSError):
            last = _text(self._proc / "loadavg").split()[-1:]
            is_new, self._last_pid = last != self._last_pid or not last, last
            return is_new
        return True

    def put(self, pid: int, job: CgroupJob, happened: float, now: float) -> None:
        """Take in the job of a process that the kernel's line names itself; the next line may name only the pid."""
        seen = self._seen.get(pid)
        if seen is None or seen.job is None:
            started = happened - (now - self._boot_clock())
            self._seen[pid] = Seen(seen.started if seen else started, job, False, now, now)

    def named(self, pid: int, happened: float, now: float) -> Seen | None:
        """The process that had a pid at a wall time: a living one as it is now, else as it was last seen; None if unknown."""
        if not self.usable():
            return None
        self._read(pid, now)
        seen = self._seen.get(pid)
        booted = now - self._boot_clock()
        # A second of slack: the kernel's stamps drift against the clock. An older line names an earlier process.
        return seen if seen and happened >= booted + seen.started - 1.0 else None

    def usable(self) -> bool:
        """Whether these are the pids that kernel lines name: kernel threads exist in the first namespace only."""
        if self._usable is None:
            self._usable = False
            with contextlib.suppress(OSError):
                self._usable = _text(self._proc / "2/comm") == "kthreadd\n"
        return self._usable

    def _read(self, pid: int, now: float) -> None:
        folder = self._proc / str(pid)
        try:
            started = int(_text(folder / "stat").rpartition(")")[2].split()[19]) / _TICKS
            seen = self._seen.get(pid)
            if seen and seen.started != started:
                seen = None  # another process with this pid
            if seen and seen.job:
                self._seen[pid] = seen._replace(last_seen=now)
                return
            first_read = seen.first_read if seen else now
            cgroup = _text(folder / "cgroup")
            job = job_of_process(cgroup)
            self._seen[pid] = Seen(started, job, job is None and "slurmd" not in cgroup, first_read, now)
        except (OSError, ValueError, LookupError):  # it has ended
            return


def _text(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        return (file.read(65_536) or b"").decode(errors="backslashreplace")
