"""Packages of dpkg and rpm, and the facts that follow."""

import struct

import pytest

from exporter.core.facts import packages


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

    assert packages.package_facts(packages.dpkg_versions(status)) == {
        "amdgpu_core_package": "1:6.2.60202-2041575.22.04",
        "amdgpu_rocm_release": "6.2.2",
        "neo_version": "24.45.31740.9",
        "level_zero_version": "1.16.1",
    }


def test_a_status_file_that_is_cut_off_tells_what_is_left_of_it() -> None:
    status = "Package: libze1\nStatus: install ok installed\nVersion: 1.16.1\n\nPackage: amdgpu-core\nStatus: inst"

    assert packages.package_facts(packages.dpkg_versions(status)) == {"level_zero_version": "1.16.1"}


def rpm_header(**texts: str) -> bytes:
    """A header as rpm stores it: counts, an index of tags, their values."""
    tags = {"name": 1000, "version": 1001, "release": 1002}
    index, store = b"", b""
    for name, text in texts.items():
        index += struct.pack(">IIII", tags[name], 6, len(store), 1)
        store += text.encode() + b"\0"
    index += struct.pack(">IIII", 1003, 4, len(store), 1)  # an epoch, which is a number
    return struct.pack(">II", len(texts) + 1, len(store)) + index + store


def test_a_header_of_rpm_tells_name_and_version() -> None:
    header = rpm_header(name="rccl", version="2.20.5.60203", release="113.el9")

    assert packages.rpm_version(header) == ("rccl", "2.20.5.60203-113.el9")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"garbage!garbage!",
        rpm_header(name="rccl", version="2.20.5"),
        rpm_header(name="rccl", version="1", release="1")[:-4],
        struct.pack(">II", 2**32 - 1, 0),
    ],
)
def test_an_invalid_rpm_header_gives_no_version(header: bytes) -> None:
    assert packages.rpm_version(header) is None


def test_packages_of_two_rocm_releases_are_a_mix() -> None:
    versions = {"rocm-core": "6.2.3.60203-124~22.04", "rocblas": "4.1.2.60102-119~22.04"}

    assert packages.package_facts(versions)["rocm_packages"] == "6.1.2,6.2.3"


def test_a_package_whose_name_has_the_drivers_branch_is_found() -> None:
    assert packages.wanted("nvidia-fabricmanager-550")
    assert packages.package_facts({"nvidia-fabricmanager-550": "550.90.07-1"}) == {"fabricmanager_version": "550.90.07"}
    assert not packages.wanted("nvidia-fabricmanager-dev-550")
