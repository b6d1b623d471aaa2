"""The PCI address of a card from each name that schedulers, masks, drivers and device plug-ins have for it."""

from __future__ import annotations

import pytest

from exporter.core.facts.cards import (
    card_of,
    card_of_gpu_id,
    card_of_kfd_node,
    card_of_minor,
    card_of_ordinal,
    ordinals,
)
from exporter.core.facts.gpus import Gpu

H100 = tuple(
    Gpu(
        pci=pci, vendor="nvidia", unique_id=f"GPU-{uuid}-8a4b-2f6d-91c7-3e0b7a9d4c21", minor=minor, drm_card=minor + 1,
        drm_render=128 + minor, facts={"gpu_model": "NVIDIA H100"},
    )
    for pci, uuid, minor in (
        ("0000:1b:00.0", "5d3c1f0e", 2), ("0000:43:00.0", "5d3caaaa", 0),
        ("0000:9b:00.0", "77777777", 1), ("0000:c3:00.0", "88888888", 3),
    )
)  # fmt: skip
A, B, C, D = (gpu.pci for gpu in H100)
MI300X = (  # the first in two partitions; KFD's order is not that of the bus
    Gpu(pci="0000:05:00.0", vendor="amd", unique_id="a1b2c3d4e5f60718", kfd_node=4, kfd_nodes=(4, 5), drm_card=1),
    Gpu(pci="0000:75:00.0", vendor="amd", unique_id="a1b2c3d4e5f60924", kfd_node=2, kfd_nodes=(2,), drm_card=2),
)
PVC = tuple(Gpu(pci=f"0000:{bus}:00.0", vendor="intel", drm_card=card) for bus, card in (("18", 0), ("4d", 1)))


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("0", A), ("3", D), ("4", None), (A, A), ("00000000:1B:00.0", A), ("0000:ff:00.0", None),
        ("GPU-5d3c1f0e-8a4b-2f6d-91c7-3e0b7a9d4c21", A), ("GPU-5d3c1", A), ("GPU-5d3c", None),  # two begin so
        ("GPU-77777777-8a4b-2f6d-91c7-3e0b7a9d4c21::3", C), ("MIG-GPU-88888888-8a4b-2f6d-91c7-3e0b7a9d4c21/7/0", D),
        ("MIG-1b2c3d4e-0000-5555-8888-0123456789ab", None),  # of any card
        ("/dev/nvidia0", B), ("nvidia3", D), ("renderD130", A), ("/dev/dri/card1", B), ("card2-1", C),
        ("", None), ("none", None), ("-1", None), ("all", None), ("GPU-", None),
    ],
)  # fmt: skip
def test_a_card_of_nvidia_has_an_index_a_uuid_a_minor_and_drm_devices(name: str, card: str | None) -> None:
    assert card_of(name, H100) == card


def test_a_card_of_amd_is_named_by_its_unique_id() -> None:
    assert card_of("GPU-a1b2c3d4e5f60924", MI300X) == "0000:75:00.0"
    assert card_of("GPU-a1b2c3d4", MI300X) is None


def test_a_node_of_kfd_is_a_card_or_a_partition_of_one() -> None:
    assert [card_of_kfd_node(node, MI300X) for node in (2, 4, 5, 6)] == [
        "0000:75:00.0", "0000:05:00.0", "0000:05:00.0", None,
    ]  # fmt: skip


def test_minors_and_ids_of_drivers_name_cards() -> None:
    assert [card_of_minor(minor, H100) for minor in (2, 0, 9)] == [A, B, None]
    assert card_of_gpu_id(0x1B00, H100) == A


def test_ordinals_follow_kfd_on_amd_and_the_bus_elsewhere() -> None:
    assert ordinals(MI300X) == ("0000:75:00.0", "0000:05:00.0", "0000:05:00.0")
    assert ordinals((*MI300X[:1], *H100)) == (A, B, C, D)  # a processor's graphics beside the cards
    assert ordinals(()) == ()


@pytest.mark.parametrize(
    ("ordinal", "masks", "own", "card"),
    [
        (1, {}, (), B),
        (1, {"CUDA_VISIBLE_DEVICES": "2,0"}, (), A),
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-77777777,GPU-5d3c1f"}, (), C),
        (0, {"CUDA_VISIBLE_DEVICES": ""}, (), None),
        (1, {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, (), None),  # CUDA stops there
        (0, {"CUDA_VISIBLE_DEVICES": "MIG-1b2c3d4e-0000-5555-8888-0123456789ab"}, (), None),
        (1, {"CUDA_VISIBLE_DEVICES": "2,3"}, (C, D), D),  # counted over the node
        (1, {"CUDA_VISIBLE_DEVICES": "0,1"}, (C, D), D),  # counted in the job's own devices
        (0, {}, (D,), D),  # a container that sees one card
        (1, {}, (D,), None),
    ],
)
def test_an_ordinal_counts_what_the_masks_leave(
    ordinal: int, masks: dict[str, str], own: tuple[str, ...], card: str | None
) -> None:
    assert card_of_ordinal(ordinal, masks, H100, own) == card


def test_hip_counts_in_what_rocr_leaves() -> None:
    masks = {"ROCR_VISIBLE_DEVICES": "0,2", "HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert card_of_ordinal(0, masks, MI300X) == "0000:05:00.0"
    del masks["HIP_VISIBLE_DEVICES"]
    assert card_of_ordinal(0, masks, MI300X) == "0000:75:00.0"


def test_level_zero_names_a_card_and_its_tile() -> None:
    assert card_of_ordinal(1, {"ZE_AFFINITY_MASK": "1.0,0.1"}, PVC) == "0000:18:00.0"


def test_unlike_cards_are_in_an_order_that_only_cuda_knows() -> None:
    unlike = (*H100[:3], Gpu(pci=D, vendor="nvidia", facts={"gpu_model": "NVIDIA L4"}))
    assert card_of_ordinal(0, {}, unlike) is None
    assert card_of_ordinal(0, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, unlike) == A
