"""Facts of each GPU from the drivers of AMD, Intel and NVIDIA, without their libraries.

Intel's firmware versions are in debugfs, which only root can read. NVIDIA's files in /proc are readable while nvidia-smi
hangs; ECC mode, remapped rows and NVLink need NVML, which waits for the GPU: see `ask_driver`.
"""

from exporter.core.facts import amd, nvidia
from exporter.core.facts.gpus import Gpu
from exporter.core.facts.intel import firmware_version
from exporter.core.facts.parsing import distinct_values, identity, number, on_or_off, single_line, size
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available

_AMDGPU = "/sys/bus/pci/drivers/amdgpu"
_AMD_DEVICE = f"{_AMDGPU}/GPU"
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


def _amdgpu(host: Host) -> ProbeResult:
    return ProbeResult(gpus=tuple(_amd_gpu(host, pci) for pci in host.addresses(_AMDGPU)))


def _amd_gpu(host: Host, pci: str) -> Gpu:
    device = f"{_AMDGPU}/{pci}"
    names = host.names(f"{device}/fw_version")
    firmware = {name.removesuffix("_fw_version"): host.read(f"{device}/fw_version/{name}") for name in names}
    ras = "ras" in host.names(device)  # cards without RAS have no entry
    return Gpu(
        pci=pci,
        vendor="amd",
        unique_id=identity(host.read(f"{device}/unique_id")),
        serial=identity(host.read(f"{device}/serial_number")),
        facts=amd.firmware(firmware)
        | available(
            gpu_model=host.value(f"{device}/product_name"),
            vbios_version=host.value(f"{device}/vbios_version"),
            hbm_vendor=amd.memory_vendor(host.value(f"{device}/mem_info_vram_vendor")),
            gpu_memory=size(number(host.read(f"{device}/mem_info_vram_total"))),
            gpu_compute_partition=host.value(f"{device}/current_compute_partition"),
            gpu_memory_partition=host.value(f"{device}/current_memory_partition"),
            gpu_performance_level=host.value(f"{device}/power_dpm_force_performance_level"),
            gpu_ecc=amd.memory_ecc(host.read(f"{device}/ras/features")) if ras else None,
            gpu_retired_pages=amd.retired_pages(host.read(f"{device}/ras/gpu_vram_bad_pages")) if ras else None,
        ),
    )


AMDGPU = Probe(
    collect=_amdgpu,
    facts={
        "vbios_version": Fact(
            "the GPUs' BIOS", f"{_AMD_DEVICE}/vbios_version, /proc/driver/nvidia/gpus/GPU/information"
        ),
        "hbm_vendor": Fact("maker of the GPUs' memory", f"{_AMD_DEVICE}/mem_info_vram_vendor"),
        "gpu_memory": Fact(
            "memory of one GPU", f"{_AMD_DEVICE}/mem_info_vram_total, GPU/tile0/physical_vram_size_bytes of xe"
        ),
        "gpu_compute_partition": Fact(
            "compute partitioning: SPX, DPX, CPX", f"{_AMD_DEVICE}/current_compute_partition"
        ),
        "gpu_memory_partition": Fact("memory partitioning: NPS1, NPS4", f"{_AMD_DEVICE}/current_memory_partition"),
        "gpu_performance_level": Fact(
            "performance level; auto: set by the driver", f"{_AMD_DEVICE}/power_dpm_force_performance_level"
        ),
        "gpu_ecc": Fact("whether the GPUs' memory has ECC", f"{_AMD_DEVICE}/ras/features, NVIDIA's driver"),
        "gpu_retired_pages": Fact("retired pages of GPU memory", f"{_AMD_DEVICE}/ras/gpu_vram_bad_pages"),
        "amdgpu_firmware": Fact("fingerprint of all GPU firmware", f"{_AMD_DEVICE}/fw_version/*"),
        **{
            f"amdgpu_firmware_{name}": Fact(
                f"firmware of the GPUs: {block}", f"{_AMD_DEVICE}/fw_version/{name}_fw_version"
            )
            for name, block in amd.FIRMWARE.items()
        },
        "amdgpu_version": Fact(
            "version of amdgpu; missing for the in-tree driver", "/sys/module/amdgpu/version", single_line
        ),
    },
)


