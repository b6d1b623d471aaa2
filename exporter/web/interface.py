"""What the web side may see of a service: Protocols and their values. Knows nothing of HTTP, nor of the services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.node_faults import Fault
from exporter.core.diagnosis.records import location_of
from exporter.core.model import Moment
from exporter.metrics.exposition import MetricsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """One source on the landing page. `down_reason` says what to do when it is not up."""

    name: str
    up: bool
    down_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentIncident:
    """One incident on the landing page. `job` and `gpu` are empty where none is known, `log` is where its line is."""

    time: float
    signature: str
    root_cause: str
    verdict: str
    remediation: str
    job: str
    gpu: str
    log: str

    @classmethod
    def of(cls, diagnosis: Diagnosis, record: Mapping[str, Any]) -> Self:
        """Of a diagnosis and what was written into the journal of it."""
        return cls(
            time=diagnosis.incident.first.happened,
            signature=diagnosis.incident.signature,
            root_cause=diagnosis.root_cause,
            verdict=record["verdict"],
            remediation=record["remediation"],
            job=record["job"]["id"] if record["job"] else "",
            gpu=record["gpu"] or "",
            log=location_of(record),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the landing page shows; `incidents` are the last few, newest first."""

    version: str
    node: str
    sources: tuple[SourceState, ...]
    incidents: tuple[RecentIncident, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """The faults that an operator has to fix; `blind` is the reason why some may be unknown, or empty."""

    node: str
    now: Moment
    faults: tuple[Fault, ...]
    blind: tuple[str, ...]


class ServiceView(Protocol):
    """What a service lets be seen. Called from the web thread: all but `reload` must answer at once."""

    def snapshot(self) -> MetricsSnapshot:
        """The metrics as last committed."""

    def not_ready(self) -> list[str]:
        """Why the service is not doing all of its work yet, a sentence each; empty when it is."""

    def impaired(self) -> list[str]:
        """What a ready service leaves out at the moment, a sentence each."""

    def healthy(self) -> bool:
        """Whether the main loop is alive."""

    def reload(self) -> list[str]:
        """Have the main loop reload, and wait for it, a bounded time. The problems found; empty when all is well.

        Called from a thread of its own, perhaps from several at once.
        """


class WebView(ServiceView, Protocol):
    """What the node daemon lets be seen."""

    def overview(self) -> Overview:
        """What the landing page shows."""

    def node_faults(self) -> NodeFaults:
        """What `gpufault node-check` asks for."""
