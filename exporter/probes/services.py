"""Services on the node, from systemd's control groups of active units."""

from exporter.core.facts.values import distinct_values
from exporter.probes.base import Fact, Host, Probe, ProbeResult, known_facts
from exporter.probes.nvidia import CONTAINER_DRIVER

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


def _collect(host: Host) -> ProbeResult:
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
    return ProbeResult(facts=known_facts(**facts))


SERVICES = Probe(
    collect=_collect,
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
