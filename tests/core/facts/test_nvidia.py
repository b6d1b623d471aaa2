"""What NVIDIA's driver and CUDA state."""

import json

import pytest

from exporter.core.facts import nvidia


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
    assert nvidia.driver_version(text) == expected


def test_the_cuda_version_is_that_of_the_toolkit_and_not_of_a_part() -> None:
    parts = {"cuda_cccl": {"version": "12.4.127"}, "cuda": {"name": "CUDA SDK", "version": "12.4.1"}}

    assert nvidia.cuda_version(json.dumps(parts, indent=3)) == "12.4.1"
    assert nvidia.cuda_version("{") is None


INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b
Video BIOS: \t 96.00.99.00.01
GPU Firmware: \t {gsp}
GPU Excluded:\t No
"""


@pytest.mark.parametrize(("gsp", "fact"), [("535.129.03", "535.129.03"), ("N/A", "off")])
def test_the_system_processor_has_a_firmware_or_is_off(gsp: str, fact: str) -> None:
    gpu = nvidia.gpu_of_information("0000:62:00.0", INFORMATION.format(gsp=gsp))

    assert gpu.unique_id == "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b"
    assert gpu.facts == {
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "vbios_version": "96.00.99.00.01",
        "nvidia_gsp_firmware": fact,
        "nvidia_gpu_excluded": "false",
    }


def test_only_parameters_that_matter_are_facts_and_only_numbers() -> None:
    params = 'EnableMSI: 1\nEnableGpuFirmware: 18\nEnableResizableBar: x\nRegistryDwords: ""\n'

    assert nvidia.parameters(params) == {"nvidia.NVreg_EnableGpuFirmware": "18"}


def test_a_folders_name_tells_a_toolkit_without_its_version_file() -> None:
    assert nvidia.cuda_version_of_folder("/usr/local/cuda-13.0") == "13.0"
    assert nvidia.cuda_version_of_folder("/usr/local/cuda") is None


def test_the_user_mode_driver_is_known_by_the_name_of_its_library() -> None:
    names = ["libcuda.so", "libcuda.so.1", "libcuda.so.550.90.07", "libcudart.so.12.4.127"]

    assert nvidia.libcuda_versions(names) == ["550.90.07"]
