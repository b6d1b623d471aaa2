"""Measures GPU-busy hours by periodic samples, in its own thread.

A GPU is busy while a process other than a monitor has it open, even if its job waits. If the driver reports how busy a
card is (amdgpu), that counts instead: a ROCm process opens every card of its node. What cannot be seen is unknown, not idle.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from exporter.core.facts.gpus import Gpu
from exporter.core.facts.pci import normalise_pci
from exporter.probes.probe import Host

_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_GPUS = "/proc/driver/nvidia/gpus"
_DRM = "/sys/class/drm"


class GpuBusy:
    """The samples since the previous call of `hours`."""

    def __init__(self, rootfs: Path) -> None:
        self._rootfs = rootfs
        self._asked: float | None = None
        self._worker: threading.Thread | None = None
        self._looks: dict[str, list[bool]] = {}
        self._lock = threading.Lock()

    def sample(
        self, now: float, every: float, gpus: Iterable[Gpu], held: Collection[str] | None, *, wait: bool = False
    ) -> None:
        """Take a sample if it is due. held: device files that processes have open, None if unknown.

        A hung card may block the sample; then nothing is known until it answers.
        """
        if self._asked is not None and 0 <= now - self._asked < every:
            return
        if self._worker is not None and self._worker.is_alive():
            return
        self._asked = now
        self._worker = threading.Thread(target=self._look, args=(tuple(gpus), held), name="gpu busy", daemon=True)
        self._worker.start()
        if wait:
            self._worker.join()

    def hours(self, gpus: Iterable[Gpu], seconds: float) -> float | None:
        """GPU-busy hours, summed over all GPUs, in the `seconds` since the previous call; None without GPUs, or if one of
        them was not sampled.
        """
        with self._lock:
            looks, self._looks = self._looks, {}
        shares = [sum(looks[gpu.pci]) / len(looks[gpu.pci]) if gpu.pci in looks else None for gpu in gpus]
        known = [share for share in shares if share is not None]
        return sum(known) * seconds / 3600 if shares and len(known) == len(shares) else None

    def _look(self, gpus: tuple[Gpu, ...], held: Collection[str] | None) -> None:
        host = Host(self._rootfs)
        taken = None if held is None else cards_of(host, held)
        for gpu in gpus:
            busy = self._busy(host, gpu, taken)
            if busy is not None:
                with self._lock:
                    self._looks.setdefault(gpu.pci, []).append(busy)

    def _busy(self, host: Host, gpu: Gpu, taken: Collection[str] | None) -> bool | None:
        if gpu.vendor == "amd":
            percent = host.value(f"/sys/bus/pci/devices/{gpu.pci}/gpu_busy_percent")
            if percent is not None and percent.isdecimal():
                return int(percent) > 0
        return None if taken is None else gpu.pci in taken


def cards_of(host: Host, devices: Iterable[str]) -> frozenset[str]:
    """The PCI addresses of the cards that device files belong to (/dev/dri/renderD128, /dev/nvidia0)."""
    minors = _nvidia_minors(host)
    found = set()
    for device in devices:
        name = device.rpartition("/")[2]
        if name.startswith("renderD"):
            found.add(normalise_pci(host.link(f"{_DRM}/{name}/device") or ""))
        else:
            found.add(minors.get(name.removeprefix("nvidia")))
    return frozenset(pci for pci in found if pci is not None)


def _nvidia_minors(host: Host) -> Mapping[str, str]:
    """PCI addresses by the N of /dev/nvidiaN."""
    minor_of = {pci: _MINOR.search(host.read(f"{_GPUS}/{pci}/information") or "") for pci in host.addresses(_GPUS)}
    return {minor[1]: pci for pci, minor in minor_of.items() if minor}
