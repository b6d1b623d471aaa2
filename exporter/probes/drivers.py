"""GPU drivers: version, build and module parameters."""

from collections.abc import Callable

from exporter.core.facts import nvidia
from exporter.core.facts.parsing import distinct_values, single_line
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available


def _collect(host: Host) -> ProbeResult:
    bound = [name for name in _VERSIONS if host.addresses(f"/sys/bus/pci/drivers/{name}")]
    held = {name: _VERSIONS[name](host) for name in bound}
    return ProbeResult(
        facts=available(
            driver="+".join(held),
            driver_version="+".join(version for version, _ in held.values() if version),
            driver_flavor=distinct_values(flavor for _, flavor in held.values()),
            driver_srcversion=distinct_values(host.value(f"/sys/module/{name}/srcversion") for name in bound),
        )
    )


_Stated = tuple[str | None, str | None]  # version and flavour


def _module(name: str, *version_files: str) -> Callable[[Host], _Stated]:
    def version_and_flavor(host: Host) -> _Stated:
        # O: out of the kernel's tree (Documentation/ABI/testing/sysfs-module), which for these drivers is DKMS.
        taint = host.read(f"/sys/module/{name}/taint") or ""
        version = host.value(*(f"/sys/module/{name}/{file}" for file in version_files))
        return version, "dkms" if "O" in taint else "inbox"

    return version_and_flavor


def _nvidia_module(host: Host) -> _Stated:
    return nvidia.driver_version(host.read("/proc/driver/nvidia/version") or "") or (None, None)


_VERSIONS = {
    "amdgpu": _module("amdgpu", "version"),  # missing for the in-tree driver
    "i915": _module("i915", "agama_version", "srcversion"),  # agama: Intel's backport; the order is compute-runtime's
    "nvidia": _nvidia_module,
    "xe": _module("xe", "srcversion"),
}

DRIVERS = Probe(
    collect=_collect,
    facts={
        "driver": Fact("the drivers bound to a GPU", "/sys/bus/pci/drivers/{amdgpu,i915,nvidia,xe}"),
        "driver_version": Fact(
            "version of the drivers, or the fingerprint of their source",
            "/sys/module/DRIVER/{version,agama_version,srcversion}, /proc/driver/nvidia/version",
        ),
        "driver_flavor": Fact(
            "inbox: part of the kernel; dkms: built separately; for NVIDIA, open or proprietary",
            "/sys/module/DRIVER/taint, /proc/driver/nvidia/version",
        ),
        "driver_srcversion": Fact("fingerprint of the drivers' source", "/sys/module/DRIVER/srcversion"),
    },
)

_PARAMETERS = {
    "amdgpu": {
        "noretry": "1: no retry faults, so no XNACK; -1: the driver's choice",
        "cwsr_enable": "whether running waves can be preempted",
        "gpu_recovery": "whether a hung GPU is reset; -1: the driver's choice",
        "ras_enable": "whether memory errors are handled",
        "bad_page_threshold": "retired pages before a GPU is disabled",
        "vm_fragment_size": "page size of the GPU, as a power of two times 4 KiB",
        "lockup_timeout": "run time after which a job counts as hung",
        "mes": "whether firmware schedules the queues",
        "sched_policy": "how KFD schedules queues",
        "hws_max_conc_proc": "processes on a GPU at once",
        "no_system_mem_limit": "whether GPU jobs may pin more than the available memory",
        "runpm": "whether idle GPUs are suspended",
        "ppfeaturemask": "enabled power features",
        "pcie_p2p": "whether GPUs reach each other over PCIe",
    },
    "i915": {
        "enable_hangcheck": "whether hangs are detected; without, a hung job never ends",
        "enable_guc": "tasks of the firmware: 1 scheduling, 2 authentication",
        "reset": "how a hung GPU is reset",
        "request_timeout_ms": "timeout of a request",
    },
    "xe": {
        "force_execlist": "scheduling without the firmware",
        "wedged_mode": "when a GPU is declared wedged",
    },
    "nvidia_uvm": {
        "uvm_ats_mode": "whether GPUs use the CPU's page tables",
        "uvm_perf_prefetch_enable": "whether managed memory is prefetched",
    },
}

PARAMETERS = Probe(
    facts={
        f"{module}.{name}": Fact(f"module parameter: {meaning}", f"/sys/module/{module}/parameters/{name}", single_line)
        for module, parameters in _PARAMETERS.items()
        for name, meaning in parameters.items()
    }
)
