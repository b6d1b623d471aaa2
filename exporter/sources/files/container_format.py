"""What wraps the lines of a log file: the container runtime's log form, docker's, or nothing. Reads nothing."""

from __future__ import annotations

from exporter.core.decoding.formats import CONTAINER_FORMATS
from exporter.core.decoding.prefixes import Clock
from exporter.core.model import LogFormat

LOOK_AT_LINES = 4  # the runtimes wrap every line from the first on; more would only delay a job of one line
KUBELET_LOGS = "/var/log/pods/"  # the kubelet's own folder (its --root-dir does not move it): CRI, by the interface


def format_of(path: str, lines: bytes) -> LogFormat | None:
    """The format that a log's first complete lines show; None without a complete line."""
    if path.startswith(KUBELET_LOGS):
        return "cri"
    first = [line for line in lines.split(b"\n", LOOK_AT_LINES)[:LOOK_AT_LINES] if line and line + b"\n" in lines]
    if not first:
        return None
    clock = Clock(0.0)
    if all(CONTAINER_FORMATS["cri"](line, clock).stream for line in first):
        return "cri"
    if all(CONTAINER_FORMATS["docker"](line, clock).time is not None for line in first):
        return "docker"
    return "plain"
