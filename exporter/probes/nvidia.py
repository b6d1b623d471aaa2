"""NVIDIA: what the driver states in /proc, which answers while nvidia-smi hangs.

ECC mode, remapped rows and NVLink only NVML tells, and NVML waits for the GPU: a site that wants them names nvidia-smi
under `facts.commands`, where it has a timeout of its own.
"""

from exporter.core.facts import nvidia as parse
from exporter.core.facts.values import distinct_values, on_or_off
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_GPUS = "/proc/driver/nvidia/gpus"
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
_MPS = "/run/nvidia/mps"  # of the device plug-in; a daemon that a job starts for itself comes and goes with it


def _look(host: Host) -> Found:
    informations = {pci: host.read(f"{_GPUS}/{pci}/information") for pci in host.addresses(_GPUS)}
    libraries = [name for folder in _LIBRARIES for name in host.names(folder)] if informations else []
    params = host.read("/proc/driver/nvidia/params")
    return Found(
        gpus=tuple(parse.gpu_of_information(pci, text) for pci, text in informations.items() if text),
        facts=parse.parameters(params or "")
        | known_facts(
            libcuda_version=distinct_values(parse.libcuda_versions(libraries)),
            nvidia_mig=_mig(host) if informations else None,
            nvidia_mps=str(host.exists(_MPS)).lower() if informations else None,
            nvidia_persistenced=str(host.exists("/run/nvidia-persistenced/socket")).lower() if informations else None,
        ),
    )


def _mig(host: Host) -> str | None:
    """Whether some GPU is cut up: then its capabilities have GPU instances (gi1, gi2, …)."""
    folder = "/proc/driver/nvidia/capabilities"
    gpus = [name for name in host.names(folder) if name.startswith("gpu")]
    if not gpus:
        return None
    return str(any(name.startswith("gi") for gpu in gpus for name in host.names(f"{folder}/{gpu}/mig"))).lower()


NVIDIA = Probe(
    look=_look,
    facts={
        "nvidia_gsp_firmware": Fact(
            "the firmware of the GPUs' system processor, off where the driver does its work", f"{_GPUS}/GPU/information"
        ),
        "nvidia_gpu_excluded": Fact("whether a GPU was taken out of use", f"{_GPUS}/GPU/information"),
        "nvidia_mig": Fact("whether a GPU is cut into instances", "/proc/driver/nvidia/capabilities/gpu*/mig"),
        "nvidia_mps": Fact("whether Kubernetes shares GPUs through MPS", _MPS),
        "nvidia_persistenced": Fact("whether GPUs stay initialised without users", "/run/nvidia-persistenced/socket"),
        "nvidia_uvm_hmm": Fact(
            "true where system memory can be used on GPUs as it is (HMM)",
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
