"""Facts of the kernel, the distribution and the CPU."""

import re

from exporter.core.facts.parsing import assignments, fields, single_line, size


def os_name(os_release: str) -> str | None:
    """`ubuntu 22.04` from `/etc/os-release`, without point release: the kernel release is more precise."""
    stated = assignments(os_release)
    return single_line(f"{stated.get('ID', '')} {stated.get('VERSION_ID', '')}")


def iommu_mode(group_type: str) -> str:
    """The effective DMA mode from `/sys/kernel/iommu_groups/*/type`; `iommu=pt` is only a request."""
    return {"identity": "pt", "DMA": "translated", "DMA-FQ": "translated"}.get(group_type, group_type)


# Documentation/admin-guide/tainted-kernels.rst, in the order of the bits.
_TAINTS = "PFSRMBUDAWCIOELKXTN"


def taint(text: str) -> str | None:
    """The letters of `/proc/sys/kernel/tainted`, `none` for 0. O: out-of-tree module, E: unsigned, M: machine check.

    W (a warning was printed) is left out: it only shows that a node has run for some time.
    """
    value = re.fullmatch(r"\s*(\d{1,9})\s*", text)
    if not value:
        return None
    letters = (letter for bit, letter in enumerate(_TAINTS) if int(value[1]) >> bit & 1)
    return "".join(letter for letter in letters if letter != "W") or "none"


_ARGUMENTS = {
    "amd_iommu", "intel_iommu", "iommu", "iommu.passthrough", "iommu.strict", "pci", "pcie_aspm",
    "pcie_acs_override", "numa_balancing", "mitigations", "transparent_hugepage", "hugepages", "hugepagesz",
    "default_hugepagesz", "isolcpus", "nohz_full", "processor.max_cstate", "intel_idle.max_cstate",
    "amdgpu.noretry", "amdgpu.gpu_recovery", "nomodeset", "crashkernel", "init_on_alloc",
}  # fmt: skip


def kernel_arguments(cmdline: str) -> str | None:
    """The requested kernel arguments for GPUs, memory and power, sorted."""
    given = (word for word in cmdline.split() if word.partition("=")[0] in _ARGUMENTS)
    return single_line(" ".join(sorted(given)))


def cpu_model(cpuinfo: str) -> str | None:
    """The model of the first CPU; Arm CPUs have only numbers."""
    stated = fields(cpuinfo.partition("\n\n")[0])
    arm = (
        f"arm {stated['CPU implementer']} {stated['CPU part']}"
        if {"CPU implementer", "CPU part"} <= set(stated)
        else None
    )
    return single_line(stated.get("model name")) or single_line(arm)


def cpu_microcode(cpuinfo: str) -> str | None:
    return single_line(fields(cpuinfo.partition("\n\n")[0]).get("microcode"))


def memory_bytes(meminfo: str) -> int | None:
    """The kernel's total memory."""
    match = re.search(r"^MemTotal:\s+(\d{1,15}) kB$", meminfo, re.MULTILINE)
    return int(match[1]) << 10 if match else None


def memory_size(meminfo: str) -> str | None:
    return size(memory_bytes(meminfo))


def huge_pages(meminfo: str) -> str | None:
    """The number and size of reserved huge pages: `512 x 2048 kB`."""
    stated = fields(meminfo)
    count, page_size = stated.get("HugePages_Total", ""), stated.get("Hugepagesize", "")
    return single_line(f"{count.strip()} x {page_size.strip()}") if count.strip().isdecimal() and page_size else None


def build_option(config: str, name: str) -> str | None:
    """Whether a kernel was built with an option, from /boot/config-*; None if the text is not a configuration."""
    if "CONFIG_" not in config:
        return None
    return "true" if re.search(rf"^{name}=[ym]$", config, re.MULTILINE) else "false"
