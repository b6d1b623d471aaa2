"""NVIDIA: facts from the driver's files in /proc, which are readable while nvidia-smi hangs.

ECC mode, remapped rows and NVLink need NVML, which waits for the GPU: see `ask_driver`.
"""

from exporter.core.facts import nvidia as parse
from exporter.core.facts.values import distinct_values, on_or_off
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts

_GPUS = "/proc/driver/nvidia/gpus"
CONTAINER_DRIVER = "/run/nvidia/driver"  # where NVIDIA's GPU operator mounts the file system of the driver's container
_SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
_LIBRARIES = (*_SYSTEM_LIBRARIES, *(CONTAINER_DRIVER + folder for folder in _SYSTEM_LIBRARIES))
_MPS = "/run/nvidia/mps"  # of the device plug-in; jobs may start temporary daemons of their own
_PERSISTENCED = "/run/nvidia-persistenced/socket"


def _collect(host: Host) -> ProbeResult:
    informations = {pci: host.read(f"{_GPUS}/{pci}/information") for pci in host.addresses(_GPUS)}
    libraries = [name for folder in _LIBRARIES for name in host.names(folder)] if informations else []
    params = host.read("/proc/driver/nvidia/params")
    return ProbeResult(
        gpus=tuple(parse.gpu_of_information(pci, text) for pci, text in informations.items() if text),
        facts=parse.parameters(params or "")
        | known_facts(
            libcuda_version=distinct_values(parse.libcuda_versions(libraries)),
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
    collect=_collect,
    facts={
        "nvidia_gsp_firmware": Fact(
            "firmware of the GPUs' system processor; off: the driver does its work", f"{_GPUS}/GPU/information"
        ),
        "nvidia_gpu_excluded": Fact("whether a GPU is excluded from use", f"{_GPUS}/GPU/information"),
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
            f"nvidia.NVreg_{name}": Fact(f"module parameter: {what}", "/proc/driver/nvidia/params")
            for name, what in parse.PARAMETERS.items()
        },
    },
)
