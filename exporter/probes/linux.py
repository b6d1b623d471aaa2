"""The kernel, its settings and the board: what every machine states, GPUs or not."""

from exporter.core.facts import linux as parse
from exporter.core.facts.values import bracketed_word, distinct_values, on_or_off, single_line
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_HEAD_BYTES = 4096  # the first CPU; a file of 256 CPUs interrupts each of them to ask for its frequency


def _kernel(host: Host) -> Found:
    release = host.value("/proc/sys/kernel/osrelease") or ""
    config = host.read(f"/boot/config-{release}", f"/lib/modules/{release}/config") if release else None
    return Found(
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


# Modules that GPUs share memory or links through; the drivers themselves are `driver`.
_MODULES = {
    "amd_atl", "cxi_core", "gdrdrv", "hsi", "ib_core", "irdma", "knem", "lnet", "mlx5_core", "nv_peer_mem",
    "nvidia_fs", "nvidia_peermem", "nvidia_uvm", "rdma_rxe", "xpmem",
}  # fmt: skip

KERNEL = Probe(
    look=_kernel,
    facts={
        "kernel_release": Fact("the kernel that runs", "/proc/sys/kernel/osrelease", single_line),
        "os": Fact("the distribution, without its point release", "/etc/os-release /usr/lib/os-release", parse.os_name),
        "kernel_arguments": Fact(
            "the kernel's arguments that GPUs, memory and power feel", "/proc/cmdline", parse.kernel_arguments
        ),
        "kernel_taint": Fact(
            "why the kernel is tainted, warnings left out: O out-of-tree, E unsigned, P proprietary, M machine check, …",
            "/proc/sys/kernel/tainted",
            parse.taint,
        ),
        "lockdown": Fact("what root may not do to the kernel", "/sys/kernel/security/lockdown", bracketed_word),
        "numa_balancing": Fact(
            "1: the kernel moves pages between NUMA nodes", "/proc/sys/kernel/numa_balancing", single_line
        ),
        "transparent_hugepage": Fact(
            "large pages without asking", "/sys/kernel/mm/transparent_hugepage/enabled", bracketed_word
        ),
        "huge_pages": Fact("huge pages set aside", "/proc/meminfo", parse.huge_pages),
        "overcommit_memory": Fact("2: no memory is promised twice", "/proc/sys/vm/overcommit_memory", single_line),
        "max_map_count": Fact("mappings that a process may have", "/proc/sys/vm/max_map_count", single_line),
        "zone_reclaim_mode": Fact(
            "not 0: memory is freed on the near NUMA node first", "/proc/sys/vm/zone_reclaim_mode", single_line
        ),
        "core_pattern": Fact("where core dumps go", "/proc/sys/kernel/core_pattern", single_line),
        "ptrace_scope": Fact(
            "not 0: processes of one user may not share memory through CMA",
            "/proc/sys/kernel/yama/ptrace_scope",
            single_line,
        ),
        "dmesg_restricted": Fact(
            "whether the kernel log needs CAP_SYSLOG", "/proc/sys/kernel/dmesg_restrict", on_or_off
        ),
        "cgroup_version": Fact("1 or 2", "/sys/fs/cgroup/cgroup.controllers"),
        "hmm": Fact("whether the kernel was built to share page tables with GPUs (HMM_MIRROR)", "/boot/config-RELEASE"),
        "gpu_svm": Fact("the same for AMD's shared virtual memory (HSA_AMD_SVM)", "/boot/config-RELEASE"),
        "gpu_modules": Fact("loaded modules that GPUs share memory or links through", "/sys/module"),
    },
)


def _board(host: Host) -> Found:
    folder = "/sys/class/dmi/id"
    maker, product = host.value(f"{folder}/sys_vendor"), host.value(f"{folder}/product_name")
    cpuinfo = host.read("/proc/cpuinfo", most=_HEAD_BYTES) or ""
    return Found(
        facts=known_facts(
            platform=single_line(" ".join(part for part in (maker, product) if part)),
            cpu_model=parse.cpu_model(cpuinfo),
            cpu_microcode=parse.cpu_microcode(cpuinfo),
        )
    )


BOARD = Probe(
    look=_board,
    facts={
        "bios_version": Fact("the BIOS", "/sys/class/dmi/id/bios_version", single_line),
        "bios_date": Fact("its date", "/sys/class/dmi/id/bios_date", single_line),
        "platform": Fact("maker and name of the machine", "/sys/class/dmi/id/{sys_vendor,product_name}"),
        "cpu_model": Fact("the CPU", "/proc/cpuinfo"),
        "cpu_microcode": Fact("its microcode", "/proc/cpuinfo"),
        "cpu_smt": Fact("whether two threads share a core", "/sys/devices/system/cpu/smt/active", on_or_off),
        "cpu_governor": Fact(
            "who chooses the clocks", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", single_line
        ),
        "cpu_idle_driver": Fact(
            "who sends cores to sleep", "/sys/devices/system/cpu/cpuidle/current_driver", single_line
        ),
        "memory_size": Fact("the node's memory", "/proc/meminfo", parse.memory_size),
    },
)
