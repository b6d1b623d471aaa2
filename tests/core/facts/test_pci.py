"""PCI addresses in every spelling, and what the bus states of a link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.facts import pci


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
    assert pci.normalise_pci(spelling) == "0000:c1:00.0"


@pytest.mark.parametrize(
    "text", ["", "c1", "12:34", "0000:c1:00.8", "0000:c1:20.0", "0000:c1:00.0:1", "mlx5_0", "0000:c1:00.0 x"]
)
def test_an_invalid_pci_address_is_none(text: str) -> None:
    assert pci.normalise_pci(text) is None


def test_a_domain_that_needs_more_than_four_digits_keeps_them() -> None:
    assert pci.normalise_pci("10000:01:00.0") == "10000:01:00.0"  # Intel VMD
    assert pci.normalise_pci("03F8CFDD:00:00.0") == "3f8cfdd:00:00.0"  # Azure, NVIDIA/nvidia-docker#1316


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))
def test_nvidia_smi_and_the_kernel_mean_the_same_gpu(domain: int, bus: int, device: int, function: int) -> None:
    kernel = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"

    assert pci.normalise_pci(f"{domain:08X}:{bus:02X}:{device:02X}.{function}") == kernel
    assert pci.normalise_pci(kernel) == kernel


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("32.0 GT/s PCIe\n", "32 GT/s"),
        ("2.5 GT/s PCIe\n", "2.5 GT/s"),
        ("16 GT/s\n", "16 GT/s"),  # before 5.8
        ("Unknown\n", None),
        ("Unknown speed\n", None),
        (None, None),
    ],
)
def test_a_link_has_a_speed_or_none_that_is_known(text: str | None, speed: str | None) -> None:
    assert pci.pcie_speed(text) == speed


@pytest.mark.parametrize(
    ("text", "width"), [("16\n", "x16"), ("1", "x1"), ("0\n", None), ("255\n", None), (None, None)]
)
def test_a_link_that_is_down_has_no_width(text: str | None, width: str | None) -> None:
    assert pci.pcie_width(text) == width


RESOURCE = """\
0x0000038000000000 0x0000039fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000090000000 0x00000000901fffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000004000 0x00000000000040ff 0x0000000000040101
0x0000000090200000 0x000000009027ffff 0x0000000000040200
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000100000000000 0x0000ffffffffffff 0x000000000014220c
"""


def test_the_largest_memory_window_is_the_bar_and_those_of_virtual_functions_are_not_asked() -> None:
    assert pci.largest_bar(RESOURCE) == 128 << 30


@pytest.mark.parametrize("text", ["", "0x0 0x0 0x0\n", "garbage\n", "0x10 0x0 0x200\n"])
def test_a_device_without_memory_windows_has_no_bar(text: str) -> None:
    assert pci.largest_bar(text) is None


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([("x16", "x16"), ("x16", "x16")], "false"),
        ([("x8", "x16"), ("x8", "x16")], "true"),
        ([("x8", "x16"), ("x8", "x8")], "false"),  # a slot with eight lanes
        ([("x16", "x16"), ("x8", "x16"), ("x8", "x16")], "true"),  # above the bridge on the card
        ([("x16", "x16"), ("x8", "x8"), ("x8", "x16")], "false"),
        ([("x8", "x16")], "true"),  # nothing above it is visible, as in a virtual machine
        ([("x8", "x16"), (None, None)], "true"),
        ([(None, "x16"), ("x16", "x16")], None),
        ([(None, None)], None),
        ([], None),
    ],
)
def test_a_link_is_degraded_if_both_its_ends_have_more_lanes(
    links: list[tuple[str | None, str | None]], expected: str | None
) -> None:
    assert pci.link_is_degraded(links) == expected
