"""Facts from texts: the forms in which kernels, drivers and dpkg state them, and the forms in which they do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core import facts
from exporter.core.facts import Gpu, Mount

# PCI addresses


@pytest.mark.parametrize(
    "spelling",
    [
        "0000:c1:00.0",
        "0000:C1:00.0",
        "0000:c1:00",  # Xid
        "PCI:0000:c1:00",  # Xid, with its prefix
        "00000000:C1:00.0",  # nvidia-smi
        "c1:00.0",  # lspci
        "[c1:00.0]",  # DMAR
        " 0000:c1:00.0\n",
    ],
)
def test_every_spelling_of_a_pci_address_becomes_the_kernels(spelling: str) -> None:
    assert facts.normalise_pci(spelling) == "0000:c1:00.0"


@pytest.mark.parametrize(
    "text", ["", "c1", "12:34", "0000:c1:00.8", "0000:c1:20.0", "0000:c1:00.0:1", "mlx5_0", "0000:c1:00.0 x"]
)
def test_what_is_no_pci_address_is_none(text: str) -> None:
    assert facts.normalise_pci(text) is None


def test_a_domain_that_needs_more_than_four_digits_keeps_them() -> None:
    assert facts.normalise_pci("10000:01:00.0") == "10000:01:00.0"  # Intel VMD
    assert facts.normalise_pci("03F8CFDD:00:00.0") == "3f8cfdd:00:00.0"  # Azure, NVIDIA/nvidia-docker#1316


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))
def test_nvidia_smi_and_the_kernel_mean_the_same_gpu(domain: int, bus: int, device: int, function: int) -> None:
    kernel = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"

    assert facts.normalise_pci(f"{domain:08X}:{bus:02X}:{device:02X}.{function}") == kernel
    assert facts.normalise_pci(kernel) == kernel


def test_a_kfd_node_is_found_by_its_location() -> None:
    assert facts.kfd_location(0, 49408) == "0000:c1:00.0"
    assert facts.kfd_location(1, 0x7508) == "0001:75:01.0"


@pytest.mark.parametrize("partition", [0xC103, 0x3000_C100])  # as kernels up to 6.8 have it, and as later ones do
def test_a_partition_of_an_mi300_is_on_the_address_of_its_gpu(partition: int) -> None:
    assert facts.kfd_location(0, partition) == "0000:c1:00.0"


@pytest.mark.parametrize(
    ("version", "target"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90006, "gfx906"), (110000, "gfx1100"), (100300, "gfx1030"), (0, "")],
)
def test_a_gfx_target_is_written_as_compilers_write_it(version: int, target: str) -> None:
    assert facts.gfx_target(version) == target


# GPUs


def test_a_gpu_without_a_product_name_is_known_by_its_pci_id() -> None:
    uevent = "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A0\nPCI_SLOT_NAME=0000:01:00.0\n"

    assert facts.gpu_of_uevent(uevent) == Gpu(pci="0000:01:00.0", vendor="amd", model="AMD Instinct MI300A")


def test_a_gpu_that_no_table_lists_is_told_by_its_pci_id() -> None:
    uevent = "PCI_CLASS=30000\nPCI_ID=8086:4680\nPCI_SLOT_NAME=0000:00:02.0\n"

    assert facts.gpu_of_uevent(uevent) == Gpu(pci="0000:00:02.0", vendor="intel", model="intel 8086:4680")


@pytest.mark.parametrize(
    "uevent",
    [
        "DRIVER=ast\nPCI_CLASS=30000\nPCI_ID=1A03:2000\nPCI_SLOT_NAME=0000:63:00.0\n",  # the graphics of a BMC
        "PCI_CLASS=40300\nPCI_ID=1002:AB28\nPCI_SLOT_NAME=0000:03:00.1\n",  # the sound of a Radeon
        "PCI_CLASS=120000\nPCI_ID=8086:7D1D\nPCI_SLOT_NAME=0000:00:0b.0\n",  # an Intel NPU
        "PCI_CLASS=30200\nPCI_ID=10DE:2330\n",
        "",
    ],
)
def test_a_device_that_is_no_gpu_is_none(uevent: str) -> None:
    assert facts.gpu_of_uevent(uevent) is None


def test_every_model_is_listed_by_the_id_that_a_uevent_is_looked_up_by() -> None:
    assert [pci_id for pci_id in facts.MODELS if pci_id != pci_id.lower() or len(pci_id) != 9] == []


def test_a_kfd_node_of_a_gpu_gives_its_address_and_target() -> None:
    properties = "simd_count 304\ngfx_target_version 90402\nlocation_id 29952\ndomain 0\nunique_id 9895604649984\n"

    assert facts.gpu_of_kfd_node(4, properties) == Gpu(
        pci="0000:75:00.0", vendor="amd", kfd_node=4, gfx_target="gfx942"
    )


@pytest.mark.parametrize("properties", ["gfx_target_version 0\nlocation_id 0\n", "gfx_target_version 90402\n", ""])
def test_a_kfd_node_of_a_cpu_or_without_a_location_is_no_gpu(properties: str) -> None:
    assert facts.gpu_of_kfd_node(0, properties) is None


def test_two_statements_of_one_gpu_are_one_gpu_and_the_first_counts() -> None:
    stated = [
        Gpu(pci="0000:c1:00.0", model="AMD Instinct MI210", vbios="113-D67301"),
        Gpu(pci="0000:05:00.0", vendor="amd", model="AMD Instinct MI300A"),
        Gpu(pci="0000:c1:00.0", vendor="amd", model="amd 1002:740f", kfd_node=4),
    ]

    assert facts.merge_gpus(stated) == (
        Gpu(pci="0000:05:00.0", vendor="amd", model="AMD Instinct MI300A"),
        Gpu(pci="0000:c1:00.0", vendor="amd", model="AMD Instinct MI210", vbios="113-D67301", kfd_node=4),
    )


@pytest.mark.parametrize(
    "placeholder", ["GPU-????????-????-????-????-????????????", "??.??.??.??.??", "0", "0x0", "0000000000000000", " \n"]
)
def test_a_placeholder_is_nobodys_identity(placeholder: str) -> None:
    assert facts.identity(placeholder) is None


@pytest.mark.parametrize("garbage", ["", "\n", "MI2\x0010", "\x1b[31mMI210", "one\ntwo", "x" * 201, "\\xff\x00"])
def test_garbage_is_not_a_value(garbage: str) -> None:
    assert facts.one_value(garbage) is None


def test_several_models_are_one_sorted_fact() -> None:
    gpus = (Gpu(pci="0000:05:00.0", model="b"), Gpu(pci="0000:06:00.0", model="a"), Gpu(pci="0000:07:00.0", model="b"))

    assert facts.concluded({}, gpus) == {"gpu_model": "a+b"}


# Linux


def test_the_os_is_its_id_and_version_without_the_point_release() -> None:
    assert facts.os_name('PRETTY_NAME="Ubuntu 22.04.4 LTS"\nVERSION_ID="22.04"\nID=ubuntu\n') == "ubuntu 22.04"
    assert facts.os_name("ID='sles'\nVERSION_ID='15.5'\n") == "sles 15.5"
    assert facts.os_name("ID=arch\n") == "arch"
    assert facts.os_name("") is None


@pytest.mark.parametrize(
    ("group_type", "mode"),
    [("identity", "pt"), ("DMA", "translated"), ("DMA-FQ", "translated"), ("blocked", "blocked")],
)
def test_the_iommu_mode_is_what_it_does_to_dma(group_type: str, mode: str) -> None:
    assert facts.iommu_mode(group_type) == mode


MOUNTINFO = """\
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
97 28 0:51 / /home rw,relatime shared:52 - nfs4 nfs01:/home rw,vers=4.2,soft
98 97 0:52 / /home/bob ro,noatime master:3 propagate_from:2 - nfs nfs02:/bob rw
99 28 0:53 / /scratch\\040tmp rw shared:53 - lustre 10.0.0.1@o2ib:/s ro,flock
this line is not of that form
100 28 0:54 / /homes rw - xfs
"""


def test_mounts_are_read_with_their_types_and_whether_they_can_be_written() -> None:
    assert facts.parse_mountinfo(MOUNTINFO) == (
        Mount(point="/", fs_type="ext4", read_only=False),
        Mount(point="/home", fs_type="nfs4", read_only=False),
        Mount(point="/home/bob", fs_type="nfs", read_only=True),
        Mount(point="/scratch tmp", fs_type="lustre", read_only=True),
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
    mount = facts.mount_holding(facts.parse_mountinfo(MOUNTINFO), path)

    assert mount is not None
    assert mount.point == point


def test_the_later_of_two_mounts_on_one_point_hides_the_earlier() -> None:
    trigger = Mount(point="/home/alice", fs_type="autofs", read_only=False)
    mounted = Mount(point="/home/alice", fs_type="nfs4", read_only=False)

    assert facts.mount_holding([trigger, mounted], "/home/alice") == mounted


def test_no_mounts_hold_nothing() -> None:
    assert facts.mount_holding([], "/home/alice") is None


@given(st.text(st.sampled_from("a/ \t\\\n#-")))
def test_any_mount_point_survives_the_kernels_escapes(name: str) -> None:
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in f"/{name}")

    (mount,) = facts.parse_mountinfo(f"1 0 0:1 / {escaped} rw shared:1 - ext4 /dev/sda rw\n")

    assert mount.point == f"/{name}"


def test_the_home_of_jobs_is_the_first_mount_at_or_below_home_that_is_more_than_a_trigger() -> None:
    def mount(point: str, fs_type: str) -> Mount:
        return Mount(point=point, fs_type=fs_type, read_only=False)

    root, trigger = mount("/", "xfs"), mount("/home", "autofs")

    assert facts.first_home_mount([root, trigger, mount("/home/zoe", "nfs4"), mount("/home/al", "nfs4")]) == "/home/al"
    assert facts.first_home_mount([root, mount("/home", "nfs4")]) == "/home"
    assert facts.first_home_mount([root, trigger, mount("/homes", "nfs4")]) is None


@pytest.mark.parametrize("home", ["", "/", "/root", "/nonexistent", "/var/lib/gpufault"])
def test_the_home_of_a_service_is_not_that_of_jobs(home: str) -> None:
    assert facts.is_service_home(home)


@pytest.mark.parametrize("home", ["/home/alice", "/users/alice", "/var/home/alice", "/rootfs/alice"])
def test_the_home_of_a_person_is_that_of_jobs(home: str) -> None:
    assert not facts.is_service_home(home)


# Drivers, packages and toolkits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\nGCC version: 12.3.0\n",
            ("550.90.07", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
            ("535.104.05", "proprietary"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  590.48.01  Release Build\n",
            ("590.48.01", "open"),
        ),
        ("GCC version:  gcc version 12.3.0\n", None),
        ("", None),
    ],
)
def test_the_nvidia_driver_tells_its_version_and_flavour(text: str, expected: tuple[str, str] | None) -> None:
    assert facts.parse_nvidia_version(text) == expected


@pytest.mark.parametrize(
    ("package_version", "release"),
    [
        ("22.20.50200-1438746~20.04", "5.2.0"),
        ("1:6.2.60202-2041575.22.04", "6.2.2"),
        ("1:6.1.60101-1769056.22.04", "6.1.1"),
        ("1:6.8.5.60200-2009582.24.04", "6.2.0"),  # amdgpu-dkms
        ("1:5.13.20.22.10.50103-1420322", "5.1.3"),  # amdgpu-dkms of the old scheme
        ("1:6.14.14.30100000-2204008.24.04", None),  # 30.10.0, a release of the driver alone
        ("6.10.5-1", None),
        ("", None),
    ],
)
def test_an_amdgpu_package_tells_the_rocm_release_it_was_made_for(package_version: str, release: str | None) -> None:
    assert facts.rocm_release_of_amdgpu_package(package_version) == release


def test_installed_packages_tell_their_versions_and_removed_ones_nothing() -> None:
    status = """\
