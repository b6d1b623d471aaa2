"""What runs on the node besides jobs, by the control groups that systemd keeps for units that are active."""

from exporter.core.facts.values import distinct_values
from exporter.probes.base import Fact, Found, Host, Probe, known_facts

_SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")  # version 2 and 1

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


def _look(host: Host) -> Found:
    active = {name.removesuffix(".service") for folder in _SLICES for name in host.names(folder)}
    if not active:
        return Found()
    facts = {fact: distinct_values(units[name] for name in units if name in active) for fact, units in _UNITS.items()}
    if host.exists("/proc/driver/nvidia-nvswitch"):
        facts["fabricmanager_running"] = str("nvidia-fabricmanager" in active).lower()
    return Found(facts=known_facts(**facts))


SERVICES = Probe(
    look=_look,
    facts={
        "scheduler": Fact("who starts jobs here", f"{_SLICES[0]}/{{slurmd,kubelet,…}}.service"),
        "container_runtimes": Fact("who runs containers here", f"{_SLICES[0]}/{{containerd,crio,docker}}.service"),
        "time_sync": Fact("who keeps the clock right; absent where nobody does", f"{_SLICES[0]}/{{chronyd,…}}.service"),
        "gpu_services": Fact("vendors' services that run", f"{_SLICES[0]}/nvidia-*.service"),
        "fabricmanager_running": Fact(
            "on a node with NVSwitches, without which CUDA does not start there",
            f"{_SLICES[0]}/nvidia-fabricmanager.service",
        ),
    },
)
