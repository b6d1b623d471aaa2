"""GPUs on the PCI bus, with or without a driver."""

from dataclasses import replace

from exporter.core.facts.gpus import Gpu, gpu_of_uevent
from exporter.core.facts.linux import iommu_mode
from exporter.core.facts.pci import largest_bar, link_is_degraded, normalise_pci, pcie_speed, pcie_width
from exporter.core.facts.values import number, size
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_FOLDER = "/sys/bus/pci/devices"
_DRIVERS = ("amdgpu", "i915", "nvidia", "nouveau", "vfio-pci", "xe")


def _collect(host: Host) -> ProbeResult:
    devices = host.names(_FOLDER)
    gpus = (gpu_of_uevent(host.read(f"{_FOLDER}/{device}/uevent") or "") for device in devices)
    bound = frozenset(pci for driver in _DRIVERS for pci in host.addresses(f"/sys/bus/pci/drivers/{driver}"))
    found = tuple(_with_facts(host, gpu, gpu.pci in bound) for gpu in gpus if gpu)
    return ProbeResult(gpus=found, facts={"gpu_count": str(len(found))} if devices else {})


def _with_facts(host: Host, gpu: Gpu, has_driver: bool) -> Gpu:
    device = f"{_FOLDER}/{gpu.pci}"
    node = host.value(f"{device}/numa_node")
    widest, fastest = pcie_width(host.read(f"{device}/max_link_width")), host.read(f"{device}/max_link_speed")
    return replace(
        gpu,
        drm_card=_minor(host, device, "card"),
        drm_render=_minor(host, device, "renderD"),
        pcie_speed=pcie_speed(host.read(f"{device}/current_link_speed")),
        facts=dict(gpu.facts)
        | known_facts(
            iommu=_iommu(host, device),
            gpu_numa_nodes="none" if node == "-1" else node,
            gpu_bar_size=size(largest_bar(host.read(f"{device}/resource") or "")),
            pcie_width=pcie_width(host.read(f"{device}/current_link_width")),
            pcie_link_max=" ".join(part for part in (pcie_speed(fastest), widest) if part),
            gpu_virtual_functions=_virtual_functions(host, device),
            pcie_degraded=link_is_degraded(_links(host, gpu.pci)),
            gpu_has_driver=str(has_driver).lower(),
        ),
    )


def _links(host: Host, pci: str) -> list[tuple[str | None, str | None]]:
    """Lanes in use and possible lanes of the GPU and of each bridge above it, the GPU first."""
    path = host.resolve(f"{_FOLDER}/{pci}").split("/")
    found = []
    while path and normalise_pci(path[-1]) == path[-1]:
        folder = "/".join(path)
        widths = (pcie_width(host.read(f"{folder}/{which}_link_width")) for which in ("current", "max"))
        found.append((next(widths), next(widths)))
        path.pop()
    return found


def _minor(host: Host, device: str, kind: str) -> int | None:
    """N of the device's cardN or renderDN. A partitioned GPU has more of them on devices of its own."""
    names = (name.removeprefix(kind) for name in host.names(f"{device}/drm") if name.startswith(kind))
    return next((int(name) for name in names if name.isdecimal()), None)


def _iommu(host: Host, device: str) -> str | None:
    if not host.exists(f"{device}/iommu_group"):
        return "off"
    group_type = host.value(f"{device}/iommu_group/type")
    return iommu_mode(group_type) if group_type else None


def _virtual_functions(host: Host, device: str) -> str | None:
    functions = number(host.read(f"{device}/sriov_numvfs"))
    return None if functions is None else str(functions)


PCI = Probe(
    collect=_collect,
    facts={
        "gpu_count": Fact("GPUs on the PCI bus, with or without a driver", f"{_FOLDER}/*/uevent"),
        "gpu_model": Fact("name of the GPUs, by PCI id if the driver has none", f"{_FOLDER}/*/uevent"),
        "iommu": Fact(
            "effective IOMMU mode of the GPUs: pt, translated or off",
            f"{_FOLDER}/GPU/iommu_group/type",
        ),
        "gpu_numa_nodes": Fact("NUMA nodes of the GPUs", f"{_FOLDER}/GPU/numa_node"),
        "gpu_bar_size": Fact("GPU memory that the CPU can access (large BAR)", f"{_FOLDER}/GPU/resource"),
        "pcie_width": Fact(
            "lanes in use; fewer than possible indicates bad contact", f"{_FOLDER}/GPU/current_link_width"
        ),
        "pcie_link_max": Fact("maximum speed and lanes of the GPU", f"{_FOLDER}/GPU/max_link_{{speed,width}}"),
        "pcie_degraded": Fact(
            "whether a link between GPU and root port has fewer lanes than both its ends could have; the speed is not "
            "looked at, as idle GPUs lower it",
            f"{_FOLDER}/GPU/{{current,max}}_link_width",
        ),
        "gpu_has_driver": Fact(
            "whether a driver is bound to the GPUs", "/sys/bus/pci/drivers/{amdgpu,i915,nvidia,xe,…}"
        ),
        "gpu_virtual_functions": Fact("virtual functions of a GPU (SR-IOV)", f"{_FOLDER}/GPU/sriov_numvfs"),
    },
)
