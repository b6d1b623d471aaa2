"""GPUs and their facts. The PCI address identifies a GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from exporter.core.facts.models import MODELS
from exporter.core.facts.pci import normalise_pci
from exporter.core.facts.values import assignments


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or partial data about it. `pci` identifies the slot, `unique_id` the card."""

    pci: str
    vendor: str | None = None  # amd | intel | nvidia
    unique_id: str | None = None
    serial: str | None = None
    kfd_node: int | None = None  # N of "Memory access fault by GPU node-N"; the first of a partitioned GPU
    kfd_nodes: tuple[int, ...] | None = None  # all of them, one for each partition
    minor: int | None = None  # N of /dev/nvidiaN
    drm_card: int | None = None  # N of /dev/dri/cardN
    drm_render: int | None = None  # N of /dev/dri/renderDN
    pcie_speed: str | None = None  # current speed; it changes with the load, so it is not a fact
    facts: Mapping[str, str] = field(default_factory=dict)  # of this card

    @property
    def identity(self) -> str | None:
        """What tells this card from others.

        Never NVIDIA's serial number: only the driver's library knows it, while the unique id comes and goes with the state
        of the driver. One card must not look like two.
        """
        return self.unique_id or (None if self.vendor == "nvidia" else self.serial)


_VENDORS = {"1002": "amd", "10de": "nvidia", "8086": "intel"}
# VGA, 3D and display controllers, by class and subclass. An MI300X is a "processing accelerator" (1200), as are Intel's
# NPUs, which are not GPUs.
_GPU_CLASSES = {"amd": ("0300", "0302", "0380", "1200"), "nvidia": ("0300", "0302"), "intel": ("0300", "0302", "0380")}


def gpu_of_uevent(uevent: str) -> Gpu | None:
    """The GPU in `/sys/bus/pci/devices/*/uevent`; None for other devices and unknown vendors."""
    stated = assignments(uevent)
    pci, pci_id = normalise_pci(stated.get("PCI_SLOT_NAME", "")), stated.get("PCI_ID", "").lower()
    vendor = _VENDORS.get(pci_id[:4])
    # %04X of 24 bits: 0x030200 becomes 30200 (pci_uevent in drivers/pci/pci-driver.c)
    device_class = stated.get("PCI_CLASS", "").zfill(6)[:4]
    if pci is None or vendor is None or device_class not in _GPU_CLASSES[vendor]:
        return None
    return Gpu(pci=pci, vendor=vendor, facts={"gpu_model": MODELS.get(pci_id, f"{vendor} {pci_id}")})


def merge_gpus(statements: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """One GPU per PCI address, sorted. The first value of each field counts."""
    merged: dict[str, Gpu] = {}
    for gpu in statements:
        known = merged.setdefault(gpu.pci, gpu)
        missing = {f.name: getattr(gpu, f.name) for f in fields(Gpu) if getattr(known, f.name) is None}
        merged[gpu.pci] = replace(known, facts={**gpu.facts, **known.facts}, **missing)
    return tuple(merged[pci] for pci in sorted(merged))


def facts_of(gpus: Iterable[Gpu]) -> dict[str, str]:
    """The node's facts from its cards; different values are joined by "+"."""
    stated: dict[str, list[str]] = {}
    for gpu in gpus:
        for name, value in gpu.facts.items():
            stated.setdefault(name, []).append(value)
    return {name: "+".join(sorted(set(values))) for name, values in stated.items()}
