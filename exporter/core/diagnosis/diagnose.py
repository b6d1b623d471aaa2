"""Why an incident happened: roles from what is near it, and the cause that `causes` finds best.

Knows no files, no clocks, no metrics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import TableRow
from exporter.core.diagnosis.assessment import Assessment, Diagnosis, Evidence, Leaf
from exporter.core.diagnosis.causes import assess, best_cause, distinct_evidence, known_context
from exporter.core.diagnosis.incidents import Entry
from exporter.core.model import (
    ACTIONS,
    OPERATOR_ACTIONS,
    PEER_FAILURE,
    UNKNOWN,
    Action,
    Incident,
    Severity,
    Truth,
    Verdict,
)


def incident_id(incident: Incident, node: str) -> str:
    """16 hex digits that a replay gives again: of the node and the place and text of the first line."""
    first = incident.first
    # A kernel record has its boot and number; its wall time is an estimate that differs from start to start.
    stamp = f"{first.time:.6f}" if first.time_source == "log" and first.source == "job" else ""
    place = first.offset if first.seq is None else first.seq
    parts = (node, first.origin, str(place), first.signature, stamp, first.text)
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def root_of(entry: Entry, near: Sequence[Entry], catalogue: Catalogue) -> Entry | None:
    """The incident that this one is a consequence of, or None when it is a root. `near` is in canonical order.

    A cascade that finds nothing to follow is a root too: its own root is on a peer (see `diagnose`).
    """
    known = [e for e in near if catalogue.signatures[e.incident.signature].role != "context"]
    for other in known if catalogue.follows_any(entry.incident.signature) else ():
        if _is_consequence(entry, other, catalogue):
            return other
    role = catalogue.signatures[entry.incident.signature].role
    if entry.incident.first.source == "kernel" and role == "root":
        return None  # kernel faults are apart unless their signatures say otherwise
    same = [entry, *(e for e in known if e.incident.scope == entry.incident.scope)]
    for other in sorted(same, key=lambda e: (-_WEIGHTS[catalogue.signatures[e.incident.signature].role], e.order)):
        if other is entry:
            return None
        if not any(_is_consequence(other, third, catalogue) for third in same):
            return other
    return None


_WEIGHTS = {"root": 3, "confirmation": 2, "cascade": 1, "context": 0}


def ultimate_root(entry: Entry, near_of: Callable[[Entry], Sequence[Entry]], catalogue: Catalogue) -> Entry:
    """Follow consequences up to the incident that is none, or that has been told of already.

    Of a circle of consequences the earliest is the root: some one must be, or the fault would never be counted.
    """
    path = [entry]
    while (up := root_of(path[-1], near_of(path[-1]), catalogue)) is not None:
        if up.reported:
            return up
        numbers = [e.number for e in path]
        if up.number in numbers:
            return min(path[numbers.index(up.number) :], key=lambda e: e.order)
        path.append(up)
    return path[-1]


def _is_consequence(entry: Entry, other: Entry, catalogue: Catalogue) -> bool:
    """Whether an incident follows another; of two that follow each other, only the later does."""
    if entry.number == other.number:  # `cuda_*` is what several of these follow
        return False
    a, b = entry.incident.signature, other.incident.signature
    if not catalogue.follows(a, b):
        return False
    both_may_follow = entry.incident.first.source == other.incident.first.source  # the kernel's never follows a job's
    return not (both_may_follow and catalogue.follows(b, a) and entry.order < other.order)


def diagnose(
    entry: Entry,
    near: Sequence[Entry],
    root: Entry,
    node_facts: Mapping[str, str],
    catalogue: Catalogue,
    node: str,
    *,
    same_time: Sequence[Entry] = (),
) -> Diagnosis:
    """The diagnosis of an incident whose root is `root` (itself, if it is one). `near` may explain it, `same_time` may not."""
    incident, told = entry.incident, entry.reported
    signature = catalogue.signatures[incident.signature]
    assessments = assess(incident.signature, known_context(incident, [e.incident for e in near], node_facts), catalogue)
    if told:  # later evidence changes no cause: at most, that of the one told of does not hold any more
        assessments = [a for a in assessments if a.cause.id == told.root_cause]
    best = best_cause(assessments)
    role: Literal["root", "cascade"] = "root" if root.number == entry.number else "cascade"
    row = catalogue.table_row(incident)
    verdict = _verdict(incident, best, row)
    severity = row.severity if row else signature.severity
    caused_by = told.root_id if told and told.role == "cascade" else None
    if role == "cascade":
        caused_by = root.reported.root_id if root.reported else incident_id(root.incident, node)
    cause = best.cause.id if best else PEER_FAILURE if role == "root" and signature.role == "cascade" else UNKNOWN
    return Diagnosis(
        incident=incident,
        id=told.id if told else incident_id(incident, node),
        role=told.role if told else role,
        root_cause=told.root_cause if told else cause,
        caused_by=caused_by,
        verdict=told.verdict if told else verdict,
        evidence=_evidence((*best.held, *best.supports)) if best else (),
        remediation=best.cause.remediation if best else signature.remediation,
        references=tuple(best.cause.references if best else signature.references),
        severity=severity,
        action=told.action if told else _action(incident, assessments, row, severity),
        considered=tuple(assessments),
        same_time=tuple(e.incident for e in same_time if catalogue.signatures[e.incident.signature].role != "context"),
    )


def _action(
    incident: Incident, assessments: Iterable[Assessment], row: TableRow | None, severity: Severity
) -> Action | None:
    """What the vendor's table asks for; else the gravest that a cause asks for, of a critical incident.

    A job's words call no operator.
    """
    if row:
        is_trusted = incident.first.source == "kernel" or row.action not in OPERATOR_ACTIONS
        return row.action if is_trusted else None
    if severity != "critical":
        return None
    holding = [a for a in assessments if a.truth is Truth.HELD]
    asked = [
        a.cause.action
        for a in holding
        if a.cause.action
        and (a.cause.action not in OPERATOR_ACTIONS or _verdict(incident, a, None) == "infrastructure")
    ]
    return max(asked, key=ACTIONS.index, default=None)


def _evidence(leaves: Iterable[Leaf]) -> tuple[Evidence, ...]:
    return tuple(Evidence(what=leaf.what, value=leaf.value, reason=leaf.reason) for leaf in distinct_evidence(leaves))


def _verdict(incident: Incident, best: Assessment | None, row: TableRow | None) -> Verdict:
    """The verdict of a cause, trusted as far as the conditions that decided it.

    A job's log can lie, and a job chooses what its processes load. To blame the infrastructure for what a job printed
    takes a condition that the kernel or the node answered; for what the kernel printed, a job may have answered none.
    What merely supports a cause decides nothing.
    """
    if best is None:
        return "unclear"
    if best.cause.verdict == "infrastructure" and row and row.action == "ignore":
        return "unclear"  # nobody is to be called for what the vendor says to ignore
    if best.cause.verdict != "infrastructure":
        return best.cause.verdict
    answered = [leaf.source in ("node", "kernel") for leaf in best.held if leaf.source]
    is_trusted = all(answered) if incident.first.source == "kernel" else any(answered)
    return "infrastructure" if is_trusted else "unclear"
