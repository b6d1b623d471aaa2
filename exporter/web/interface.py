"""The interface between the web server and the services that it serves: Protocols and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from exporter.core.collectives import collective_texts
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.clear_request import ClearRequest
from exporter.core.diagnosis.node_faults import Fault
from exporter.core.diagnosis.records import location_of
from exporter.core.model import Moment
from exporter.core.text.phrases import evidence_text
from exporter.metrics.exposition import MetricsSnapshot

if TYPE_CHECKING:
    from exporter.core.authoring.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """One source on the landing page. `down_reason` says why it is down and what to do; `lag` is in seconds."""

    name: str
    up: bool
    down_reason: str = ""
    files: int = 0
    lag: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentIncident:
    """One incident on the landing page. `job` and `gpu` are empty if unknown; `log` is the location of `line`, its text."""

    time: float
    signature: str
    root_cause: str
    verdict: str
    remediation: str
    job: str
    gpu: str
    log: str
    line: str = ""
    because: tuple[str, ...] = ()  # each piece of evidence in words
    late: bool = False  # it happened long before it was read, so it is not among the counted ones

    @classmethod
    def of(cls, diagnosis: Diagnosis, record: Mapping[str, Any]) -> Self:
        return cls(
            time=diagnosis.incident.first.happened,
            signature=diagnosis.incident.signature,
            root_cause=diagnosis.root_cause,
            verdict=record["verdict"],
            remediation=record["remediation"],
            job=record["job"]["id"] if record["job"] else "",
            gpu=record["gpu"] or "",
            log=location_of(record),
            line=record["text"],
            because=(
                *(
                    evidence_text(evidence["what"], evidence["value"], evidence["why"])
                    for evidence in record["evidence"]
                ),
                *collective_texts(record.get("collectives", ())),
            ),
            late=record["late"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The contents of the landing page.

    `incidents` are those recorded last; a line that was read late makes an old one of them. `causes` are the root incidents
    so far by root cause, the most frequent first. `at_risk` are the root causes whose conditions the facts meet, crash or
    not. `hints` are what may be worth a look, and neither a fault nor evidence of one.
    """

    version: str
    node: str
    sources: tuple[SourceState, ...]
    incidents: tuple[RecentIncident, ...]
    faults: tuple[Fault, ...] = ()
    causes: tuple[tuple[str, int], ...] = ()
    at_risk: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """The open faults, which an operator has to fix, and the cleared ones; `blind`: why some open ones may be missing."""

    node: str
    now: Moment
    faults: tuple[Fault, ...]
    cleared: tuple[Fault, ...]
    blind: tuple[str, ...]


class ServiceView(Protocol):
    """What the web server may ask a service. Called from the web thread: only `reload` and `clear_faults` may block."""

    def snapshot(self) -> MetricsSnapshot:
        """The metrics as last committed."""

    def not_ready(self) -> list[str]:
        """Reasons why the service is not ready; empty if it is."""

    def impaired(self) -> list[str]:
        """What a ready service skips at the moment, such as signatures that are off."""

    def healthy(self) -> bool:
        """Whether the main loop is alive."""

    def reload(self) -> list[str]:
        """Reload the configuration and wait for the result. Returns the problems; empty on success.

        Called from several threads, perhaps at the same time.
        """


class NodeView(ServiceView, Protocol):
    """What the web server may ask the node daemon."""

    def overview(self) -> Overview:
        """The contents of the landing page."""

    @property
    def journal_folder(self) -> Path:
        """Where the journal's segments are."""

    def title(self, name: str) -> str:
        """The title of a signature or root cause; the id itself if the catalogue lacks it."""

    def explanation(self, name: str) -> Explanation | None:
        """What the catalogue says of a signature or root cause; None of another id."""

    def node_faults(self) -> NodeFaults:
        """The faults of the node."""

    def clear_faults(self, request: ClearRequest) -> list[dict[str, Any]]:
        """Clear open faults; blocks. Returns the cleared ones as JSON data. Raises InvalidRequest, TimeoutError."""
