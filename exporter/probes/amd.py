"""AMD: facts of each GPU from amdgpu, and of compute nodes from KFD."""

from exporter.core.facts import amd as parse
from exporter.core.facts.gpus import Gpu
from exporter.core.facts.values import identity, number, single_line, size
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_DRIVER = "/sys/bus/pci/drivers/amdgpu"
_DEVICE = f"{_DRIVER}/GPU"
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


def _amdgpu(host: Host) -> ProbeResult:
    return ProbeResult(gpus=tuple(_gpu(host, pci) for pci in host.addresses(_DRIVER)))


def _gpu(host: Host, pci: str) -> Gpu:
    device = f"{_DRIVER}/{pci}"
    names = host.names(f"{device}/fw_version")
    firmware = {name.removesuffix("_fw_version"): host.read(f"{device}/fw_version/{name}") for name in names}
    ras = "ras" in host.names(device)  # cards without RAS have no entry
    return Gpu(
        pci=pci,
        vendor="amd",
        unique_id=identity(host.read(f"{device}/unique_id")),
        serial=identity(host.read(f"{device}/serial_number")),
        facts=parse.firmware(firmware)
        | known_facts(
            gpu_model=host.value(f"{device}/product_name"),
            vbios_version=host.value(f"{device}/vbios_version"),
            hbm_vendor=parse.memory_vendor(host.value(f"{device}/mem_info_vram_vendor")),
            gpu_memory=size(number(host.read(f"{device}/mem_info_vram_total"))),
            gpu_compute_partition=host.value(f"{device}/current_compute_partition"),
            gpu_memory_partition=host.value(f"{device}/current_memory_partition"),
            gpu_performance_level=host.value(f"{device}/power_dpm_force_performance_level"),
            gpu_ecc=parse.memory_ecc(host.read(f"{device}/ras/features")) if ras else None,
            gpu_retired_pages=parse.retired_pages(host.read(f"{device}/ras/gpu_vram_bad_pages")) if ras else None,
        ),
    )


AMDGPU = Probe(
    collect=_amdgpu,
    facts={
        "vbios_version": Fact("the GPUs' BIOS", f"{_DEVICE}/vbios_version, /proc/driver/nvidia/gpus/GPU/information"),
        "hbm_vendor": Fact("maker of the GPUs' memory", f"{_DEVICE}/mem_info_vram_vendor"),
        "gpu_memory": Fact(
            "memory of one GPU", f"{_DEVICE}/mem_info_vram_total, GPU/tile0/physical_vram_size_bytes of xe"
        ),
        "gpu_compute_partition": Fact("compute partitioning: SPX, DPX, CPX", f"{_DEVICE}/current_compute_partition"),
        "gpu_memory_partition": Fact("memory partitioning: NPS1, NPS4", f"{_DEVICE}/current_memory_partition"),
        "gpu_performance_level": Fact(
            "performance level; auto: set by the driver", f"{_DEVICE}/power_dpm_force_performance_level"
        ),
        "gpu_ecc": Fact("whether the GPUs' memory has ECC", f"{_DEVICE}/ras/features, NVIDIA's driver"),
        "gpu_retired_pages": Fact("retired pages of GPU memory", f"{_DEVICE}/ras/gpu_vram_bad_pages"),
        "amdgpu_firmware": Fact("fingerprint of all GPU firmware", f"{_DEVICE}/fw_version/*"),
        **{
            f"amdgpu_firmware_{name}": Fact(f"firmware of the GPUs: {what}", f"{_DEVICE}/fw_version/{name}_fw_version")
            for name, what in parse.FIRMWARE.items()
        },
        "amdgpu_version": Fact(
            "version of amdgpu; missing for the in-tree driver", "/sys/module/amdgpu/version", single_line
        ),
    },
)


def _kfd(host: Host) -> ProbeResult:
    # Sorted by number: a partitioned GPU has several nodes, and its first counts.
    nodes = sorted(int(name) for name in host.names(_TOPOLOGY) if name.isdecimal())
    gpus = (parse.gpu_of_kfd_node(node, host.read(f"{_TOPOLOGY}/{node}/properties") or "") for node in nodes)
    return ProbeResult(gpus=parse.with_partitions(gpu for gpu in gpus if gpu))


KFD = Probe(
    collect=_kfd,
    facts={
        "gfx_target": Fact("instruction set of the GPUs", f"{_TOPOLOGY}/*/properties"),
        "xgmi": Fact("whether the GPUs are linked by XGMI", f"{_TOPOLOGY}/*/properties"),
    },
)
