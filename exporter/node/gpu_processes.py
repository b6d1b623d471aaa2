"""Reads the software of processes that use a GPU while they run, because a dead process no longer shows it.

A thread periodically searches the open files of all processes for GPU devices. Facts of such a process are read twice, so
that libraries loaded later are included, and are kept after its end. Users control what a process and its root contain:
no link is followed, all reads are bounded, and a file that never answers blocks one thread only.
"""

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporter.core.decoding.jobs import job_of_cgroup, owner_uid, process_job
from exporter.core.facts import process as parse
from exporter.core.facts.amd import rocm_release
from exporter.core.facts.linux import memory_bytes
from exporter.core.model import Job, Match

READS = 2  # of each process; torch opens the GPU in the middle of its imports
MAX_KEPT = 1024  # processes remembered, 2 KiB each: four days of a node that starts one job of eight ranks an hour
MAX_PER_JOB = 16  # processes read of one job: its ranks; workers that were forked from them have the same stack
MAX_LOST = 4  # threads that may hang at once; behind that, no more searches until one of them returns
MAX_TRIED = 256  # processes, until one of another user can be inspected
MAX_FDS = 512  # open files looked through of one process: a GPU is opened early
SEARCH_SECONDS = 0.5  # of one search; what is left over waits for the next
HANGS_SECONDS = 10.0  # in one process; then it is left alone
_MAPS_BYTES = 8 << 20  # a training job has 1 to 3 MB of mappings
_FILE_BYTES = 1 << 20
_NAMES = 4096  # entries read of a folder that a user filled
_GPU_DEVICE = re.compile(r"/dev/(?:kfd|(?P<card>nvidia\d+|dri/renderD\d+)|nvidia-uvm)")
# What watches GPUs, or keeps them awake, holds them open day and night; as comm has it, cut at 15 characters.
MONITORS = frozenset({
    "nvidia-persiste", "nv-hostengine", "dcgm-exporter", "dcgmi", "nvidia-smi", "nv-fabricmanage", "nvidia-device-p",
    "nvtop", "amd-smi", "rocm-smi", "rdcd", "gpuagent", "amdgpu-exporter", "server-metrics-", "k8s-device-plug",
    "xpumd", "xpu-smi", "xpumanager", "node_exporter", "Xorg", "Xwayland", "gnome-shell",
})  # fmt: skip
_INITIAL_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO (include/linux/proc_ns.h): the pids that kernel lines name


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process, identified by its pid and its start time."""

    pid: int
    started: float  # seconds since boot
    job: str | None
    uid: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    reads: int = 0
    cards: frozenset[str] = frozenset()  # device files of single GPUs that it holds open; of a monitor none


class GpuProcesses:
    """The processes that use, or used, a GPU. failed: why the last search was incomplete."""

    def __init__(self, proc: Path = Path("/proc"), search_seconds: float = SEARCH_SECONDS) -> None:
        self._proc = proc
        self._search_seconds = search_seconds
        self._processes: Mapping[int, GpuProcess] = {}
        self._searched_at: float | None = None
        self._worker: threading.Thread | None = None
        self._at = (0, 0.0)  # the process that the worker is in, and since when
        self._avoided: set[int] = set()
        self._lost: list[threading.Thread] = []
        self._left_over: frozenset[int] = frozenset()
        self.held: frozenset[str] | None = None  # device files of GPUs that processes hold open; None: not seen
        self.jobs: frozenset[str] = frozenset()  # whose processes hold a GPU open, as of the last search
        self.failed: Mapping[str, str] = {}

    def refresh(self, now: float, every: float | None, *, wait: bool = False) -> None:
        """Start a search if it is due. every: interval in seconds; None: never."""
        if every is None or (self._searched_at is not None and 0 <= now - self._searched_at < every):
            return
        if self._worker is not None and self._worker.is_alive() and not self._gave_up():
            return
        self._searched_at = now
        self._worker = threading.Thread(target=self._search, name="gpu processes", daemon=True)
        self._worker.start()
        if wait:
            self._worker.join()

    def attached(self, matches: Sequence[Match]) -> list[Match]:
        """The matches with the facts of their processes; a kernel line's match also with the job of its process."""
        if not self._processes:
            return list(matches)
        asked: dict[tuple[Job | None, str | None], tuple[Mapping[str, str], str | None]] = {}
        out = []
        for match in matches:  # of one log: a thousand matches ask for one job
            key = (match.job, match.captures.get("pid") if match.source == "kernel" else None)
            if key not in asked:
                asked[key] = self._facts_and_job(match)
            facts, named_job = asked[key]
            named_job = match.named_job or named_job
            out.append(replace(match, process=facts, named_job=named_job) if facts or named_job else match)
        return out

    def facts_of(self, match: Match) -> Mapping[str, str]:
        """The facts of the process that a kernel line names, else of the match's job."""
        return self._facts_and_job(match)[0]

    def _facts_and_job(self, match: Match) -> tuple[Mapping[str, str], str | None]:
        if match.source == "kernel":
            process = self._named(match)
            if process is None:
                return {}, None
            return process.facts or self._facts_of_job(process.job, None), process.job
        name = match.named_job or process_job(match.job, match.path)
        return self._facts_of_job(name, owner_uid(match.job)), None

    def _facts_of_job(self, job: str | None, uid: int | None) -> Mapping[str, str]:
        """The facts of a job's processes; only of user `uid` if known, since anyone can name a log after a job."""
        if not job:
            return {}
        processes = [p for p in self._processes.values() if p.job == job and (uid is None or p.uid in (None, uid))]
        return parse.combine_facts(p.facts for p in processes)

    def job_of(self, match: Match) -> tuple[str | None, int | None]:
        """The job and user of the process that a kernel line names, by its control group."""
        process = self._named(match)
        return (match.named_job or process.job, process.uid) if process else (match.named_job, None)

    def _named(self, match: Match) -> GpuProcess | None:
        pid = match.captures.get("pid", "")
        process = self._processes.get(int(pid)) if re.fullmatch("[0-9]{1,9}", pid) else None
        if process is None or not self._pids_are_the_kernels():
            return None
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        # A second of slack: the kernel's stamps drift against the clock. An older line names an earlier process.
        return process if match.happened >= booted + process.started - 1.0 else None

    def _pids_are_the_kernels(self) -> bool:
        """Whether pids here are those of kernel lines: not so in a container with its own pid namespace."""
        with contextlib.suppress(OSError):
            return os.readlink(self._proc / "self/ns/pid") == _INITIAL_PIDS
        return False

    def _gave_up(self) -> bool:
        """Whether the thread has hung in one process for too long and can be replaced."""
        self._lost = [thread for thread in self._lost if thread.is_alive()]
        pid, since = self._at
        if self._worker is None or time.monotonic() - since < HANGS_SECONDS:
            return False
        self.failed = {"processes": f"process {pid} does not answer"}
        if len(self._lost) >= MAX_LOST:
            return False
        self._avoided.add(pid)
        self._lost.append(self._worker)
        return True

    def _search(self) -> None:
        processes = dict(self._processes)
        deadline = time.monotonic() + self._search_seconds
        pids = self._pids()
        alive = frozenset(pids)
        self._avoided.intersection_update(pids)
        while pids and time.monotonic() < deadline:
            if threading.current_thread() is not self._worker:
                return  # left behind, and back
            pid = pids.pop(0)
            self._at = (pid, time.monotonic())
            try:
                process = None if pid in self._avoided else self._process(pid, processes)
            except (OSError, ValueError, LookupError):  # it ended, or may not be inspected
                continue
            if process:
                processes.pop(pid, None)
                processes[pid] = process
        if threading.current_thread() is self._worker:
            self._left_over = frozenset(pids)
            self._processes = dict(list(processes.items())[-MAX_KEPT:])
            # In a container without the host's pids, a job's processes cannot be seen, and are not gone.
            is_complete = not self._avoided and may_inspect(self._proc) and self._pids_are_the_kernels()
            self.jobs = frozenset(p.job for p in self._processes.values() if p.pid in alive and p.cards and p.job)
            cards = (p.cards for p in self._processes.values() if p.pid in alive)
            self.held = frozenset().union(*cards) if is_complete else None
            self.failed = self.failed if self._avoided else {}

    def _pids(self) -> list[int]:
        """All pids: first those that the last search did not reach, then the youngest first."""
        pids = (int(name) for name in os.listdir(self._proc) if name.isdecimal())
        return sorted(pids, key=lambda pid: (pid not in self._left_over, -pid))

    def _process(self, pid: int, processes: Mapping[int, GpuProcess]) -> GpuProcess | None:
        """New information on a process; None if it uses no GPU, or if nothing is new."""
        folder = self._proc / str(pid)
        before = processes.get(pid)
        devices = _gpu_devices(folder) if before is None else frozenset()
        if before is None and not devices:
            return None
        status = _text(folder / "stat")
        started = _started(status)
        if before is not None:
            if before.started == started and before.reads >= READS:
                return None
            devices = _gpu_devices(folder)
            if before.started != started and not devices:
                return GpuProcess(pid, started, None, reads=READS)  # another process under an old number
        job = job_of_cgroup(_text(folder / "cgroup"))
        reads = before.reads if before and before.started == started else 0
        uid = folder.stat().st_uid
        process = GpuProcess(pid, started, job, uid, reads=reads + 1, cards=_cards(status, devices))
        fellows = [p for p in processes.values() if job and p.job == job and p.facts and p.pid != pid]
        if len(fellows) >= MAX_PER_JOB:
            return replace(process, reads=READS)
        return replace(process, facts=stack_of(folder, self._proc))