def _kfd(host: Host) -> ProbeResult:
    # Sorted by number: a partitioned GPU has several nodes, and its first counts.
    nodes = sorted(int(name) for name in host.names(_TOPOLOGY) if name.isdecimal())
    gpus = (amd.gpu_of_kfd_node(node, host.read(f"{_TOPOLOGY}/{node}/properties") or "") for node in nodes)
    return ProbeResult(gpus=amd.with_partitions(gpu for gpu in gpus if gpu))


KFD = Probe(
    collect=_kfd,
    facts={
        "gfx_target": Fact("instruction set of the GPUs", f"{_TOPOLOGY}/*/properties"),
        "xgmi": Fact("whether the GPUs are linked by XGMI", f"{_TOPOLOGY}/*/properties"),
    },
)


_INTEL_DRIVERS = ("i915", "xe")
_INTEL_DEVICE = "/sys/bus/pci/devices/GPU"
_UC = "/sys/kernel/debug/dri/*/gt0/uc"


def _intel(host: Host) -> ProbeResult:
    held = [(driver, pci) for driver in _INTEL_DRIVERS for pci in host.addresses(f"/sys/bus/pci/drivers/{driver}")]
    return ProbeResult(gpus=tuple(_intel_gpu(host, driver, pci) for driver, pci in held))


def _intel_gpu(host: Host, driver: str, pci: str) -> Gpu:
    device = f"/sys/bus/pci/drivers/{driver}/{pci}"
    cards = [name for name in host.names(f"{device}/drm") if name.startswith("card") and name[4:].isdecimal()]
    tiles = [f"{device}/{name}" for name in host.names(device) if name.startswith("tile")]
    memory = sum(number(host.read(f"{tile}/physical_vram_size_bytes")) or 0 for tile in tiles)
    engines = _compute_engines(host, device, cards, tiles)
    debug = _debug(host, pci, cards)
    return Gpu(
        pci=pci,
        vendor="intel",
        unique_id=identity(host.read(f"{device}/device_uuid")),
        facts=available(
            gpu_memory=size(memory or number(host.read(*(f"{device}/drm/{card}/lmem_total_bytes" for card in cards)))),
            guc_version=firmware_version(host.read(f"{debug}/guc_info")) if debug else None,
            huc_version=firmware_version(host.read(f"{debug}/huc_info")) if debug else None,
            gpu_preempt_timeout=_of_engines(host, engines, "preempt_timeout_ms", "preempt_timeout_us"),
            gpu_job_timeout=_of_engines(host, engines, "job_timeout_ms"),
            gpu_heartbeat=_of_engines(host, engines, "heartbeat_interval_ms"),
            gpu_survivability=host.value(f"{device}/survivability_mode"),
        ),
    )


def _compute_engines(host: Host, device: str, cards: list[str], tiles: list[str]) -> list[str]:
    """The folders of a GPU's compute engines: drm/cardN/engine/ccs0 of i915, tileN/gtN/engines/ccs of xe."""
    folders = [f"{device}/drm/{card}/engine" for card in cards]
    folders += [f"{tile}/{name}/engines" for tile in tiles for name in host.names(tile) if name.startswith("gt")]
    return [f"{folder}/{name}" for folder in folders for name in host.names(folder) if name.startswith("ccs")]


def _of_engines(host: Host, engines: list[str], *files: str) -> str | None:
    """A setting of all engines, with the unit from its file name."""
    values = ((file, number(host.read(f"{engine}/{file}"))) for engine in engines for file in files)
    return distinct_values(f"{value} {file.rpartition('_')[2]}" for file, value in values if value is not None)


def _debug(host: Host, pci: str, cards: list[str]) -> str | None:
    """A GPU's firmware folder in debugfs: dri/PCI, in older kernels dri/N of cardN; None without access."""
    try:
        host.real("/sys/kernel/debug/dri").stat()
    except OSError:  # not mounted or no permission: not a failure
        return None
    folders = [f"/sys/kernel/debug/dri/{name}" for name in (pci, *(card.removeprefix("card") for card in cards))]
    return next((f"{folder}/gt0/uc" for folder in folders if host.exists(folder)), None)


