"""Probes: the reading behind `exporter.core.facts`. Which files of a machine state its facts, and how to ask for them
without being held up: by a network mount whose server is gone, a GPU whose driver hangs, a FIFO where a file should be.

Nothing is executed. So packages are known only where dpkg keeps them as text; an rpm database is a Berkeley DB, ndb or
SQLite file of binary headers, and not worth a parser here. There, `driver_version` and `rocm_version` still tell.
"""

import errno
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from exporter.core import facts as parse
from exporter.core.facts import Gpu as Gpu

T = TypeVar("T")

_CHUNK_BYTES = 64 << 10  # /proc/sys allocates as much as is asked for, and refuses megabytes (ENOMEM)
_CHUNKS = 1024  # 64 MiB; the only big file is /var/lib/dpkg/status, 2 to 10 MB on a node with everything installed
_LINKS = 40  # as the kernel's own limit (MAXSYMLINKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one probe found; of each GPU, only what this probe knows of it."""

    facts: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts of a machine. `failed`: probe → why it could tell nothing, or not all; the rest is as good as ever."""

    facts: Mapping[str, str]
    failed: Mapping[str, str]
    gpus: tuple[Gpu, ...]


class Host:
    """The machine below `root`, as one probe sees it. What does not exist is None; what cannot be read is None too, and
    a line in `problems`, so that one unreadable file costs one fact and not the probe.
    """

    def __init__(self, root: Path, home: str | None) -> None:
        self.root = root
        self.home = home
        self.problems: list[str] = []

    def read(self, *paths: str) -> str | None:
        """The text of the first of `paths` that can be read. A problem is noted only when none can."""
        return self._first(_text_of, *paths)

    def value(self, *paths: str) -> str | None:
        return parse.one_value(self.read(*paths))

    def names(self, folder: str) -> list[str]:
        return sorted(self._first(os.listdir, folder) or ())

    def owner(self, path: str) -> int | None:
        return self._first(lambda real: real.stat().st_uid, path)

    def resolve(self, path: str) -> str:
        """`path` without links, as a process inside `root` would see it: absolute links begin at `root` again.

        Below another root, such as /host in a container, the kernel would follow /opt/rocm → /etc/alternatives/rocm
        into the container's own /etc.
        """
        links, resolved, rest = 0, "", path.split("/")[::-1]
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            try:
                target = os.readlink(f"{self.root}{resolved}/{name}")
            except OSError:  # no link, or nothing at all
                resolved += f"/{name}"
                continue
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, "too many links")
            if target.startswith("/"):
                resolved = ""
            rest += target.split("/")[::-1]
        return resolved or "/"

    def real(self, path: str) -> Path:
        return self.root / self.resolve(path).lstrip("/")

    def _first(self, ask: Callable[[Path], T], *paths: str) -> T | None:
        problems = []
        for path in paths:
            try:
                return ask(self.real(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")
        self.problems += problems
        return None


def _text_of(path: Path) -> str:
    # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
        return b"".join(islice(chunks, _CHUNKS)).decode(errors="backslashreplace")


# The probes. Each is a function from a host to what it found; a new one needs a row in PROBES and nothing else.

Probe = Callable[[Host], Found]


def linux(host: Host) -> Found:
    return _found(
        kernel_release=host.value("/proc/sys/kernel/osrelease"),
        os=parse.os_name(host.read("/etc/os-release", "/usr/lib/os-release") or ""),
        numa_balancing=host.value("/proc/sys/kernel/numa_balancing"),
        bios_version=host.value("/sys/class/dmi/id/bios_version"),
    )


def amdgpu(host: Host) -> Found:
    def gpu(pci: str) -> Gpu:
        device = f"/sys/bus/pci/drivers/amdgpu/{pci}"
        return Gpu(
            pci=pci,
            model=host.value(f"{device}/product_name"),
            unique_id=parse.identity(host.read(f"{device}/unique_id")),
            serial=parse.identity(host.read(f"{device}/serial_number")),
            vbios=host.value(f"{device}/vbios_version"),
            hbm_vendor=host.value(f"{device}/mem_info_vram_vendor"),
        )

    return Found(gpus=tuple(gpu(pci) for pci in _addresses(host, "/sys/bus/pci/drivers/amdgpu")))


def nvidia(host: Host) -> Found:
    folder = "/proc/driver/nvidia/gpus"
    informations = {pci: host.read(f"{folder}/{pci}/information") for pci in _addresses(host, folder)}
    return Found(gpus=tuple(parse.gpu_of_nvidia_information(pci, text) for pci, text in informations.items() if text))


def kfd(host: Host) -> Found:
    folder = "/sys/class/kfd/kfd/topology/nodes"
    # In numerical order, so that a partitioned GPU, which has several nodes, is known by its first.
    nodes = sorted(int(name) for name in host.names(folder) if name.isdecimal())
    gpus = (parse.gpu_of_kfd_node(node, host.read(f"{folder}/{node}/properties") or "") for node in nodes)
    return Found(gpus=tuple(gpu for gpu in gpus if gpu))


def pci(host: Host) -> Found:
    """Every GPU of the machine, with a driver or without: what the others miss, because it fell off, is still here."""
    folder = "/sys/bus/pci/devices"
    devices = host.names(folder)
    gpus = (parse.gpu_of_uevent(host.read(f"{folder}/{device}/uevent") or "") for device in devices)
    found = tuple(replace(gpu, iommu=_iommu(host, f"{folder}/{gpu.pci}")) for gpu in gpus if gpu)
    return Found(gpus=found, facts={"gpu_count": str(len(found))} if devices else {})


def _iommu(host: Host, device: str) -> str | None:
    if "iommu_group" not in host.names(device):
        return "off"
    group_type = host.value(f"{device}/iommu_group/type")
    return parse.iommu_mode(group_type) if group_type else None


def drivers(host: Host) -> Found:
    """The drivers that hold a GPU, their versions, and whether they came with the kernel; "+" between several."""
    bound = (name for name in _DRIVERS if _addresses(host, f"/sys/bus/pci/drivers/{name}"))
    held = {name: _DRIVERS[name](host) for name in bound}
    return _found(
        driver="+".join(held),
        driver_version="+".join(version for version, _ in held.values() if version),
        driver_flavor=parse.joined(flavor for _, flavor in held.values()),
        amdgpu_version=host.value("/sys/module/amdgpu/version"),
    )


def _module(name: str, *version_files: str) -> Callable[[Host], tuple[str | None, str | None]]:
    def version_and_flavor(host: Host) -> tuple[str | None, str | None]:
        # O: out of the kernel's tree (Documentation/ABI/testing/sysfs-module), which for these drivers is DKMS.
        taint = host.read(f"/sys/module/{name}/taint") or ""
        version = host.value(*(f"/sys/module/{name}/{file}" for file in version_files))
        return version, "dkms" if "O" in taint else "inbox"

    return version_and_flavor


def _nvidia_module(host: Host) -> tuple[str | None, str | None]:
    return parse.parse_nvidia_version(host.read("/proc/driver/nvidia/version") or "") or (None, None)


_DRIVERS = {
    "amdgpu": _module("amdgpu", "version"),  # none in the kernel's own: it has no version but the kernel's
    "i915": _module("i915", "agama_version", "srcversion"),  # agama: Intel's backport; the order is compute-runtime's
    "nvidia": _nvidia_module,
    "xe": _module("xe", "srcversion"),
}


def packages(host: Host) -> Found:
    return Found(facts=parse.package_facts(host.read("/var/lib/dpkg/status") or ""))


def rocm(host: Host) -> Found:
    def release(folder: str) -> str | None:
        return parse.rocm_release(host.read(f"/opt/{folder}/.info/version") or "")

    installed = [release(folder) for folder in host.names("/opt") if folder.startswith("rocm")]
    versions = parse.sorted_versions(version for version in installed if version)
    return _found(rocm_version=release("rocm"), rocm_versions=",".join(versions))


def cuda(host: Host) -> Found:
    return _found(cuda_version=parse.cuda_version(host.read("/usr/local/cuda/version.json") or ""))


def home(host: Host) -> Found:
    _, mount = _home(host)
    return _found(home_fs_type=mount.fs_type if mount and mount.fs_type != "autofs" else None)


def home_cache(host: Host) -> Found:
    """Whether a job could fill its caches, MIOpen's among them, which it keeps in ~/.cache and ~/.config.

    Only the owner of a home can find out: root of a client is nobody on most NFS servers, and would be refused where
    the user is not. For another user's home, "false" is told where the mount is read-only, and else nothing.
    """
    folder, mount = _home(host)
    if folder is None or mount is None:
        return Found()
    if mount.read_only:
        return _found(home_cache_writable="false")
    if host.owner(folder) != os.geteuid():
        return Found()
    at_home = host.real(folder)
    # A missing folder is made by the first job that needs it: then the question is whether the home takes entries.
    # We do not make it ourselves, since a job could find it just before we remove it.
    wanted = (host.real(f"{folder}/{name}") for name in (".cache", ".config"))
    targets = {at_home if path.parent == at_home and not os.path.exists(path) else path for path in wanted}
    return _found(home_cache_writable=str(all(map(_takes_files, targets))).lower())


def _home(host: Host) -> tuple[str | None, parse.Mount | None]:
    """The home of jobs and the mount that holds it."""
    # The mounts of pid 1, which only root may read, are the node's; our own may be a sandbox's (ProtectHome=) or, below
    # another root, a container's, in which no path of the host can be looked up.
    own = ("/proc/self/mountinfo",) if host.root == Path("/") else ()
    mounts = parse.parse_mountinfo(host.read("/proc/1/mountinfo", *own) or "")
    folder = host.home or parse.first_home_mount(mounts)
    if folder is None:
        return None, None
    mount = parse.mount_holding(mounts, folder)
    if mount and mount.point == "/":
        # No mount by that name, but perhaps a link to one. In the other case no link is followed, nor the home touched:
        # what holds it is known even while its server is gone, which is when it matters.
        mount = parse.mount_holding(mounts, host.resolve(folder))
    return folder, mount


def _takes_files(folder: Path) -> bool:
    """Whether this process can create, fill, sync and remove a file in `folder`; quotas and NFS answer only to a sync.

    Nothing is left behind, even by kill -9: the file has no name from the start (O_TMPFILE) or, where the file system
    knows no such files, loses it before anything is written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".gpufault-", buffering=0) as file:
            file.write(bytes(4096))
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def _addresses(host: Host, folder: str) -> list[str]:
    """The PCI addresses among the names in `folder`: a driver's has `bind`, `module` and others besides."""
    return [name for name in host.names(folder) if parse.normalise_pci(name) == name]


