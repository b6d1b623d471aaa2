"""All probes, and all facts of a node."""

from collections.abc import Mapping

from exporter.core.facts.conclude import DERIVED
from exporter.core.facts.driver_answer import DRIVER_FACTS
from exporter.probes import amd, drivers, fabric, intel, linux, nvidia, packages, pci, services, storage, toolkits
from exporter.probes.base import Fact, Probe

# If two probes report one fact, the earlier row counts: product_name before the table of PCI ids.
PROBES: Mapping[str, Probe] = {
    "kernel": linux.KERNEL,
    "board": linux.BOARD,
    "amdgpu": amd.AMDGPU,
    "intel": intel.INTEL,
    "nvidia": nvidia.NVIDIA,
    "kfd": amd.KFD,
    "pci": pci.PCI,
    "drivers": drivers.DRIVERS,
    "parameters": drivers.PARAMETERS,
    "packages": packages.PACKAGES,
    "rocm": toolkits.ROCM,
    "cuda": toolkits.CUDA,
    "oneapi": toolkits.ONEAPI,
    "services": services.SERVICES,
    "fabric": fabric.FABRIC,
    "storage": storage.STORAGE,
    "home": storage.HOME,
    "home_cache": storage.HOME_CACHE,
}

FACTS: Mapping[str, Fact] = {
    **{name: fact for probe in PROBES.values() for name, fact in probe.facts.items()},
    **{name: Fact(meaning, "the driver's library") for name, meaning in DRIVER_FACTS.items() if name != "gpu_ecc"},
    **{name: Fact(meaning, "other facts") for name, meaning in DERIVED.items()},
}
