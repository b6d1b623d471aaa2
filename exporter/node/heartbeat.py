"""Heartbeats: how long this node was watched and its GPUs were busy. The correlator measures exposure by them.

A GPU that cannot be sampled makes the node's busy hours unknown, not 0.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.core.diagnosis import records
from exporter.core.facts.gpus import Gpu
from exporter.core.facts.pci import normalise_pci
from exporter.node.gpu_processes import GpuProcesses
from exporter.probes.probe import Host

if TYPE_CHECKING:
    from exporter.config.node import FactsConfig

LONGEST = 2  # intervals: a longer time was not watched: the clock was set, or the daemon was frozen
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_GPUS = "/proc/driver/nvidia/gpus"
_DRM = "/sys/class/drm"


class GpuBusy:
    """The samples since the previous call of `hours`.

    A GPU is busy while a process other than a monitor has it open, even if its job waits. If the driver reports how busy a
    card is (amdgpu), that counts instead: a ROCm process opens every card of its node.
    """

    def __init__(self, rootfs: Path) -> None:
        self._rootfs = rootfs
        self._sampled_at: float | None = None
        self._worker: threading.Thread | None = None
        self._samples: dict[str, list[bool]] = {}
        self._lock = threading.Lock()

    def sample(
        self, now: float, every: float, gpus: Iterable[Gpu], held: Collection[str] | None, *, wait: bool = False
    ) -> None:
        """Take a sample if it is due. held: device files that processes have open, None if unknown.

        A hung card may block the sample; no sample is taken until it answers.
        """
        if self._sampled_at is not None and 0 <= now - self._sampled_at < every:
            return
        if self._worker is not None and self._worker.is_alive():
            return
        self._sampled_at = now
        self._worker = threading.Thread(target=self._sample, args=(tuple(gpus), held), name="gpu busy", daemon=True)
        self._worker.start()
        if wait:
            self._worker.join()

    def hours(self, gpus: Iterable[Gpu], seconds: float) -> float | None:
        """GPU-busy hours, summed over all GPUs, in the `seconds` since the previous call; None without GPUs, or if one of
        them was not sampled.
        """
        with self._lock:
            samples, self._samples = self._samples, {}
        shares = [sum(samples[gpu.pci]) / len(samples[gpu.pci]) if gpu.pci in samples else None for gpu in gpus]
        if not shares or None in shares:
            return None
        return sum(share for share in shares if share is not None) * seconds / 3600

    def _sample(self, gpus: tuple[Gpu, ...], held: Collection[str] | None) -> None:
        host = Host(self._rootfs)
        taken = None if held is None else cards_of(host, held)
        for gpu in gpus:
            busy = self._busy(host, gpu, taken)
            if busy is not None:
                with self._lock:
                    self._samples.setdefault(gpu.pci, []).append(busy)

    def _busy(self, host: Host, gpu: Gpu, taken: Collection[str] | None) -> bool | None:
        if gpu.vendor == "amd":
            percent = host.value(f"/sys/bus/pci/devices/{gpu.pci}/gpu_busy_percent")
            if percent is not None and percent.isdecimal():
                return int(percent) > 0
        return None if taken is None else gpu.pci in taken


def cards_of(host: Host, devices: Iterable[str]) -> frozenset[str]:
    """The PCI addresses of the cards that device files belong to (/dev/dri/renderD128, /dev/nvidia0)."""
    minors = _nvidia_minors(host)
    addresses = set()
    for device in devices:
        name = device.rpartition("/")[2]
        if name.startswith("renderD"):
            addresses.add(normalise_pci(host.link(f"{_DRM}/{name}/device") or ""))
        else:
            addresses.add(minors.get(name.removeprefix("nvidia")))
    return frozenset(pci for pci in addresses if pci is not None)


def _nvidia_minors(host: Host) -> Mapping[str, str]:
    """PCI addresses by the N of /dev/nvidiaN."""
    minor_of = {pci: _MINOR.search(host.read(f"{_GPUS}/{pci}/information") or "") for pci in host.addresses(_GPUS)}
    return {minor[1]: pci for pci, minor in minor_of.items() if minor}


class Heartbeat:
    """The time since the last heartbeat."""

    def __init__(self, settings: FactsConfig, now: float) -> None:
        self._busy = GpuBusy(settings.rootfs)
        self._last = now
        self._interval = settings.interval

    def sample(self, now: float, settings: FactsConfig, gpus: Sequence[Gpu], processes: GpuProcesses) -> bool:
        """Sample the GPUs if it is due. True if a heartbeat is due."""
        self._interval = settings.interval
        if gpus:
            self._busy.sample(now, settings.processes or settings.interval, gpus, processes.held)
        return now - self._last >= settings.interval or now < self._last

    def record(self, node: str, now: float, gpus: Sequence[Gpu]) -> dict[str, Any]:
        seconds, self._last = min(max(0.0, now - self._last), LONGEST * self._interval), now
        return records.heartbeat_record(node, now, seconds, self._busy.hours(gpus, seconds))
