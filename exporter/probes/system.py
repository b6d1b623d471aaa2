"""Facts of every machine: the kernel, its settings, the board, and services.

Services are those with control groups of active systemd units.
"""

from exporter.core.facts import linux
from exporter.core.facts.parsing import bracketed_word, distinct_values, on_or_off, single_line
from exporter.probes.gpu_vendors import CONTAINER_DRIVER
from exporter.probes.probe import Fact, Host, Probe, ProbeResult, available

_HEAD_BYTES = 4096  # the first CPU; reading all 256 CPUs interrupts each for its frequency


def _kernel(host: Host) -> ProbeResult:
    release = host.value("/proc/sys/kernel/osrelease") or ""
    config = host.read(f"/boot/config-{release}", f"/lib/modules/{release}/config") if release else None
    return ProbeResult(
        facts=available(
            cgroup_version=_cgroup_version(host),
            hmm=linux.build_option(config, "CONFIG_HMM_MIRROR") if config else None,
            gpu_svm=linux.build_option(config, "CONFIG_HSA_AMD_SVM") if config else None,
            gpu_modules=distinct_values(name for name in host.names("/sys/module") if name in _MODULES),
        )
    )


def _cgroup_version(host: Host) -> str | None:
    if host.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "2"
    return "1" if host.exists("/sys/fs/cgroup/memory") else None


# Modules for shared memory or links of GPUs; the drivers themselves are in `driver`.
_MODULES = {
    "amd_atl", "cxi_core", "gdrdrv", "hsi", "ib_core", "irdma", "knem", "lnet", "mlx5_core", "nv_peer_mem",
    "nvidia_fs", "nvidia_peermem", "nvidia_uvm", "rdma_rxe", "xpmem",
}  # fmt: skip

KERNEL = Probe(
    collect=_kernel,
    facts={
        "kernel_release": Fact("release of the running kernel", "/proc/sys/kernel/osrelease", single_line),
        "os": Fact("the distribution, without its point release", "/etc/os-release /usr/lib/os-release", linux.os_name),
        "kernel_arguments": Fact(
            "kernel arguments for GPUs, memory and power", "/proc/cmdline", linux.kernel_arguments
        ),
        "kernel_taint": Fact(
            "taint flags of the kernel without warnings: O out-of-tree, E unsigned, P proprietary, M machine check, …",
            "/proc/sys/kernel/tainted",
            linux.taint,
        ),
        "lockdown": Fact("kernel lockdown mode", "/sys/kernel/security/lockdown", bracketed_word),
        "numa_balancing": Fact(
            "1: the kernel moves pages between NUMA nodes", "/proc/sys/kernel/numa_balancing", single_line
        ),
        "transparent_hugepage": Fact(
            "mode of transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", bracketed_word
        ),
        "huge_pages": Fact("reserved huge pages", "/proc/meminfo", linux.huge_pages),
        "overcommit_memory": Fact("2: memory is never overcommitted", "/proc/sys/vm/overcommit_memory", single_line),
        "max_map_count": Fact("maximum mappings of a process", "/proc/sys/vm/max_map_count", single_line),
        "zone_reclaim_mode": Fact(
            "not 0: memory is freed on the near NUMA node first", "/proc/sys/vm/zone_reclaim_mode", single_line
        ),
        "core_pattern": Fact("target of core dumps", "/proc/sys/kernel/core_pattern", single_line),
        "ptrace_scope": Fact(
            "not 0: processes of one user may not share memory through CMA",
            "/proc/sys/kernel/yama/ptrace_scope",
            single_line,
        ),
        "dmesg_restricted": Fact(
            "whether the kernel log needs CAP_SYSLOG", "/proc/sys/kernel/dmesg_restrict", on_or_off
        ),
        "cgroup_version": Fact("1 or 2", "/sys/fs/cgroup/cgroup.controllers"),
        "hmm": Fact("whether the kernel can share page tables with GPUs (HMM_MIRROR)", "/boot/config-RELEASE"),
        "gpu_svm": Fact("the same for AMD's shared virtual memory (HSA_AMD_SVM)", "/boot/config-RELEASE"),
        "gpu_modules": Fact("loaded modules for shared memory or links of GPUs", "/sys/module"),
    },
)


