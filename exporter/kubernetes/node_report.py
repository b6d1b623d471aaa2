"""What a node daemon reports about its node's faults: the answer of `/api/v1/faults`, checked. Pure.

A daemon may be broken, or lie: each text is short and printable, and a fault without its fields is an error.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from exporter.core.diagnosis.record_schema import Time
from exporter.core.text.phrases import printable

MAX_FAULTS = 128  # a daemon keeps 64 open and cleared ones
MAX_TEXT = 400  # characters; remedies have up to 350
MAX_COUNT = (1 << 31) - 1  # of an event, which the API server keeps in 32 bits
_TIME: TypeAdapter[float] = TypeAdapter(Time)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")  # RFC 1123, as Kubernetes asks of names


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that a fault concerns."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFault:
    """One fault of a node. `opened` and `last` are Unix seconds; `cleared` is when it ended, None while it is open.

    `key` names this opening of the fault: it differs when the fault comes back after it was cleared.
    """

    key: str
    gpu: str
    cause: str
    title: str
    action: str
    remedy: str
    incident: str
    pod: Pod | None
    opened: float
    last: float
    count: int
    times: int
    cleared: float | None
    cleared_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The faults of a node, the most recent first. `blind`: why open ones may be missing."""

    node: str
    faults: tuple[ReportedFault, ...]
    blind: tuple[str, ...]

    @property
    def open(self) -> tuple[ReportedFault, ...]:
        return tuple(fault for fault in self.faults if fault.cleared is None)


def parse_report(body: bytes) -> NodeReport:
    """The report in a daemon's answer. Raises ValueError, for people."""
    try:
        answer = json.loads(body)
        node, faults, blind = answer["node"], answer["faults"], answer.get("blind") or []
        if not is_name(node):
            raise ValueError(f"{printable(str(node))[:80]!r} is not the name of a Kubernetes node")
        # What has not settled may still turn out to be another fault: 15 s later it is known.
        settled = tuple(_fault(fault) for fault in faults[:MAX_FAULTS] if fault.get("settled", True))
        return NodeReport(node=node, faults=settled, blind=tuple(_text(reason) for reason in blind[:MAX_FAULTS]))
    except (LookupError, TypeError, AttributeError, RecursionError, json.JSONDecodeError):
        raise ValueError("the list of faults is not readable") from None


def is_name(text: object) -> bool:
    """Whether a text may be the name of a node or pod."""
    return isinstance(text, str) and _NAME.match(text) is not None


def pods_of(body: bytes, incidents: frozenset[str]) -> dict[str, list[Pod]]:
    """The pods whose crashes are consequences of some incidents, by incident, from the answer of `/api/v1/incidents`."""
    pods: dict[str, list[Pod]] = {}
    try:
        for incident in json.loads(body)["incidents"]:
            caused_by, job = incident.get("caused_by"), incident.get("job") or {}
            pod = _pod(job.get("id")) if job.get("kind") == "kubernetes" else None
            if caused_by in incidents and pod and pod not in pods.setdefault(caused_by, []):
                pods[caused_by].append(pod)
    except (LookupError, TypeError, AttributeError, RecursionError, ValueError):
        return {}
    return pods


def _fault(fault: Mapping[str, Any]) -> ReportedFault:
    cause = fault["root_cause"]
    openings = fault.get("openings") or [fault["time"]]
    cleared = fault.get("cleared")
    identity = [fault["root_cause"], fault["signature"], fault["gpu"], fault["job"], fault.get("card"), openings[-1]]
    return ReportedFault(
        key=hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).hexdigest(),
        gpu=_text(fault["gpu"]),
        cause=_text(fault["signature"] if cause in (None, "", "unknown") else cause),
        title=_text(fault["title"]),
        action=_text(fault["action"]),
        remedy=_text(fault["remediation"]),
        incident=_text(fault["incident"]),
        pod=_pod(fault["job"]),
        opened=_seconds(openings[-1]),
        last=_seconds(fault["last_time"]),
        count=_count(fault["count"]),
        times=_count(fault.get("times", 1)),
        cleared=None if cleared is None else _seconds(cleared["time"]),
        cleared_by="" if cleared is None else _text(f"{cleared['kind']}: {cleared['reason']}".removesuffix(": ")),
    )


def _pod(job: object) -> Pod | None:
    """The pod that is a job: its id is NAMESPACE/NAME."""
    namespace, slash, name = job.partition("/") if isinstance(job, str) else ("", "", "")
    return Pod(namespace=namespace, name=name) if slash and is_name(namespace) and is_name(name) else None


def _text(value: object) -> str:
    return "" if value is None else printable(str(value))[:MAX_TEXT]


def _seconds(value: object) -> float:
    try:
        return _TIME.validate_python(value)
    except ValidationError:
        raise TypeError("not a time") from None


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 < value <= MAX_COUNT:
        raise TypeError("not a count")
    return value
