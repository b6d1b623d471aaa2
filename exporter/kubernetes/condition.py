"""The condition `GPUFaultDetected` of a Kubernetes node, from the faults of the node. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from exporter.core.model import ACTIONS
from exporter.kubernetes.node_report import NodeReport, ReportedFault

TYPE = "GPUFaultDetected"
MAX_MESSAGE = 1000  # characters; of an event's the API server refuses more than 1,024
Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """A state of the condition. `reason` is one word, such as GpuFellOffBus; `message` is for people."""

    status: Status
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCondition:
    """The condition as the API server has it: since when the status holds, and when it was last written."""

    condition: NodeCondition
    transition: float
    heartbeat: float


def condition_of(report: NodeReport) -> NodeCondition:
    """True while a fault is open; Unknown if no fault is open, but the daemon cannot see all of them."""
    faults = sorted(report.open, key=lambda fault: (-_urgency(fault.action), fault.opened, fault.key))
    if faults:
        more = f"; {len(faults) - 1} more" if faults[1:] else ""
        text = describe(faults[0])[: MAX_MESSAGE - len(more)]
        return NodeCondition(status="True", reason=camel_case(faults[0].cause), message=text + more)
    if report.blind:
        message = f"faults may be missing: {'; '.join(report.blind)}"[:MAX_MESSAGE]
        return NodeCondition(status="Unknown", reason="GPUFaultSourceUnreadable", message=message)
    return NodeCondition(status="False", reason="NoGPUFault", message="no open GPU fault")


def unreachable(last: NodeCondition, why: str) -> NodeCondition:
    """The condition of a node whose daemon has not answered for long. An open fault stays open: only evidence clears it."""
    if last.status == "True":
        return last
    return NodeCondition(
        status="Unknown", reason="GPUFaultDaemonUnreachable", message=f"gpufault does not answer: {why}"
    )


def describe(fault: ReportedFault) -> str:
    often = f" ({fault.times} times in 14 days)" if fault.times > 1 else ""
    return f"{fault.gpu or 'node'}: {fault.title}{often}; action {fault.action}. {fault.remedy}"[:MAX_MESSAGE]


def camel_case(name: str) -> str:
    """GpuFellOffBus of gpu_fell_off_bus, as Kubernetes writes reasons."""
    words = "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name))[:128]
    return words if words[:1].isalpha() else f"Fault{words}"


def patch_of(condition: NodeCondition, *, transition: float, now: float) -> dict[str, Any]:
    """The strategic merge patch of `nodes/NAME/status` that sets the condition and leaves all others as they are."""
    return {
        "status": {
            "conditions": [
                {
                    "type": TYPE,
                    "status": condition.status,
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastHeartbeatTime": kubernetes_time(now),
                    "lastTransitionTime": kubernetes_time(transition),
                }
            ]
        }
    }


def stored_condition(node: Mapping[str, Any]) -> StoredCondition | None:
    """The condition in a node object; None if it has none. Raises ValueError."""
    for stored in (node.get("status") or {}).get("conditions") or ():
        if stored.get("type") == TYPE:
            status = stored.get("status")
            condition = NodeCondition(
                status=status if status in ("True", "False") else "Unknown",
                reason=str(stored.get("reason") or ""),
                message=str(stored.get("message") or ""),
            )
            return StoredCondition(
                condition=condition,
                transition=_seconds(stored.get("lastTransitionTime")),
                heartbeat=_seconds(stored.get("lastHeartbeatTime")),
            )
    return None


def kubernetes_time(seconds: float) -> str:
    """A time as the API server writes it: without fractions."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _urgency(action: str) -> int:
    """The rank of an action, the mildest first; one of a later version counts as the mildest."""
    return ACTIONS.index(action) if action in ACTIONS else 0


def _seconds(text: object) -> float:
    """Unix seconds of a time; 0 if it is missing."""
    return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