def _board(host: Host) -> ProbeResult:
    folder = "/sys/class/dmi/id"
    maker, product = host.value(f"{folder}/sys_vendor"), host.value(f"{folder}/product_name")
    cpuinfo = host.read("/proc/cpuinfo", most=_HEAD_BYTES) or ""
    return ProbeResult(
        facts=available(
            platform=single_line(" ".join(part for part in (maker, product) if part)),
            cpu_model=linux.cpu_model(cpuinfo),
            cpu_microcode=linux.cpu_microcode(cpuinfo),
        )
    )


BOARD = Probe(
    collect=_board,
    facts={
        "bios_version": Fact("version of the BIOS", "/sys/class/dmi/id/bios_version", single_line),
        "bios_date": Fact("date of the BIOS", "/sys/class/dmi/id/bios_date", single_line),
        "platform": Fact("maker and model of the machine", "/sys/class/dmi/id/{sys_vendor,product_name}"),
        "cpu_model": Fact("model of the CPU", "/proc/cpuinfo"),
        "cpu_microcode": Fact("microcode of the CPU", "/proc/cpuinfo"),
        "cpu_smt": Fact("whether two threads share a core", "/sys/devices/system/cpu/smt/active", on_or_off),
        "cpu_governor": Fact(
            "frequency governor of the CPU", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", single_line
        ),
        "cpu_idle_driver": Fact(
            "idle driver of the CPU", "/sys/devices/system/cpu/cpuidle/current_driver", single_line
        ),
        "memory_size": Fact("memory of the node", "/proc/meminfo", linux.memory_size),
    },
)


_SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")  # version 2 and 1

# What `systemctl enable` links a unit into.
_ENABLED = tuple(f"/etc/systemd/system/{target}.target.wants" for target in ("multi-user", "graphical", "default"))
_GPU_SERVICES = (
    "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "nvidia-imex", "dcgm-exporter", "amd-metrics-exporter",
    "rdc", "xpumd",
)  # fmt: skip

_UNITS = {
    "scheduler": {
        "slurmd": "slurm",
        "kubelet": "kubernetes",
        "k3s": "kubernetes",
        "rke2-agent": "kubernetes",
        "pbs": "pbs",
    },
    "container_runtimes": {"containerd": "containerd", "crio": "crio", "docker": "docker"},
    "time_sync": {
        "chrony": "chrony",
        "chronyd": "chrony",
        "ntp": "ntp",
        "ntpd": "ntp",
        "ntpsec": "ntp",
        "ptp4l": "ptp",
        "systemd-timesyncd": "timesyncd",
    },
    "gpu_services": {name: name for name in ("amd-metrics-exporter", "nvidia-dcgm", "nvidia-imex")},
}


def _services(host: Host) -> ProbeResult:
    active = {name.removesuffix(".service") for folder in _SLICES for name in host.names(folder)}
    if not active:
        return ProbeResult()
    facts = {fact: distinct_values(units[name] for name in units if name in active) for fact, units in _UNITS.items()}
    if host.exists("/proc/driver/nvidia-nvswitch"):
        is_active = "nvidia-fabricmanager" in active
        # A driver in a container runs its fabric manager there, outside of these control groups.
        facts["fabricmanager_running"] = (
            None if not is_active and host.exists(CONTAINER_DRIVER) else str(is_active).lower()
        )
    if any(host.exists(folder) for folder in _ENABLED):
        wanted = {name for folder in _ENABLED for name in host.names(folder)}
        down = (name for name in _GPU_SERVICES if f"{name}.service" in wanted and name not in active)
        facts["gpu_services_down"] = distinct_values(down) or "none"
    return ProbeResult(facts=available(**facts))


SERVICES = Probe(
    collect=_services,
    facts={
        "scheduler": Fact("scheduler of jobs", f"{_SLICES[0]}/{{slurmd,kubelet,…}}.service"),
        "container_runtimes": Fact("container runtimes", f"{_SLICES[0]}/{{containerd,crio,docker}}.service"),
        "time_sync": Fact("time synchronisation; absent if none", f"{_SLICES[0]}/{{chronyd,…}}.service"),
        "gpu_services": Fact("running services of GPU vendors", f"{_SLICES[0]}/nvidia-*.service"),
        "gpu_services_down": Fact(
            "services of GPU vendors that are enabled, but do not run", f"{_ENABLED[0]}/nvidia-*.service"
        ),
        "fabricmanager_running": Fact(
            "whether it runs, on nodes with NVSwitches, where CUDA needs it",
            f"{_SLICES[0]}/nvidia-fabricmanager.service",
        ),
    },
)