def may_inspect(proc: Path = Path("/proc")) -> bool:
    """Whether this process may inspect those of other users; needs CAP_SYS_PTRACE (ptrace(2), PTRACE_MODE_READ).

    The first process may refuse where the others do not, as in some virtual machines.
    """
    with contextlib.suppress(OSError):
        return bool(os.readlink(proc / "1/root"))
    with contextlib.suppress(OSError):
        pids = sorted((int(name) for name in os.listdir(proc) if name.isdecimal()), reverse=True)
        return any(_may_inspect_folder(proc / str(pid)) for pid in pids[:MAX_TRIED])
    return False


def _may_inspect_folder(folder: Path) -> bool:
    """Whether a process of another user may be inspected."""
    with contextlib.suppress(OSError):
        return os.stat(folder).st_uid != os.geteuid() and bool(os.readlink(folder / "root"))
    return False


def stack_of(folder: Path, proc: Path) -> dict[str, str]:
    """The facts of the process with this folder in /proc. Raises OSError if it may not be inspected."""
    environ = _text(folder / "environ")
    libraries = parse.mapped_libraries(_text(folder / "maps", _MAPS_BYTES))
    facts = parse.environment(environ) | parse.limit_facts(_text(folder / "limits"))
    facts |= parse.mount_facts(_text(folder / "mountinfo"), environ, memory_bytes(_text(proc / "meminfo")))
    root = folder / "root"
    for packages in parse.package_folders(libraries):
        facts |= parse.distribution_facts(names_beneath(root, packages))
    if parse.uses_rocm(libraries):
        folders = [name for name in names_beneath(root, "/opt") if name.startswith("rocm")]
        versions = parse.releases(rocm_release(text_beneath(root, f"/opt/{name}/.info/version")) for name in folders)
        facts |= {"rocm_versions": versions} if versions else {}
    return facts | parse.library_facts(libraries)


