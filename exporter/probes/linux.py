"""Facts of every machine: the kernel, its settings and the board."""

from exporter.core.facts import linux as parse
from exporter.core.facts.values import bracketed_word, distinct_values, on_or_off, single_line
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_HEAD_BYTES = 4096  # the first CPU; reading all 256 CPUs interrupts each for its frequency


def _kernel(host: Host) -> ProbeResult:
    release = host.value("/proc/sys/kernel/osrelease") or ""
    config = host.read(f"/boot/config-{release}", f"/lib/modules/{release}/config") if release else None
    return ProbeResult(
        facts=known_facts(
            cgroup_version=_cgroup_version(host),
            hmm=parse.build_option(config, "CONFIG_HMM_MIRROR") if config else None,
            gpu_svm=parse.build_option(config, "CONFIG_HSA_AMD_SVM") if config else None,
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
        "os": Fact("the distribution, without its point release", "/etc/os-release /usr/lib/os-release", parse.os_name),
        "kernel_arguments": Fact(
            "kernel arguments for GPUs, memory and power", "/proc/cmdline", parse.kernel_arguments
        ),
        "kernel_taint": Fact(
            "taint flags of the kernel without warnings: O out-of-tree, E unsigned, P proprietary, M machine check, …",
            "/proc/sys/kernel/tainted",
            parse.taint,
        ),
        "lockdown": Fact("kernel lockdown mode", "/sys/kernel/security/lockdown", bracketed_word),
        "numa_balancing": Fact(
            "1: the kernel moves pages between NUMA nodes", "/proc/sys/kernel/numa_balancing", single_line
        ),
        "transparent_hugepage": Fact(
            "mode of transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", bracketed_word
        ),
        "huge_pages": Fact("reserved huge pages", "/proc/meminfo", parse.huge_pages),
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
        facts=known_facts(
            platform=single_line(" ".join(part for part in (maker, product) if part)),
            cpu_model=parse.cpu_model(cpuinfo),
            cpu_microcode=parse.cpu_microcode(cpuinfo),
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
        "memory_size": Fact("memory of the node", "/proc/meminfo", parse.memory_size),
    },
)
