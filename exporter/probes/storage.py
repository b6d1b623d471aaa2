"""File systems of homes, caches and toolkits, from mountinfo, so a dead server cannot block."""

import os
import tempfile
from pathlib import Path

from exporter.core.facts import mounts as parse
from exporter.core.facts.linux import memory_bytes
from exporter.core.facts.parsing import distinct_values
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available

_MOUNTS = "/proc/1/mountinfo"


def _mounts(host: Host) -> tuple[parse.Mount, ...]:
    # The node's mounts are those of pid 1, which only root may read. Our own may be a sandbox's (ProtectHome=) or, below
    # another root, a container's.
    own = ("/proc/self/mountinfo",) if host.root == Path("/") else ()
    return parse.parse_mountinfo(host.read(_MOUNTS, *own) or "")


def _collect(host: Host) -> ProbeResult:
    mounts = _mounts(host)

    def type_of(path: str) -> str | None:
        mount = parse.mount_holding(mounts, path)
        return mount.fs_type if mount else None

    return ProbeResult(
        facts=available(
            network_mounts=parse.network_types(mounts),
            root_fs_type=type_of("/"),
            tmp_fs_type=type_of("/tmp"),  # noqa: S108 (a fact about it; no file of ours)
            rocm_fs_type=type_of(host.resolve("/opt/rocm")) if "rocm" in host.names("/opt") else None,
            shm_size=parse.shm_size(mounts, memory_bytes(host.read("/proc/meminfo") or "")),
            nvme_firmware=distinct_values(
                host.value(f"/sys/class/nvme/{name}/firmware_rev") for name in host.names("/sys/class/nvme")
            ),
            nvme_model=distinct_values(
                host.value(f"/sys/class/nvme/{name}/model") for name in host.names("/sys/class/nvme")
            ),
        )
    )


STORAGE = Probe(
    collect=_collect,
    facts={
        "network_mounts": Fact("mounted network file systems", _MOUNTS),
        "root_fs_type": Fact("file system of /; diskless nodes have tmpfs, overlay or nfs", _MOUNTS),
        "tmp_fs_type": Fact("file system of /tmp", _MOUNTS),
        "rocm_fs_type": Fact("file system of /opt/rocm", _MOUNTS),
        "shm_size": Fact("maximum size of /dev/shm", f"{_MOUNTS}, /proc/meminfo"),
        "nvme_model": Fact("models of the local disks", "/sys/class/nvme/*/model"),
        "nvme_firmware": Fact("firmware of the local disks", "/sys/class/nvme/*/firmware_rev"),
    },
)


def _home_mount(host: Host) -> ProbeResult:
    _, mount = _home(host)
    if mount is None or mount.fs_type == "autofs":
        return ProbeResult()
    return ProbeResult(facts=available(home_fs_type=mount.fs_type, home_mount_options=parse.mount_options(mount)))


def _home_cache(host: Host) -> ProbeResult:
    """Whether a job can write its caches in ~/.cache and ~/.config, such as MIOpen's.

    Only the owner of a home can check: on most NFS servers a client's root is nobody. For other users' homes, only a
    read-only mount gives a fact.
    """
    folder, mount = _home(host)
    if folder is None or mount is None:
        return ProbeResult()
    if mount.read_only:
        return ProbeResult(facts={"home_cache_writable": "false"})
    if host.owner(folder) != os.geteuid():
        return ProbeResult()
    at_home = host.real(folder)
    # The first job that needs a missing folder creates it, so the home itself is checked. We never create it: a job could
    # find it before we remove it.
    wanted = (host.real(f"{folder}/{name}") for name in (".cache", ".config"))
    targets = {at_home if path.parent == at_home and not os.path.exists(path) else path for path in wanted}
    return ProbeResult(facts={"home_cache_writable": str(all(map(_takes_files, targets))).lower()})


def _home(host: Host) -> tuple[str | None, parse.Mount | None]:
    mounts = _mounts(host)
    folder = host.home or parse.first_home_mount(mounts)
    if folder is None:
        return None, None
    mount = parse.mount_holding(mounts, folder)
    if mount and mount.point == "/":
        # Perhaps a link to a mount. A mounted home is never accessed, so its mount is known even if its server is gone.
        mount = parse.mount_holding(mounts, host.resolve(folder))
    return folder, mount


def _takes_files(folder: Path) -> bool:
    """Whether this process can write and sync a file in `folder`; quotas and NFS report errors only on sync.

    Nothing is left behind, even by kill -9: the file has no name (O_TMPFILE) or loses it before the write.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".gpufault-", buffering=0) as file:
            file.write(bytes(4096))
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


HOME = Probe(
    collect=_home_mount,
    facts={
        "home_fs_type": Fact("file system of the homes of jobs", _MOUNTS),
        "home_mount_options": Fact("NFS options of the homes: soft or hard, locks, version", _MOUNTS),
    },
)

HOME_CACHE = Probe(
    collect=_home_cache,
    facts={
        "home_cache_writable": Fact(
            "whether a job can write its caches in its home; checked with an unnamed file",
            "~/.cache and ~/.config of our own home; else the mount's read-only flag",
        )
    },
)
