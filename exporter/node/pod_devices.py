"""The GPUs that the kubelet has assigned to pods, read periodically from its PodResources socket. Opt-in.

Answers are kept for a while: a driver may report the fault of a deleted pod.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exporter.core.decoding.pod_resources import PodDevice, devices_of
from exporter.core.facts import cards
from exporter.core.facts.gpus import Gpu
from exporter.net.grpc_unary import CallFailed, call

EVERY_SECONDS = 10.0
SLACK_SECONDS = 15.0  # an assignment holds so much longer and earlier than it was seen
KEPT_SECONDS = 600.0
TIMEOUT_SECONDS = 5.0
METHOD = "/v1.PodResourcesLister/List"


class PodDevices:
    """Assignments of devices to pods, with the first and the last time at which each was seen."""

    def __init__(self, socket: Path | None, list_pods: Callable[[Path], bytes] | None = None) -> None:
        """list_pods: gives the kubelet's answer; None: over the socket. Raises OSError and CallFailed."""
        self._socket = socket
        self._list_pods = list_pods or (lambda path: call(path, METHOD, timeout=TIMEOUT_SECONDS))
        self._read_at: float | None = None
        self._worker: threading.Thread | None = None
        self._seen: Mapping[PodDevice, tuple[float, float]] = {}
        self.up: bool | None = None  # None: not configured, or not read yet
        self.failed = ""

    def refresh(self, now: float, *, wait: bool = False) -> None:
        """Ask the kubelet if it is due, in a separate thread."""
        if self._socket is None or (self._read_at is not None and 0 <= now - self._read_at < EVERY_SECONDS):
            return
        if self._worker is not None and self._worker.is_alive():
            return
        self._read_at = now
        self._worker = threading.Thread(target=self._read, args=(self._socket, now), name="pod devices", daemon=True)
        self._worker.start()
        if wait:
            self._worker.join()

    def pods_with(self, card: str, gpus: Sequence[Gpu], at: float) -> tuple[str, ...]:
        """The pods (namespace/name) that had a card at a time."""
        pods = {
            f"{device.namespace}/{device.pod}"
            for device, (first, last) in self._seen.items()
            if first - SLACK_SECONDS <= at <= last + SLACK_SECONDS and cards.card_of(device.id, gpus) == card
        }
        return tuple(sorted(pods))

    def _read(self, socket: Path, now: float) -> None:
        try:
            devices = devices_of(self._list_pods(socket))
        except (OSError, CallFailed, ValueError) as error:
            self.up, self.failed = False, f"kubelet: {error}"
            return
        seen = {device: times for device, times in self._seen.items() if now - times[1] <= KEPT_SECONDS}
        for device in devices:
            seen[device] = (seen[device][0] if device in seen else now, now)
        self._seen, self.up, self.failed = seen, True, ""
