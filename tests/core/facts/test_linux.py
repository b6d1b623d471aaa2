"""What the kernel states of itself and the machine."""

import pytest

from exporter.core.facts import linux


def test_the_os_is_its_id_and_version_without_the_point_release() -> None:
    assert linux.os_name('PRETTY_NAME="Ubuntu 22.04.4 LTS"\nVERSION_ID="22.04"\nID=ubuntu\n') == "ubuntu 22.04"
    assert linux.os_name("ID='sles'\nVERSION_ID='15.5'\n") == "sles 15.5"
    assert linux.os_name("ID=arch\n") == "arch"
    assert linux.os_name("") is None


@pytest.mark.parametrize(
    ("group_type", "mode"),
    [("identity", "pt"), ("DMA", "translated"), ("DMA-FQ", "translated"), ("blocked", "blocked")],
)
def test_the_iommu_mode_is_what_it_does_to_dma(group_type: str, mode: str) -> None:
    assert linux.iommu_mode(group_type) == mode


@pytest.mark.parametrize(
    ("text", "taint"),
    [("0\n", "none"), ("12288\n", "OE"), ("4609\n", "PO"), ("512\n", "none"), ("16\n", "M"), ("", None), ("x", None)],
)
def test_taints_are_letters_and_a_mere_warning_is_none(text: str, taint: str | None) -> None:
    assert linux.taint(text) == taint


def test_only_kernel_arguments_that_affect_gpus_are_reported() -> None:
    cmdline = "BOOT_IMAGE=/vmlinuz root=UUID=1-2 ro quiet pci=realloc=off iommu=pt password=secret\n"

    assert linux.kernel_arguments(cmdline) == "iommu=pt pci=realloc=off"
    assert linux.kernel_arguments("ro quiet\n") is None


CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC 9654 96-Core Processor
microcode\t: 0xa101148

processor\t: 1
model name\t: another
"""


def test_a_cpu_is_the_first() -> None:
    assert linux.cpu_model(CPUINFO) == "AMD EPYC 9654 96-Core Processor"
    assert linux.cpu_microcode(CPUINFO) == "0xa101148"
    assert linux.cpu_model("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n") == "arm 0x41 0xd4f"
    assert linux.cpu_model("") is None


def test_memory_and_huge_pages_are_those_of_meminfo() -> None:
    meminfo = "MemTotal:       527890432 kB\nHugePages_Total:     512\nHugepagesize:       2048 kB\n"

    assert linux.memory_size(meminfo) == "503 GiB"
    assert linux.huge_pages(meminfo) == "512 x 2048 kB"
    assert linux.memory_size("MemFree: 1 kB\n") is None


def test_an_option_is_built_in_or_a_module_or_not_there() -> None:
    config = "CONFIG_HMM_MIRROR=y\nCONFIG_DRM_XE=m\n# CONFIG_HSA_AMD_SVM is not set\n"

    assert [linux.build_option(config, f"CONFIG_{name}") for name in ("HMM_MIRROR", "DRM_XE", "HSA_AMD_SVM")] == [
        "true",
        "true",
        "false",
    ]
    assert linux.build_option("\x7fELF", "CONFIG_HMM_MIRROR") is None