def names_beneath(root: Path, path: str) -> list[str]:
    """The names in a folder below a root that a user controls; empty if it is missing or behind a link."""
    with _beneath(root, path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        if descriptor is None:
            return []
        names = []
        with os.scandir(descriptor) as entries:
            for entry, _ in zip(entries, range(_NAMES), strict=False):
                names.append(entry.name)
        return names


def text_beneath(root: Path, path: str) -> str:
    """The text of a regular file below a root that a user controls; empty as for `names_beneath`."""
    with _beneath(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as descriptor:
        if descriptor is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, 4096).decode(errors="backslashreplace")


@contextlib.contextmanager
def _beneath(root: Path, path: str, flags: int) -> Iterator[int | None]:
    """Open a file below `root` part by part, without following any link that a user could put in between.

    `root` itself is the kernel's link into the process's mounts and must be followed.
    """
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        *folders, last = [part for part in path.split("/") if part]
        for part in folders:
            opened.append(_open_at(opened[-1], part, os.O_PATH | os.O_DIRECTORY))
        status = os.stat(last, dir_fd=opened[-1], follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(
            status.st_mode
        ):  # to open a device does something to it
            raise FileNotFoundError(path)
        opened.append(_open_at(opened[-1], last, flags))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        yield None
        return
    try:
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _open_at(folder: int, name: str, flags: int) -> int:
    if name == "..":
        raise FileNotFoundError(name)
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _gpu_devices(folder: Path) -> frozenset[str]:
    """The device files of GPUs that a process holds open."""
    devices = set()
    with os.scandir(folder / "fd") as entries:
        for entry, _ in zip(entries, range(MAX_FDS), strict=False):
            with contextlib.suppress(OSError):  # closed meanwhile
                if _GPU_DEVICE.fullmatch(path := os.readlink(entry.path)):
                    devices.add(path)
    return frozenset(devices)


def _cards(status: str, devices: frozenset[str]) -> frozenset[str]:
    """The device files of single GPUs; empty for a monitoring program, recognised by `status` (/proc/PID/stat)."""
    name = status.partition("(")[2].rpartition(")")[0]
    held = (device for device in devices if (match := _GPU_DEVICE.fullmatch(device)) and match["card"])
    return frozenset() if name in MONITORS else frozenset(held)


def _started(status: str) -> float:
    """The start of a process in seconds since boot: field 22 of stat. Field 2 may contain blanks and brackets."""
    return int(status.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _text(path: Path, most: int = _FILE_BYTES) -> str:
    with open(path, "rb", buffering=0) as file:
        chunks, left = [], most
        while left > 0 and (chunk := file.read(min(left, 256 << 10))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks).decode(errors="backslashreplace")
