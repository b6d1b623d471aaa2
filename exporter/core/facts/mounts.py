"""Mounts: the file system of a path, from `/proc/<pid>/mountinfo`, without access to the file system."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.core.facts.parsing import size

NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.cephfs", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "gpfs",
    "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "virtiofs", "wekafs",
}  # fmt: skip


# Where only a broken disk or the kernel itself keeps a call waiting, and inotify tells of all changes.
LOCAL = {
    "bcachefs", "btrfs", "cgroup", "cgroup2", "devtmpfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs",
    "nilfs2", "ntfs3", "overlay", "proc", "ramfs", "reiserfs", "rootfs", "squashfs", "sysfs", "tmpfs", "vfat", "xfs", "zfs",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    point: str
    fs_type: str
    read_only: bool  # by the mount's own options or by those of its file system
    options: tuple[str, ...] = ()  # of the file system: vers=4.2, soft, size=64k

    @property
    def is_local(self) -> bool:
        return self.fs_type in LOCAL


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts of `/proc/<pid>/mountinfo` (proc(5)), in order; invalid lines are skipped."""
    mounts = []
    for line in text.split("\n"):
        mount, _, file_system = line.partition(" - ")
        match mount.split(), file_system.split():
            case [_, _, _, _, point, options, *_], [fs_type, _, *super_options]:
                flags = {*options.split(","), *",".join(super_options).split(",")}
                mounts.append(
                    Mount(
                        point=_unescaped(point), fs_type=fs_type, read_only="ro" in flags, options=_split(super_options)
                    )
                )
    return tuple(mounts)


def _split(options: list[str]) -> tuple[str, ...]:
    return tuple(options[0].split(",")) if options else ()


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def mount_holding(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount of an absolute path without links: the longest mount point; of several, the latest."""
    holders = [mount for mount in mounts if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(holders), key=lambda mount: len(mount.point), default=None)


def first_home_mount(mounts: Iterable[Mount]) -> str | None:
    """The home of jobs by mounts: the first (sorted) mount at or below /home.

    An autofs mount is only a trigger. A /home on the root disk proves nothing: jobs' homes may be elsewhere.
    """
    return min(
        (mount.point for mount in mounts if f"{mount.point}/".startswith("/home/") and mount.fs_type != "autofs"),
        default=None,
    )


def is_service_home(home: str) -> bool:
    """Whether $HOME belongs to root or a service (systemd's DynamicUser has /), not to a job."""
    return home in ("", "/", "/root", "/nonexistent") or home.startswith("/var/lib/")


def network_types(mounts: Iterable[Mount]) -> str | None:
    """The mounted network file systems: `lustre+nfs4`."""
    return "+".join(sorted({mount.fs_type for mount in mounts} & NETWORK)) or None


_NFS_OPTIONS = re.compile(r"vers=|soft|hard|nolock|noac|local_lock=|timeo=|proto=")


def mount_options(mount: Mount) -> str | None:
    """The options of an NFS mount that affect jobs: `hard,proto=tcp,timeo=600,vers=4.2`.

    On a soft mount a job gets EIO instead of waiting; without locks, two ranks can corrupt a database.
    """
    if mount.fs_type not in ("nfs", "nfs4"):
        return None
    return ",".join(sorted(option for option in mount.options if _NFS_OPTIONS.match(option))) or None


def shm_size(mounts: Iterable[Mount], memory_bytes: int | None) -> str | None:
    """The size of /dev/shm: as mounted, else half of the memory (Documentation/filesystems/tmpfs.rst)."""
    mount = mount_holding(mounts, "/dev/shm")  # noqa: S108 (no file of ours)
    if mount is None or mount.point != "/dev/shm" or mount.fs_type != "tmpfs":  # noqa: S108
        return None
    for option in mount.options:
        match = re.fullmatch(r"size=(\d{1,20})([kmg]?)", option)
        if match:
            return size(int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]])
    return size(memory_bytes // 2) if memory_bytes else None
