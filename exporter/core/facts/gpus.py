"""GPUs and their facts; names by PCI id for drivers that report none. The PCI address identifies a GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from exporter.core.facts.parsing import assignments
from exporter.core.facts.pci import normalise_pci

# product_name needs an FRU chip and is empty in virtual machines (ROCm/device-metrics-exporter#171), and the Intel
# drivers have no such file. Sources: libdrm data/amdgpu.ids, compute-runtime devices_base.inl (without its "(R)"),
# pci.ids. Where one id has several names, all are given.
MODELS = {
    "1002:6860": "AMD Instinct MI25",
    "1002:6864": "AMD Instinct MI25x2 / Radeon Pro V340",
    "1002:686c": "AMD Instinct MI25 MxGPU",
    "1002:66a0": "AMD Instinct MI50 / MI60",
    "1002:66a1": "AMD Instinct MI50 / MI60 / Radeon Pro VII",
    "1002:66af": "AMD Radeon VII",
    "1002:738c": "AMD Instinct MI100",
    "1002:738e": "AMD Instinct MI100",
    "1002:7408": "AMD Instinct MI250X",
    "1002:740c": "AMD Instinct MI250X / MI250",
    "1002:740f": "AMD Instinct MI210",
    "1002:74a0": "AMD Instinct MI300A",
    "1002:74a1": "AMD Instinct MI300X",
    "1002:74a2": "AMD Instinct MI308X",
    "1002:74a5": "AMD Instinct MI325X",
    "1002:74a8": "AMD Instinct MI308X HF",
    "1002:74a9": "AMD Instinct MI300X HF",
    "1002:74b5": "AMD Instinct MI300X VF",
    "1002:74b6": "AMD Instinct MI308X",
    "1002:74b9": "AMD Instinct MI325X VF",
    "1002:74bd": "AMD Instinct MI300X HF",
    "1002:75a0": "AMD Instinct MI350X",
    "1002:75a3": "AMD Instinct MI355X",
    "1002:75b0": "AMD Instinct MI350X VF",
    "1002:75b3": "AMD Instinct MI355X VF",
    "1002:73a1": "AMD Radeon Pro V620",
    "1002:73a3": "AMD Radeon Pro W6800",
    "1002:7448": "AMD Radeon Pro W7900",
    "1002:744c": "AMD Radeon RX 7900 XT / XTX",
    "1002:7550": "AMD Radeon RX 9070 / 9070 XT",
    "1002:7551": "AMD Radeon AI PRO R9700",
    "8086:0b69": "Intel Data Center GPU Max 1450",
    "8086:0b6e": "Intel Data Center GPU Max 1100C",
    "8086:0bd4": "Intel Data Center GPU Max 1550VG",
    "8086:0bd5": "Intel Data Center GPU Max 1550",
    "8086:0bd6": "Intel Data Center GPU Max 1550",
    "8086:0bd7": "Intel Data Center GPU Max 1350",
    "8086:0bd8": "Intel Data Center GPU Max 1350",
    "8086:0bd9": "Intel Data Center GPU Max 1100",
    "8086:0bda": "Intel Data Center GPU Max 1100",
    "8086:0bdb": "Intel Data Center GPU Max 1100",
    "8086:56c0": "Intel Data Center GPU Flex 170",
    "8086:56c1": "Intel Data Center GPU Flex 140",
    "8086:56c2": "Intel Data Center GPU Flex 170V",
    "8086:56a0": "Intel Arc A770",
    "8086:56a1": "Intel Arc A750",
    "8086:56a2": "Intel Arc A580",
    "8086:56a5": "Intel Arc A380",
    "8086:56a6": "Intel Arc A310",
    "8086:e20b": "Intel Arc B580",
    "8086:e20c": "Intel Arc B570",
    "8086:e211": "Intel Arc Pro B60",
    "8086:e212": "Intel Arc Pro B50",
}


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
        first = merged.setdefault(gpu.pci, gpu)
        missing = {f.name: getattr(gpu, f.name) for f in fields(Gpu) if getattr(first, f.name) is None}
        merged[gpu.pci] = replace(first, facts={**gpu.facts, **first.facts}, **missing)
    return tuple(merged[pci] for pci in sorted(merged))


def facts_of(gpus: Iterable[Gpu]) -> dict[str, str]:
    """The node's facts from its cards; different values are joined by "+"."""
    stated: dict[str, list[str]] = {}
    for gpu in gpus:
        for name, value in gpu.facts.items():
            stated.setdefault(name, []).append(value)
    return {name: "+".join(sorted(set(values))) for name, values in stated.items()}
