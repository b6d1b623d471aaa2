"""Whether a job that crashed is worth a restart, and on which nodes: from the domain and the cause of its incidents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.record_schema import IncidentRecord
from exporter.core.model import OPERATOR_ACTIONS, PEER_FAILURE, RESTART_WORDS, Domain, Restart
from exporter.core.text.phrases import listed

# What an incident says decides for its job in this order: first what would crash again anywhere, then on some nodes.
_ORDER: tuple[Restart, ...] = ("never", "after_change", "elsewhere", "unknown", "as_is")
_OF_NODE: frozenset[Domain] = frozenset({"hardware", "driver", "network"})
_PASSES: frozenset[Domain] = frozenset({"storage", "scheduler"})  # over by itself, or repaired for all nodes alike
NAMED_NODES = 8  # in a sentence


class RestartAdvice(NamedTuple):
    """How to restart a job. `avoid`: nodes that would crash it again; `incident`: the one that decides."""

    restart: Restart
    avoid: tuple[str, ...] = ()
    incident: IncidentRecord | None = None

    def __str__(self) -> str:
        more = [f"{len(self.avoid) - NAMED_NODES} more"] if len(self.avoid) > NAMED_NODES else []
        avoid = f"; avoid {listed([*self.avoid[:NAMED_NODES], *more])}" if self.avoid else ""
        return f"restart {RESTART_WORDS[self.restart]}{avoid}"


def restart_of(diagnosis: Diagnosis, catalogue: Catalogue) -> Restart:
    """What one incident says. A pack says it itself where the domain would say something else."""
    cause = catalogue.root_causes.get(diagnosis.root_cause)
    if stated := (cause or catalogue.signatures[diagnosis.incident.signature]).restart:
        return stated
    if diagnosis.root_cause == PEER_FAILURE:
        return "unknown"  # the peer's own incident says it
    if diagnosis.action in OPERATOR_ACTIONS:
        return "elsewhere"
    if diagnosis.domain in _PASSES or (diagnosis.action == "restart_job" and diagnosis.domain in _OF_NODE):
        return "as_is"  # by its vendor's table the card goes on
    if diagnosis.domain == "library":
        return "after_change"  # a node's libraries are mostly those of its neighbours
    if diagnosis.domain in _OF_NODE or diagnosis.verdict == "infrastructure":
        return "elsewhere"
    return "unknown" if (diagnosis.domain, diagnosis.verdict) == ("unknown", "unclear") else "after_change"


def restart_advice(incidents: Iterable[IncidentRecord]) -> RestartAdvice:
    """What the root incidents of one job say together. A record from before this version says "unknown"."""
    roots = [incident for incident in incidents if incident.role in (None, "root")]
    of_each = [RestartAdvice(_restart(incident), incident=incident) for incident in roots]
    decides = min(of_each, key=lambda advice: _ORDER.index(advice.restart), default=RestartAdvice("unknown"))
    avoid = {incident.node for incident in roots if _restart(incident) == "elsewhere"}
    return decides._replace(avoid=tuple(sorted(avoid)))


def _restart(incident: IncidentRecord) -> Restart:
    return next((word for word in RESTART_WORDS if word == incident.restart), "unknown")
