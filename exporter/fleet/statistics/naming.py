"""Which of several indistinguishable facts names a finding: the one that people can change."""

from __future__ import annotations

import re

# In this order. Facts that match nothing come behind them, and last those that follow from the machine or another fact.
_ACTED_ON = tuple(
    re.compile(pattern)
    for pattern in (
        r"driver_version|amdgpu_version|amdgpu_core_package|neo_version|intel_dkms_package",
        r"firmware|bios_version|microcode|guc_version|huc_version",
        r"image",
        r"version|release|options|package|^env\.",
        r"^gpu_model$",
    )
)
_DERIVED = re.compile(
    r"^(?:gfx_target|gpu_count|gpu_memory|gpu_bar_size|gpu_numa_nodes|compute_capability|pci_device|driver|driver_flavor"
    r"|driver_srcversion|bios_date|cpu_model|memory_size|platform|(?:rocm|cuda|oneapi)_versions|.*_mix"
    r"|partition|slurm_partition|queue|workload)$"
)


def rank(fact: str) -> int:
    """The place of a fact in the order; lower is better."""
    if _DERIVED.search(fact):
        return len(_ACTED_ON) + 1
    return next((i for i, pattern in enumerate(_ACTED_ON) if pattern.search(fact)), len(_ACTED_ON))
