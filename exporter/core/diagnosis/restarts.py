"""Whether a job that crashed is worth a restart, and on which nodes: from the domain and the cause of its incidents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import RootCause, Signature
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.model import OPERATOR_ACTIONS, PEER_FAILURE, RESTART_WORDS, Action, Domain, Restart, Verdict
from exporter.core.text.phrases import listed

if TYPE_CHECKING:
    from exporter.core.diagnosis.record_schema import IncidentRecord  # which loads pydantic

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
    """What one incident says."""
    by = catalogue.root_causes.get(diagnosis.root_cause) or catalogue.signatures[diagnosis.incident.signature]
    return restart_by(by, diagnosis.domain, diagnosis.verdict, diagnosis.action)


def restart_by(by: RootCause | Signature, domain: Domain, verdict: Verdict, action: Action | None = None) -> Restart:
    """What a cause, or a line without one, says. A pack says it itself where the domain would say something else."""
    if by.restart:
        return by.restart
    if by.id == PEER_FAILURE:
        return "unknown"  # the peer's own incident says it
    if action in OPERATOR_ACTIONS:
        return "elsewhere"
    if domain in _PASSES or (action == "restart_job" and domain in _OF_NODE):
        return "as_is"  # by its vendor's table the card goes on
    if domain == "library":
        return "after_change"  # a node's libraries are mostly those of its neighbours
    if domain in _OF_NODE or verdict == "infrastructure":
        return "elsewhere"
    return "unknown" if (domain, verdict) == ("unknown", "unclear") else "after_change"


def restart_advice(incidents: Iterable[IncidentRecord]) -> RestartAdvice:
    """What the root incidents of one job say together. A record from before this version says "unknown"."""
    roots = [incident for incident in incidents if incident.role in (None, "root")]
    of_each = [RestartAdvice(_restart(incident), incident=incident) for incident in roots]
    decides = min(of_each, key=lambda advice: _ORDER.index(advice.restart), default=RestartAdvice("unknown"))
    avoid = {incident.node for incident in roots if _restart(incident) == "elsewhere"}
    return decides._replace(avoid=tuple(sorted(avoid)))


def _restart(incident: IncidentRecord) -> Restart:
    return next((word for word in RESTART_WORDS if word == incident.restart), "unknown")