def _found(**stated: str | None) -> Found:
    return Found(facts={fact: value for fact, value in stated.items() if value})


# Of two statements of one thing, the earlier row counts: product_name before the table of PCI ids.
PROBES: Mapping[str, Probe] = {
    "linux": linux,
    "amdgpu": amdgpu,
    "nvidia": nvidia,
    "kfd": kfd,
    "pci": pci,
    "drivers": drivers,
    "packages": packages,
    "rocm": rocm,
    "cuda": cuda,
    "home": home,
    "home_cache": home_cache,
}


def gather(
    rootfs: Path = Path("/"),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] = {},
    timeout_seconds: float = 0.2,
    probes: Mapping[str, Probe] = PROBES,
) -> Gathered:
    """The facts of the machine below `rootfs`, in at most `timeout_seconds`, since all probes run at once.

    `home` is a home folder of jobs, as the machine names it. Without it, $HOME of `environ` is taken, unless it is a
    service's: then we run as some user, most likely inside a job. Else it is the first mount at or below /home. A fleet
    whose homes are elsewhere (/users, /g/g0) has to say so.
    """
    at_home = str(home) if home else environ.get("HOME", "")
    known_home = at_home if home or not parse.is_service_home(at_home) else None
    # A probe that still hangs from an earlier call is not started again: at most one thread of each is ever lost.
    hanging = {thread.name for thread in threading.enumerate()}
    runs = {name: _Run(name, probe, Host(rootfs, known_home)) for name, probe in probes.items()}
    deadline = time.monotonic() + timeout_seconds
    for run in runs.values():
        if run.name not in hanging:
            run.start()

    found: list[Found] = []
    failed: dict[str, str] = {}
    for name, run in runs.items():
        if run.name in hanging:
            failed[name] = "still hangs since an earlier call"
            continue
        run.join(max(0.0, deadline - time.monotonic()))
        if run.is_alive():
            failed[name] = f"no answer within {timeout_seconds:g} s"
            continue
        found.append(run.found)
        if run.problems:
            failed[name] = _one_line(run.problems)

    facts = {fact: value for each in reversed(found) for fact, value in each.facts.items()}
    gpus = parse.merge_gpus(gpu for each in found for gpu in each.gpus)
    return Gathered(facts=parse.concluded(facts, gpus), failed=failed, gpus=gpus)


class _Run(threading.Thread):
    """One probe at work, in a daemon thread.

    Not in a helper process: a thread starts in 0.1 ms, an interpreter in 50, and a daemon that has threads must not
    fork without exec. Nor would a process help: it hangs just as long as a thread does. What matters is that neither
    keeps us from ending: a wait for a dead NFS server is killable (TASK_KILLABLE, Linux 2.6.25), and a daemon thread
    ends with its process.
    """

    def __init__(self, name: str, probe: Probe, host: Host) -> None:
        super().__init__(name=f"probe {name} of {host.root}", daemon=True)
        self._probe = probe
        self._host = host
        self.found = Found()
        self.problems = host.problems

    def run(self) -> None:
        try:
            self.found = self._probe(self._host)
        except Exception as error:  # one probe must not hide the others; it is told in Gathered.failed
            self.problems.append(f"{type(error).__name__}: {error}")


def _one_line(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return " ".join(problems[0].split()) + more
