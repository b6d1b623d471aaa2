"""The PCI address of a GPU from all other names that it has: indices, minors, UUIDs, ordinals below visibility masks.

A name that is not known, or may mean two cards, has no address.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.pci import normalise_pci

MAX_TOKENS = 128  # of a mask; an MI300X node has 64 partitions
_MIG_OF_GPU = re.compile(
    r"MIG-(GPU-[0-9a-f-]{8,36})/\d+/\d+", re.IGNORECASE
)  # before driver 470: its card's UUID and place
_UUID = re.compile(r"GPU-[0-9a-f-]{4,36}", re.IGNORECASE)  # CUDA accepts any beginning that is unique
_DRM = re.compile(
    r"(?:/dev/dri/)?(?:card(?P<card>\d{1,3})(?:-\d{1,3})?|renderD(?P<render>\d{1,3}))"
)  # card0-1: a share
_NVIDIA = re.compile(r"(?:/dev/)?nvidia(?P<minor>\d{1,3})")
_REPLICA = re.compile(r"(::\d{1,4}|_gpu\d{1,2})$")  # of a time-sliced GPU of NVIDIA's device plug-in


def card_of(name: str, gpus: Sequence[Gpu]) -> str | None:
    """The card that a scheduler, a device plug-in or a mask names; an index counts the cards by PCI address, as NVML does."""
    name = _REPLICA.sub("", name.strip())
    if pci := normalise_pci(name):
        return pci if any(gpu.pci == pci for gpu in gpus) else None
    if name.isdecimal():
        cards = ordinals(gpus)
        return cards[int(name)] if len(name) <= 3 and int(name) < len(cards) else None
    if part := _MIG_OF_GPU.fullmatch(name):
        name = part[1]
    if _UUID.fullmatch(name):
        return _only(gpu for gpu in gpus if _has_uuid(gpu, name.lower()))
    if match := _DRM.fullmatch(name):
        if match["card"]:
            return _only(gpu for gpu in gpus if gpu.drm_card == int(match["card"]))
        return _only(gpu for gpu in gpus if gpu.drm_render == int(match["render"]))
    if match := _NVIDIA.fullmatch(name):
        return card_of_minor(int(match["minor"]), gpus)
    return None


def card_of_minor(minor: int, gpus: Sequence[Gpu]) -> str | None:
    """The card of /dev/nvidiaN."""
    return _only(gpu for gpu in gpus if gpu.minor == minor)


def card_of_kfd_node(node: int, gpus: Sequence[Gpu]) -> str | None:
    """The card of a node of KFD's topology, which has one for each partition of a card."""
    return _only(gpu for gpu in gpus if node in (gpu.kfd_nodes or (gpu.kfd_node,)))


def card_of_gpu_id(gpu_id: int, gpus: Sequence[Gpu]) -> str | None:
    """The card of nvidia-drm's "GPU ID 0xc100": domain, bus and device."""
    pci = f"{gpu_id >> 16:04x}:{gpu_id >> 8 & 0xFF:02x}:{gpu_id & 0xFF:02x}.0"
    return _only(gpu for gpu in gpus if gpu.pci == pci)


def ordinals(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """The card of each ordinal of a process that sees all: by KFD node (one for each partition), else by PCI address.

    The graphics of a processor beside cards of another vendor do not count; cards of two vendors have no common order.
    """
    cards = [gpu for gpu in gpus if gpu.vendor == "nvidia"] or [gpu for gpu in gpus if gpu.vendor == "amd"] or [*gpus]
    if cards and cards[0].vendor == "amd":
        nodes = sorted((node, gpu.pci) for gpu in cards for node in gpu.kfd_nodes or ())
        if len({pci for _, pci in nodes}) == len(cards):
            return tuple(pci for _, pci in nodes)
    return tuple(sorted(gpu.pci for gpu in cards))


def card_of_ordinal(ordinal: int, masks: Mapping[str, str], gpus: Sequence[Gpu], own: Sequence[str] = ()) -> str | None:
    """The card that a process calls `ordinal`, by the masks in its environment.

    own: the cards of its job, if known. In a container, or where Slurm constrains devices, masks count within these.
    """
    whole = ordinals(gpus)
    if _orders_by_speed(masks, gpus):
        return None
    seen = _visible(whole, masks, gpus)
    if own and seen is not None and not set(seen) <= set(own):
        seen = _visible(tuple(card for card in whole if card in own), masks, gpus)
    return seen[ordinal] if seen is not None and 0 <= ordinal < len(seen) else None


def _visible(cards: tuple[str, ...], masks: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[str, ...] | None:
    """The cards left by the masks, in the order of the process; None if a mask names what is not known.

    ROCm applies ROCR_VISIBLE_DEVICES below HIP, and then HIP_VISIBLE_DEVICES, else CUDA_VISIBLE_DEVICES.
    """
    is_amd = any(gpu.vendor == "amd" for gpu in gpus) and not any(gpu.vendor == "nvidia" for gpu in gpus)
    names = ["ROCR_VISIBLE_DEVICES"] if is_amd else []
    names += ["HIP_VISIBLE_DEVICES"] if is_amd and "HIP_VISIBLE_DEVICES" in masks else ["CUDA_VISIBLE_DEVICES"]
    if gpus and all(gpu.vendor == "intel" for gpu in gpus):
        names = ["ZE_AFFINITY_MASK"]
    for name in names:
        if name not in masks:
            continue
        visible = []
        for token in masks[name].split(",")[:MAX_TOKENS]:
            number = token.strip().partition(".")[0]  # Intel: device.tile
            if number.lstrip("-").isdecimal():
                if not 0 <= int(number) < len(cards):
                    break  # as CUDA: what follows an invalid one is invisible
                visible.append(cards[int(number)])
            elif card := card_of(token, gpus):
                visible.append(card)
            else:
                return None
        cards = tuple(visible)
    return cards


def _orders_by_speed(masks: Mapping[str, str], gpus: Sequence[Gpu]) -> bool:
    """CUDA counts the fastest first unless told otherwise, so the order of unlike cards is not known."""
    models = {gpu.facts.get("gpu_model") for gpu in gpus if gpu.vendor == "nvidia"}
    return len(models) > 1 and masks.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _has_uuid(gpu: Gpu, name: str) -> bool:
    """AMD's is "GPU-" and the unique id in hexadecimal; NVIDIA's is the whole id."""
    unique_id = (gpu.unique_id or "").lower()
    if gpu.vendor == "amd":
        return bool(unique_id) and name.removeprefix("gpu-") == unique_id.removeprefix("0x")
    return unique_id.startswith(name)


def _only(gpus: Iterable[Gpu]) -> str | None:
    cards = {gpu.pci for gpu in gpus}
    return cards.pop() if len(cards) == 1 else None
