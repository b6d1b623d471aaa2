"""Heartbeats: how long this node was watched and its GPUs were busy. The correlator measures exposure by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exporter.core.diagnosis import records
from exporter.core.facts.gpus import Gpu
from exporter.node.gpu_busy import GpuBusy
from exporter.node.gpu_processes import GpuProcesses

if TYPE_CHECKING:
    from exporter.config.node import FactsConfig

LONGEST = 2  # intervals: what is longer was no watching, but a clock that was set, or a daemon that was frozen


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
        """The heartbeat that is due now."""
        seconds, self._last = min(max(0.0, now - self._last), LONGEST * self._interval), now
        return records.heartbeat_record(node, now, seconds, self._busy.hours(gpus, seconds))
