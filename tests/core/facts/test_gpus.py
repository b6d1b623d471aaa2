"""GPUs: which devices are some, and what several texts state of one."""

import pytest

from exporter.core.facts.conclude import with_derived_facts
from exporter.core.facts.gpus import MODELS, Gpu, gpu_of_uevent, merge_gpus


def test_a_gpu_without_a_product_name_is_known_by_its_pci_id() -> None:
    uevent = "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A0\nPCI_SLOT_NAME=0000:01:00.0\n"

    assert gpu_of_uevent(uevent) == Gpu(pci="0000:01:00.0", vendor="amd", facts={"gpu_model": "AMD Instinct MI300A"})


def test_an_unlisted_gpu_is_named_by_its_pci_id() -> None:
    uevent = "PCI_CLASS=30000\nPCI_ID=8086:4680\nPCI_SLOT_NAME=0000:00:02.0\n"

    assert gpu_of_uevent(uevent) == Gpu(pci="0000:00:02.0", vendor="intel", facts={"gpu_model": "intel 8086:4680"})


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
def test_a_device_that_is_not_a_gpu_is_none(uevent: str) -> None:
    assert gpu_of_uevent(uevent) is None


def test_every_model_is_listed_by_the_id_that_a_uevent_is_looked_up_by() -> None:
    assert [pci_id for pci_id in MODELS if pci_id != pci_id.lower() or len(pci_id) != 9] == []


def test_two_statements_of_one_gpu_are_one_gpu_and_the_first_counts() -> None:
    stated = [
        Gpu(pci="0000:c1:00.0", facts={"gpu_model": "AMD Instinct MI210", "vbios_version": "113-D67301"}),
        Gpu(pci="0000:05:00.0", vendor="amd", facts={"gpu_model": "AMD Instinct MI300A"}),
        Gpu(pci="0000:c1:00.0", vendor="amd", facts={"gpu_model": "amd 1002:740f"}, kfd_node=4),
    ]

    assert merge_gpus(stated) == (
        Gpu(pci="0000:05:00.0", vendor="amd", facts={"gpu_model": "AMD Instinct MI300A"}),
        Gpu(
            pci="0000:c1:00.0",
            vendor="amd",
            facts={"gpu_model": "AMD Instinct MI210", "vbios_version": "113-D67301"},
            kfd_node=4,
        ),
    )


def test_several_models_are_one_sorted_fact() -> None:
    gpus = tuple(
        Gpu(pci=f"0000:0{slot}:00.0", facts={"gpu_model": model}) for slot, model in enumerate(["b", "a", "b"])
    )

    assert with_derived_facts({}, gpus) == {"gpu_model": "a+b"}
