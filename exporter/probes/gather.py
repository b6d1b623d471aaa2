"""All probes and facts of a node. Runs the probes at once with a timeout: no dead mount or hung driver can block it."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.facts.conclude import DERIVED, with_derived_facts
from exporter.core.facts.driver_answer import DRIVER_FACTS
from exporter.core.facts.gpus import Gpu, merge_gpus
from exporter.core.facts.mounts import is_service_home
from exporter.probes import devices, drivers, gpu_vendors, installed_software, storage, system
from exporter.probes.probe import Fact, Host, Probe, ProbeResult

# If two probes report one fact, the earlier row counts: product_name before the table of PCI ids.
PROBES: Mapping[str, Probe] = {
    "kernel": system.KERNEL,
    "board": system.BOARD,
    "amdgpu": gpu_vendors.AMDGPU,
    "intel": gpu_vendors.INTEL,
    "nvidia": gpu_vendors.NVIDIA,
    "kfd": gpu_vendors.KFD,
    "pci": devices.PCI,
    "drivers": drivers.DRIVERS,
    "parameters": drivers.PARAMETERS,
    "packages": installed_software.PACKAGES,
    "rocm": installed_software.ROCM,
    "cuda": installed_software.CUDA,
    "oneapi": installed_software.ONEAPI,
    "services": system.SERVICES,
    "fabric": devices.FABRIC,
    "storage": storage.STORAGE,
    "home": storage.HOME,
    "home_cache": storage.HOME_CACHE,
}

FACTS: Mapping[str, Fact] = {
    **{name: fact for probe in PROBES.values() for name, fact in probe.facts.items()},
    **{name: Fact(meaning, "the driver's library") for name, meaning in DRIVER_FACTS.items() if name != "gpu_ecc"},
    **{name: Fact(meaning, "other facts") for name, meaning in DERIVED.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts of a machine. `failed`: probe → why its facts are missing or incomplete."""

    facts: Mapping[str, str]
    failed: Mapping[str, str]
    gpus: tuple[Gpu, ...]


def gather(
    rootfs: Path = Path("/"),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] = {},
    timeout_seconds: float = 0.2,
    probes: Mapping[str, Probe] = PROBES,
) -> Gathered:
    """The facts of the machine below `rootfs`, in at most `timeout_seconds`.

    `home` is a home folder of jobs on the machine. Default: $HOME of `environ` unless it is a service's, else the first
    mount at or below /home. Fleets with other homes (/users, /g/g0) must configure it.
    """
    at_home = str(home) if home else environ.get("HOME", "")
    home_of_jobs = at_home if home or not is_service_home(at_home) else None
    # A probe that hangs since an earlier call is not started again: at most one thread of each is lost.
    hanging = {thread.name for thread in threading.enumerate()}
    runs = {name: _Run(name, probe, Host(rootfs, home_of_jobs)) for name, probe in probes.items()}
    deadline = time.monotonic() + timeout_seconds
    for run in runs.values():
        if run.name not in hanging:
            run.start()

    results: list[ProbeResult] = []
    failed: dict[str, str] = {}
    for name, run in runs.items():
        if run.name in hanging:
            failed[name] = "still hangs since an earlier call"
            continue
        run.join(max(0.0, deadline - time.monotonic()))
        if run.is_alive():
            failed[name] = f"no answer within {timeout_seconds:g} s"
            continue
        results.append(run.result)
        if run.problems:
            failed[name] = _one_line(run.problems)

    facts = {fact: value for result in reversed(results) for fact, value in result.facts.items()}
    gpus = merge_gpus(gpu for result in results for gpu in result.gpus)
    return Gathered(facts=with_derived_facts(facts, gpus), failed=failed, gpus=gpus)


class _Run(threading.Thread):
    """One running probe, in a daemon thread, which ends with the process even while it hangs.

    Waiting for a dead NFS server is killable (TASK_KILLABLE, Linux 2.6.25). A helper process would hang as long, start in
    50 ms instead of 0.1, and a daemon with threads must not fork without exec.
    """

    def __init__(self, name: str, probe: Probe, host: Host) -> None:
        super().__init__(name=f"probe {name} of {host.root}", daemon=True)
        self._probe = probe
        self._host = host
        self.result = ProbeResult()
        self.problems = host.problems

    def run(self) -> None:
        try:
            self.result = self._probe.run(self._host)
        except Exception as error:  # one probe must not hide the others; reported in Gathered.failed
            self.problems.append(f"{type(error).__name__}: {error}")


def _one_line(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return " ".join(problems[0].split()) + more
