"""File systems: what the homes, caches and toolkits of jobs lie on. Told from mountinfo, so that no dead server is asked."""

import os
import tempfile
from pathlib import Path

from exporter.core.facts import mounts as parse
from exporter.core.facts.linux import memory_bytes
from exporter.core.facts.values import distinct_values
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_MOUNTS = "/proc/1/mountinfo"


def _mounts(host: Host) -> tuple[parse.Mount, ...]:
    # The mounts of pid 1, which only root may read, are the node's; our own may be a sandbox's (ProtectHome=) or, below
    # another root, a container's, in which no path of the host can be looked up.
    own = ("/proc/self/mountinfo",) if host.root == Path("/") else ()
    return parse.parse_mountinfo(host.read(_MOUNTS, *own) or "")


def _look(host: Host) -> Found:
    mounts = _mounts(host)

    def type_of(path: str) -> str | None:
        mount = parse.mount_holding(mounts, path)
        return mount.fs_type if mount else None

    return Found(
        facts=known_facts(
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
    look=_look,
    facts={
        "network_mounts": Fact("network file systems that are mounted", _MOUNTS),
        "root_fs_type": Fact("what the system lies on: a diskless node has tmpfs, overlay or nfs", _MOUNTS),
        "tmp_fs_type": Fact("what /tmp lies on", _MOUNTS),
        "rocm_fs_type": Fact("what /opt/rocm lies on", _MOUNTS),
        "shm_size": Fact("how large /dev/shm may grow", f"{_MOUNTS}, /proc/meminfo"),
        "nvme_model": Fact("the local disks", "/sys/class/nvme/*/model"),
        "nvme_firmware": Fact("their firmware", "/sys/class/nvme/*/firmware_rev"),
    },
)


def _home_mount(host: Host) -> Found:
    _, mount = _home(host)
    if mount is None or mount.fs_type == "autofs":
        return Found()
    return Found(facts=known_facts(home_fs_type=mount.fs_type, home_mount_options=parse.mount_options(mount)))


def _home_cache(host: Host) -> Found:
    """Whether a job could fill its caches, MIOpen's among them, which it keeps in ~/.cache and ~/.config.

    Only the owner of a home can find out: root of a client is nobody on most NFS servers, and would be refused where
    the user is not. For another user's home, "false" is told where the mount is read-only, and else nothing.
    """
    folder, mount = _home(host)
    if folder is None or mount is None:
        return Found()
    if mount.read_only:
        return Found(facts={"home_cache_writable": "false"})
    if host.owner(folder) != os.geteuid():
        return Found()
    at_home = host.real(folder)
    # A missing folder is made by the first job that needs it: then the question is whether the home takes entries.
    # We do not make it ourselves, since a job could find it just before we remove it.
    wanted = (host.real(f"{folder}/{name}") for name in (".cache", ".config"))
    targets = {at_home if path.parent == at_home and not os.path.exists(path) else path for path in wanted}
    return Found(facts={"home_cache_writable": str(all(map(_takes_files, targets))).lower()})


def _home(host: Host) -> tuple[str | None, parse.Mount | None]:
    """The home of jobs and the mount that holds it."""
    mounts = _mounts(host)
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


HOME = Probe(
    look=_home_mount,
    facts={
        "home_fs_type": Fact("what the homes of jobs lie on", _MOUNTS),
        "home_mount_options": Fact("soft or hard, locks and version of a home on NFS", _MOUNTS),
    },
)

HOME_CACHE = Probe(
    look=_home_cache,
    facts={
        "home_cache_writable": Fact(
            "whether a job can fill its caches in its home, found out by writing a file without a name",
            "~/.cache and ~/.config, where the home is ours; else the mount's read-only flag",
        )
    },
)
