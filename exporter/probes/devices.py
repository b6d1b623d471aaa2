"""GPUs on the PCI bus, with or without a driver, and network adapters: InfiniBand and RoCE.

The state of ports is telemetry, not a fact: a flapping link would fill the history of facts within hours.
"""

from dataclasses import replace

from exporter.core.facts.gpus import Gpu, gpu_of_uevent
from exporter.core.facts.linux import iommu_mode
from exporter.core.facts.parsing import distinct_values, number, single_line, size
from exporter.core.facts.pci import largest_bar, link_is_degraded, normalise_pci, pcie_speed, pcie_width
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available

_PCI = "/sys/bus/pci/devices"
_GPU_DRIVERS = ("amdgpu", "i915", "nvidia", "nouveau", "vfio-pci", "xe")


def _pci(host: Host) -> ProbeResult:
    devices = host.names(_PCI)
    candidates = (gpu_of_uevent(host.read(f"{_PCI}/{device}/uevent") or "") for device in devices)
    bound = frozenset(pci for driver in _GPU_DRIVERS for pci in host.addresses(f"/sys/bus/pci/drivers/{driver}"))
    gpus = tuple(_with_facts(host, gpu, gpu.pci in bound) for gpu in candidates if gpu)
    return ProbeResult(gpus=gpus, facts={"gpu_count": str(len(gpus))} if devices else {})


def _with_facts(host: Host, gpu: Gpu, has_driver: bool) -> Gpu:
    device = f"{_PCI}/{gpu.pci}"
    node = host.value(f"{device}/numa_node")
    widest, fastest = pcie_width(host.read(f"{device}/max_link_width")), host.read(f"{device}/max_link_speed")
    return replace(
        gpu,
        drm_card=_minor(host, device, "card"),
        drm_render=_minor(host, device, "renderD"),
        pcie_speed=pcie_speed(host.read(f"{device}/current_link_speed")),
        facts=dict(gpu.facts)
        | available(
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
    path = host.resolve(f"{_PCI}/{pci}").split("/")
    links = []
    while path and normalise_pci(path[-1]) == path[-1]:
        folder = "/".join(path)
        widths = (pcie_width(host.read(f"{folder}/{which}_link_width")) for which in ("current", "max"))
        links.append((next(widths), next(widths)))
        path.pop()
    return links


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
    collect=_pci,
    facts={
        "gpu_count": Fact("GPUs on the PCI bus, with or without a driver", f"{_PCI}/*/uevent"),
        "gpu_model": Fact("name of the GPUs, by PCI id if the driver has none", f"{_PCI}/*/uevent"),
        "iommu": Fact(
            "effective IOMMU mode of the GPUs: pt, translated or off",
            f"{_PCI}/GPU/iommu_group/type",
        ),
        "gpu_numa_nodes": Fact("NUMA nodes of the GPUs", f"{_PCI}/GPU/numa_node"),
        "gpu_bar_size": Fact("GPU memory that the CPU can access (large BAR)", f"{_PCI}/GPU/resource"),
        "pcie_width": Fact("lanes in use; fewer than possible indicates bad contact", f"{_PCI}/GPU/current_link_width"),
        "pcie_link_max": Fact("maximum speed and lanes of the GPU", f"{_PCI}/GPU/max_link_{{speed,width}}"),
        "pcie_degraded": Fact(
            "whether a link between GPU and root port has fewer lanes than both its ends could have; the speed is not "
            "looked at, as idle GPUs lower it",
            f"{_PCI}/GPU/{{current,max}}_link_width",
        ),
        "gpu_has_driver": Fact(
            "whether a driver is bound to the GPUs", "/sys/bus/pci/drivers/{amdgpu,i915,nvidia,xe,…}"
        ),
        "gpu_virtual_functions": Fact("virtual functions of a GPU (SR-IOV)", f"{_PCI}/GPU/sriov_numvfs"),
    },
)


_INFINIBAND = "/sys/class/infiniband"


def _fabric(host: Host) -> ProbeResult:
    adapters = [f"{_INFINIBAND}/{name}" for name in host.names(_INFINIBAND)]
    ports = [f"{adapter}/ports/{port}" for adapter in adapters for port in host.names(f"{adapter}/ports")]
    active = [port for port in ports if "ACTIVE" in (host.value(f"{port}/state") or "")]
    return ProbeResult(
        facts=available(
            ib_board=distinct_values(host.value(f"{adapter}/board_id") for adapter in adapters),
            ib_firmware=distinct_values(host.value(f"{adapter}/fw_ver") for adapter in adapters),
            ib_link_layer=distinct_values(host.value(f"{port}/link_layer") for port in active),
            ib_rate=distinct_values(host.value(f"{port}/rate") for port in active),
        )
    )


FABRIC = Probe(
    collect=_fabric,
    facts={
        "ib_board": Fact("board of the adapters", f"{_INFINIBAND}/*/board_id"),
        "ib_firmware": Fact("firmware of the adapters", f"{_INFINIBAND}/*/fw_ver"),
        "ib_link_layer": Fact("InfiniBand or Ethernet (RoCE)", f"{_INFINIBAND}/*/ports/*/link_layer"),
        "ib_rate": Fact("speed of the active ports", f"{_INFINIBAND}/*/ports/*/rate"),
        "mlx5_version": Fact(
            "version of the adapters' driver; missing for the in-tree one", "/sys/module/mlx5_core/version", single_line
        ),
    },
)