Package: amdgpu-core
Status: hold ok installed
Version: 1:6.2.60202-2041575.22.04
Description: core
 Version: 9 is a word in the description

Package: amdgpu-core-extra
Status: install ok installed
Version: 7

Package: intel-opencl-icd
Status: deinstall ok config-files
Version: 22.43.24595.30

Package: libze-intel-gpu1
Status: install ok installed
Version: 24.45.31740.9-1~22.04

Package: libze1
Status: install ok installed
Version: 1.16.1-1build1"""

    assert facts.package_facts(status) == {
        "amdgpu_core_package": "1:6.2.60202-2041575.22.04",
        "amdgpu_rocm_release": "6.2.2",
        "neo_version": "24.45.31740.9",
        "level_zero_version": "1.16.1",
    }


def test_a_status_file_that_is_cut_off_tells_what_is_left_of_it() -> None:
    status = "Package: libze1\nStatus: install ok installed\nVersion: 1.16.1\n\nPackage: amdgpu-core\nStatus: inst"

    assert facts.package_facts(status) == {"level_zero_version": "1.16.1"}


def test_a_rocm_release_leaves_its_build_out() -> None:
    assert facts.rocm_release("6.3.1-48\n") == "6.3.1"
    assert facts.rocm_release("6.4") == "6.4"
    assert facts.rocm_release("unknown\n") is None


def test_versions_are_sorted_as_versions() -> None:
    assert facts.sorted_versions(["6.10.0", "6.2.0", "5.7", "6.2.0"]) == ["5.7", "6.2.0", "6.10.0"]


def test_the_cuda_version_is_that_of_the_toolkit_and_not_of_a_part() -> None:
    parts = {"cuda_cccl": {"version": "12.4.127"}, "cuda": {"name": "CUDA SDK", "version": "12.4.1"}}

    assert facts.cuda_version(json.dumps(parts, indent=3)) == "12.4.1"
    assert facts.cuda_version("{") is None


@pytest.mark.parametrize(
    ("driver_release", "rocm", "mix"),
    [("5.2.0", "6.2.3", "true"), ("6.2.2", "6.2.0", "false"), ("6.2.2", None, None), (None, "6.2.3", None)],
)
def test_a_mix_of_rocm_releases_is_told_where_both_are_known(
    driver_release: str | None, rocm: str | None, mix: str | None
) -> None:
    stated = {"amdgpu_rocm_release": driver_release, "rocm_version": rocm}
    known = {fact: value for fact, value in stated.items() if value}

    assert facts.concluded(known, ()).get("rocm_mix") == mix


HAZARDS = st.text(st.sampled_from("\r\n\0\x1b\\\"'=: -./?0129aZ{}\uffff\u0663"), max_size=40)


@given(st.lists(st.one_of(HAZARDS, st.sampled_from(["PCI_ID=", "Package: libze1\n", "Version: ", " - ", "Model:"]))))
def test_no_text_is_an_error(pieces: list[str]) -> None:
    text = "".join(pieces)

    facts.normalise_pci(text)
    facts.gpu_of_uevent(text)
    facts.gpu_of_kfd_node(0, text)
    facts.gpu_of_nvidia_information("0000:c1:00.0", text)
    facts.identity(text)
    facts.os_name(text)
    facts.parse_mountinfo(text)
    facts.parse_nvidia_version(text)
    facts.package_facts(text)
    facts.rocm_release(text)
    facts.cuda_version(text)
