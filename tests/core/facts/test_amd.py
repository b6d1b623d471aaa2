"""What amdgpu, KFD and ROCm state, and what they state only in part."""

import pytest

from exporter.core.facts import amd
from exporter.core.facts.gpus import Gpu


def test_a_kfd_node_is_found_by_its_location() -> None:
    assert amd.kfd_location(0, 49408) == "0000:c1:00.0"
    assert amd.kfd_location(1, 0x7508) == "0001:75:01.0"


@pytest.mark.parametrize("partition", [0xC103, 0x3000_C100])  # as kernels up to 6.8 have it, and as later ones do
def test_a_partition_of_an_mi300_is_on_the_address_of_its_gpu(partition: int) -> None:
    assert amd.kfd_location(0, partition) == "0000:c1:00.0"


@pytest.mark.parametrize(
    ("version", "target"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90006, "gfx906"), (110000, "gfx1100"), (100300, "gfx1030"), (0, "")],
)
def test_a_gfx_target_is_written_as_compilers_write_it(version: int, target: str) -> None:
    assert amd.gfx_target(version) == target


def test_a_kfd_node_of_a_gpu_gives_its_address_and_target() -> None:
    properties = "simd_count 304\ngfx_target_version 90402\nlocation_id 29952\ndomain 0\nunique_id 9895604649984\n"

    assert amd.gpu_of_kfd_node(4, properties) == Gpu(
        pci="0000:75:00.0", vendor="amd", kfd_node=4, kfd_nodes=(4,), facts={"gfx_target": "gfx942"}
    )


def test_the_kfd_nodes_of_one_card_are_its_partitions() -> None:
    nodes = [amd.gpu_of_kfd_node(node, "gfx_target_version 90402\nlocation_id 29952\n") for node in (4, 5)]
    assert [(gpu.kfd_node, gpu.kfd_nodes) for gpu in amd.with_partitions(gpu for gpu in nodes if gpu)] == [(4, (4, 5))]


@pytest.mark.parametrize("properties", ["gfx_target_version 0\nlocation_id 0\n", "gfx_target_version 90402\n", ""])
def test_a_kfd_node_of_a_cpu_or_without_a_location_is_not_a_gpu(properties: str) -> None:
    assert amd.gpu_of_kfd_node(0, properties) is None


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
    assert amd.rocm_release_of_amdgpu_package(package_version) == release


def test_a_rocm_release_leaves_its_build_out() -> None:
    assert amd.rocm_release("6.3.1-48\n") == "6.3.1"
    assert amd.rocm_release("6.4") == "6.4"
    assert amd.rocm_release("unknown\n") is None


def test_gpus_in_a_hive_are_linked_by_xgmi() -> None:
    def xgmi(hive: int) -> str | None:
        gpu = amd.gpu_of_kfd_node(1, f"gfx_target_version 90402\nlocation_id 256\nhive_id {hive}\n")
        return gpu.facts.get("xgmi") if gpu else None

    assert (xgmi(12345678901234567), xgmi(0)) == ("true", "false")


@pytest.mark.parametrize(
    ("features", "ecc"),
    [("feature mask: 0x7fff\n", "true"), ("feature mask: 0x4\n", "false"), ("umc: supported\n", None), (None, None)],
)
def test_memory_has_ecc_where_the_memory_controllers_have_ras(features: str | None, ecc: str | None) -> None:
    assert amd.memory_ecc(features) == ecc


def test_retired_pages_are_counted_whether_reserved_or_pending() -> None:
    pages = "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n0x027f5d53 : 0x00001000 : F\nnot a page\n"

    assert amd.retired_pages(pages) == "3"
    assert amd.retired_pages("") == "0"
    assert amd.retired_pages(None) is None


def test_two_nodes_that_differ_in_any_firmware_have_two_fingerprints() -> None:
    one = amd.firmware({"mec": "0x000000a1\n", "vcn": "0x09118020\n", "me": "0x00000000\n"})
    other = amd.firmware({"mec": "0x000000a1\n", "vcn": "0x09118021\n"})

    assert one["amdgpu_firmware_mec"] == "0x000000a1"
    assert one.keys() == {"amdgpu_firmware", "amdgpu_firmware_mec"}
    assert one["amdgpu_firmware"] != other["amdgpu_firmware"]
    assert amd.firmware({"mec": "0x00000000\n", "rlc": None}) == {}


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("2.20.5.60203-113~22.04", "6.2.3"),
        ("libamdhip64.so.6.2.60203", "6.2.3"),
        ("libamdhip64.so.7.0.70000", "7.0.0"),
        ("4.2.0.60200-66~22.04", "6.2.0"),
        ("libamdhip64.so.6", None),
        ("libamdhip64.so", None),
    ],
)
def test_a_rocm_release_hangs_on_the_versions_of_its_parts(name: str, release: str | None) -> None:
    assert amd.rocm_release_of_suffix(name) == release