INTEL = Probe(
    collect=_intel,
    facts={
        "guc_version": Fact("running scheduler firmware of the GPUs", f"{_UC}/guc_info"),
        "huc_version": Fact("running media firmware of the GPUs", f"{_UC}/huc_info"),
        "gpu_preempt_timeout": Fact(
            "time a kernel may continue when preempted, before it counts as hung",
            f"{_INTEL_DEVICE}/drm/card*/engine/ccs*/preempt_timeout_ms of i915, tile*/gt*/engines/ccs/preempt_timeout_us of xe",
        ),
        "gpu_job_timeout": Fact(
            "maximum run time of a kernel under xe", f"{_INTEL_DEVICE}/tile*/gt*/engines/ccs/job_timeout_ms"
        ),
        "gpu_heartbeat": Fact(
            "interval of i915's engine checks",
            f"{_INTEL_DEVICE}/drm/card*/engine/ccs*/heartbeat_interval_ms",
        ),
        "gpu_survivability": Fact(
            "set if a GPU started only for firmware recovery", f"{_INTEL_DEVICE}/survivability_mode"
        ),
        "i915_agama_version": Fact(
            "version of Intel's i915 backport, if used", "/sys/module/i915/agama_version", single_line
        ),
    },
)


_NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
CONTAINER_DRIVER = "/run/nvidia/driver"  # where NVIDIA's GPU operator mounts the file system of the driver's container
_SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
_LIBRARIES = (*_SYSTEM_LIBRARIES, *(CONTAINER_DRIVER + folder for folder in _SYSTEM_LIBRARIES))
_MPS = "/run/nvidia/mps"  # of the device plug-in; jobs may start temporary daemons of their own
_PERSISTENCED = "/run/nvidia-persistenced/socket"


def _nvidia(host: Host) -> ProbeResult:
    informations = {pci: host.read(f"{_NVIDIA_GPUS}/{pci}/information") for pci in host.addresses(_NVIDIA_GPUS)}
    libraries = [name for folder in _LIBRARIES for name in host.names(folder)] if informations else []
    params = host.read("/proc/driver/nvidia/params")
    return ProbeResult(
        gpus=tuple(nvidia.gpu_of_information(pci, text) for pci, text in informations.items() if text),
        facts=nvidia.parameters(params or "")
        | available(
            libcuda_version=distinct_values(nvidia.libcuda_versions(libraries)),
            nvidia_mig=_mig(host) if informations else None,
            nvidia_mps=_exists_in_run(host, _MPS) if informations else None,
            nvidia_persistenced=_exists_in_run(host, _PERSISTENCED, CONTAINER_DRIVER + _PERSISTENCED)
            if informations
            else None,
        ),
    )


def _exists_in_run(host: Host, *paths: str) -> str | None:
    """Whether one of these is there; None if not and the node's /run is not visible, as in a container without its mount."""
    if any(host.exists(path) for path in paths):
        return "true"
    return "false" if host.exists("/run/systemd") or host.exists("/run/udev") else None


def _mig(host: Host) -> str | None:
    """Whether a GPU is partitioned: its capabilities have GPU instances (gi1, gi2, …)."""
    folder = "/proc/driver/nvidia/capabilities"
    gpus = [name for name in host.names(folder) if name.startswith("gpu")]
    if not gpus:
        return None
    return str(any(name.startswith("gi") for gpu in gpus for name in host.names(f"{folder}/{gpu}/mig"))).lower()


NVIDIA = Probe(
    collect=_nvidia,
    facts={
        "nvidia_gsp_firmware": Fact(
            "firmware of the GPUs' system processor; off: the driver does its work", f"{_NVIDIA_GPUS}/GPU/information"
        ),
        "nvidia_gpu_excluded": Fact("whether a GPU is excluded from use", f"{_NVIDIA_GPUS}/GPU/information"),
        "nvidia_mig": Fact("whether a GPU is partitioned into instances", "/proc/driver/nvidia/capabilities/gpu*/mig"),
        "nvidia_mps": Fact("whether Kubernetes shares GPUs through MPS", _MPS),
        "nvidia_persistenced": Fact("whether GPUs stay initialised without users", _PERSISTENCED),
        "nvidia_uvm_hmm": Fact(
            "whether GPUs can use system memory directly (HMM)",
            "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
            lambda text: {"true": "false", "false": "true"}.get(on_or_off(text) or ""),
        ),
        "libcuda_version": Fact("the driver's user-mode half", f"libcuda.so.* in {', '.join(_LIBRARIES)}"),
        **{
            f"nvidia.NVreg_{name}": Fact(f"module parameter: {meaning}", "/proc/driver/nvidia/params")
            for name, meaning in nvidia.PARAMETERS.items()
        },
    },
)
