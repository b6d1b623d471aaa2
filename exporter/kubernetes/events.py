"""Kubernetes events of node faults: one for each opening of a fault, one for its end. Pure.

An event's name follows from what it reports. So the API server itself refuses a second one, also after a restart of the
reporter, and one that is seen again is counted in the first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.kubernetes.condition import MAX_MESSAGE, camel_case, describe, kubernetes_time
from exporter.kubernetes.node_report import NodeReport, Pod, ReportedFault

RECENT_SECONDS = 3600.0  # how long an API server keeps events by default; older faults are in the condition
COMPONENT = "gpufault"
NODE_NAMESPACE = "default"  # of events about objects without a namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `pod` is None for one about the node. `count` and `last` grow while the fault is seen again."""

    name: str
    node: str
    pod: Pod | None
    reason: str
    message: str
    is_warning: bool
    first: float
    last: float
    count: int

    @property
    def namespace(self) -> str:
        return self.pod.namespace if self.pod else NODE_NAMESPACE


def events_of(report: NodeReport, pods: Mapping[str, list[Pod]], now: float) -> Iterator[Event]:
    """The events of the last hour. `pods`: whose crashes an incident has caused, by its id."""
    for fault in report.faults:
        if now - fault.last < RECENT_SECONDS:
            own = [fault.pod] if fault.pod else []
            for pod in (None, *dict.fromkeys([*own, *pods.get(fault.incident, ())])):
                yield _opened(report.node, fault, pod)
        if fault.cleared is not None and now - fault.cleared < RECENT_SECONDS:
            yield Event(
                name=_name(report.node, f"{fault.key}c"),
                node=report.node,
                pod=None,
                reason="GPUFaultCleared",
                message=f"{fault.gpu or 'node'}: {fault.title}; cleared by {fault.cleared_by}"[:MAX_MESSAGE],
                is_warning=False,
                first=fault.cleared,
                last=fault.cleared,
                count=1,
            )


def to_create(event: Event, uid: str) -> dict[str, Any]:
    """The body that creates an event. `uid`: of the node."""
    if event.pod is None:
        about = {"apiVersion": "v1", "kind": "Node", "name": event.node, "uid": uid}
    else:
        about = {"apiVersion": "v1", "kind": "Pod", "name": event.pod.name, "namespace": event.pod.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "involvedObject": about,
        "reason": event.reason,
        "message": event.message,
        "type": "Warning" if event.is_warning else "Normal",
        "source": {"component": COMPONENT, "host": event.node},
        "reportingComponent": COMPONENT,
        "reportingInstance": event.node,
        "firstTimestamp": kubernetes_time(event.first),
        **to_update(event),
    }


def to_update(event: Event) -> dict[str, Any]:
    """The strategic merge patch of an event that was seen again."""
    return {"count": event.count, "lastTimestamp": kubernetes_time(event.last)}


def _opened(node: str, fault: ReportedFault, pod: Pod | None) -> Event:
    whose = f"on node {node}, " if pod else ""
    return Event(
        name=_name(pod.name if pod else node, fault.key),
        node=node,
        pod=pod,
        reason=camel_case(fault.cause),
        message=f"{whose}{describe(fault)}"[:MAX_MESSAGE],
        is_warning=True,
        first=fault.opened,
        last=max(fault.last, fault.opened),
        count=fault.count,
    )


def _name(about: str, key: str) -> str:
    return f"{about[:200].rstrip('.-')}.{key}"  # at most 253 characters
