"""Mounts, as mountinfo tells them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.facts import mounts
from exporter.core.facts.mounts import Mount

MOUNTINFO = """\
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
97 28 0:51 / /home rw,relatime shared:52 - nfs4 nfs01:/home rw,vers=4.2,soft
98 97 0:52 / /home/bob ro,noatime master:3 propagate_from:2 - nfs nfs02:/bob rw
99 28 0:53 / /scratch\\040tmp rw shared:53 - lustre 10.0.0.1@o2ib:/s ro,flock
this line is not of that form
100 28 0:54 / /homes rw - xfs
"""


def test_mounts_are_read_with_their_types_and_whether_they_can_be_written() -> None:
    assert mounts.parse_mountinfo(MOUNTINFO) == (
        Mount(point="/", fs_type="ext4", read_only=False, options=("rw",)),
        Mount(point="/home", fs_type="nfs4", read_only=False, options=("rw", "vers=4.2", "soft")),
        Mount(point="/home/bob", fs_type="nfs", read_only=True, options=("rw",)),
        Mount(point="/scratch tmp", fs_type="lustre", read_only=True, options=("ro", "flock")),
    )


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/home/alice", "/home"),
        ("/home/bob", "/home/bob"),
        ("/home/bob/.cache", "/home/bob"),
        ("/home/bobby", "/home"),
        ("/homes/carol", "/"),
        ("/scratch tmp/x", "/scratch tmp"),
        ("/", "/"),
    ],
)
def test_a_path_is_held_by_the_longest_mount_point_above_it(path: str, point: str) -> None:
    mount = mounts.mount_holding(mounts.parse_mountinfo(MOUNTINFO), path)

    assert mount is not None
    assert mount.point == point


def test_the_later_of_two_mounts_on_one_point_hides_the_earlier() -> None:
    trigger = Mount(point="/home/alice", fs_type="autofs", read_only=False)
    mounted = Mount(point="/home/alice", fs_type="nfs4", read_only=False)

    assert mounts.mount_holding([trigger, mounted], "/home/alice") == mounted


def test_no_mounts_hold_nothing() -> None:
    assert mounts.mount_holding([], "/home/alice") is None


@given(st.text(st.sampled_from("a/ \t\\\n#-")))
def test_any_mount_point_survives_the_kernels_escapes(name: str) -> None:
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in f"/{name}")

    (mount,) = mounts.parse_mountinfo(f"1 0 0:1 / {escaped} rw shared:1 - ext4 /dev/sda rw\n")

    assert mount.point == f"/{name}"


def test_the_home_of_jobs_is_the_first_mount_at_or_below_home_that_is_more_than_a_trigger() -> None:
    def mount(point: str, fs_type: str) -> Mount:
        return Mount(point=point, fs_type=fs_type, read_only=False)

    root, trigger = mount("/", "xfs"), mount("/home", "autofs")

    assert mounts.first_home_mount([root, trigger, mount("/home/zoe", "nfs4"), mount("/home/al", "nfs4")]) == "/home/al"
    assert mounts.first_home_mount([root, mount("/home", "nfs4")]) == "/home"
    assert mounts.first_home_mount([root, trigger, mount("/homes", "nfs4")]) is None


@pytest.mark.parametrize("home", ["", "/", "/root", "/nonexistent", "/var/lib/gpufault"])
def test_the_home_of_a_service_is_not_that_of_jobs(home: str) -> None:
    assert mounts.is_service_home(home)


@pytest.mark.parametrize("home", ["/home/alice", "/users/alice", "/var/home/alice", "/rootfs/alice"])
def test_the_home_of_a_person_is_that_of_jobs(home: str) -> None:
    assert not mounts.is_service_home(home)


def test_only_mount_options_that_affect_jobs_are_reported() -> None:
    def mount(fs_type: str, *options: str) -> Mount:
        return Mount(point="/home", fs_type=fs_type, read_only=False, options=options)

    assert (
        mounts.mount_options(mount("nfs4", "rw", "vers=4.2", "soft", "addr=10.0.0.1", "timeo=50"))
        == "soft,timeo=50,vers=4.2"
    )
    assert mounts.mount_options(mount("ext4", "rw", "soft")) is None


SHM = "33 28 0:29 / /dev/shm rw,nosuid - tmpfs tmpfs rw"


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (f"{SHM},size=65536k,inode64\n", "64 MiB"),  # what Docker gives a container
        (f"{SHM},size=268435456\n", "256 MiB"),
        (f"{SHM}\n", "32 GiB"),
        ("33 28 0:29 / /dev rw - devtmpfs devtmpfs rw\n", None),
        ("", None),
    ],
)
def test_shared_memory_is_as_large_as_mounted_or_half_the_memory(line: str, size: str | None) -> None:
    assert mounts.shm_size(mounts.parse_mountinfo(line), 64 << 30) == size
