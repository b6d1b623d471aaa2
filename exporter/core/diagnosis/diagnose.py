"""The diagnosis of an incident: its role, from the incidents nearby, and its best root cause.

Knows no files, clocks or metrics.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Signature, TableRow
from exporter.core.diagnosis.assessment import Assessment, Diagnosis, Evidence, Leaf
from exporter.core.diagnosis.causes import EvidenceContext, assess, best_cause, distinct_evidence, evidence_context
from exporter.core.diagnosis.incidents import shares_job
from exporter.core.diagnosis.links import comes_first, is_of_process, shares_process
from exporter.core.diagnosis.open_incidents import Entry
from exporter.core.matching.log_end import REACH_BYTES
from exporter.core.model import (
    ACTIONS,
    OPERATOR_ACTIONS,
    PEER_FAILURE,
    UNKNOWN,
    UNRECOGNISED,
    Action,
    Domain,
    Incident,
    Severity,
    Truth,
    Verdict,
)

INSTALLED: frozenset[Domain] = frozenset({"library", "mismatch"})  # whose it is depends on who installed it


def incident_id(incident: Incident, node: str) -> str:
    """16 hex digits, the same in a replay: a hash of the node and the position and text of the first line."""
    first = incident.first
    # The wall time of a kernel record is an estimate that differs between starts; its boot and number do not.
    stamp = f"{first.time:.6f}" if first.is_stamped and first.source == "job" else ""
    position = first.offset if first.seq is None else first.seq
    parts = (node, first.origin, str(position), first.signature, stamp, first.text)
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def root_of(entry: Entry, near: Sequence[Entry], catalogue: Catalogue) -> Entry | None:
    """The incident that this one is a consequence of, or None if it is a root. `near` is sorted.

    A cascade without a root nearby is a root too: its own root may be in other logs.
    """
    crashes = (e for e in near if catalogue.signatures[e.incident.signature].role != "context")
    candidates = [e for e in crashes if not _is_far_away(entry.incident, e.incident)]
    for other in sorted(candidates, key=lambda e: _is_mild(e, catalogue)):
        if _is_consequence(entry, other, catalogue):
            return other
    role = catalogue.signatures[entry.incident.signature].role
    if entry.incident.first.source == "kernel" and role == "root":
        return None  # kernel faults are independent unless their signatures say otherwise
    # A line that tells a reason of its own is a consequence of the kernel's only where its signature says so.
    is_consequence = role != "root"
    same = [
        entry,
        *(
            e
            for e in candidates
            if e.incident.scope == entry.incident.scope or (is_consequence and _is_of_its_process(entry, e, catalogue))
        ),
    ]
    for other in sorted(same, key=lambda e: _rank_as_root(e, catalogue)):
        if other is entry:
            return None
        if not comes_first(other.incident, entry.incident):
            continue
        if not any(_is_consequence(other, third, catalogue) for third in same):
            return other
    return None


def _is_of_its_process(entry: Entry, other: Entry, catalogue: Catalogue) -> bool:
    """Whether two linked incidents are the kernel's and the log's view of one process."""
    return any(is_of_process(one.incident, catalogue) for one in (entry, other))


def _is_mild(entry: Entry, catalogue: Catalogue) -> bool:
    """Whether it is a line of the kernel that explains others only if nothing graver does, as a corrected error."""
    mild = catalogue.signatures[entry.incident.signature].severity in ("info", "warning")
    return mild and entry.incident.first.source == "kernel"


_WEIGHTS = {"root": 3, "confirmation": 2, "cascade": 1, "context": 0}


def _rank_as_root(entry: Entry, catalogue: Catalogue) -> tuple[int, bool, tuple[tuple[float, str, int, str], str]]:
    """Sorts what may be the root of others first: a launcher's report that a rank has exited comes last of its role."""
    signature = catalogue.signatures[entry.incident.signature]
    return -_WEIGHTS[signature.role], signature.severity == "info", entry.order


def ultimate_root(entry: Entry, near_of: Callable[[Entry], Sequence[Entry]], catalogue: Catalogue) -> Entry:
    """Follow consequences up to a root or a reported incident.

    In a circle of consequences the earliest is the root, or the fault would never be counted.
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
    """Whether an incident is a consequence of another; of two that may follow each other, only the later is."""
    if entry.number == other.number:  # a glob such as `cuda_*` may name the signature itself
        return False
    a, b = entry.incident.signature, other.incident.signature
    if (
        a == b
        and is_of_process(entry.incident, catalogue)
        and (shares_job(entry.incident, other.incident) or shares_process(entry.incident, other.incident))
    ):
        return other.order < entry.order  # of two ranks of a job
    second_view = catalogue.signatures[a].role == "confirmation"
    if not catalogue.follows(a, b) or not comes_first(other.incident, entry.incident, second_view=second_view):
        return False
    same_source = entry.incident.first.source == other.incident.first.source
    if not same_source and catalogue.signatures[b].role == "cascade":
        return catalogue.signatures[a].role == "cascade"  # as Xid 43, which tells no reason: the log does
    return not (same_source and catalogue.follows(b, a) and entry.order < other.order)


def _is_far_away(incident: Incident, other: Incident) -> bool:
    """Whether a log without times ended in an unrecognised crash long after another incident of it: the log went on."""
    first, before = incident.first, other.matches[-1]
    is_far = first.path == before.path and first.offset - before.offset > REACH_BYTES
    return incident.signature == UNRECOGNISED and is_far and not first.is_stamped


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
    """The diagnosis of an incident with its root (itself, if it is one). `near` may explain it, `same_time` may not."""
    incident, reported = entry.incident, entry.reported
    signature = catalogue.signatures[incident.signature]
    role: Literal["root", "cascade"] = "root" if root.number == entry.number else "cascade"
    context = evidence_context(incident, [e.incident for e in near], node_facts)
    assessments = assess(incident.signature, context, catalogue)
    if role == "cascade":  # its root is known
        assessments = [a for a in assessments if a.cause.id != PEER_FAILURE]
    if reported:  # later evidence cannot change the reported cause, only remove its support
        assessments = [a for a in assessments if a.cause.id == reported.root_cause]
    best = best_cause(assessments)
    row = catalogue.table_row(incident)
    verdict, domain = _verdict(incident, best) if best else signature.usual_verdict, _domain(signature, best)
    leaves = (*best.held, *best.supports) if best else ()
    # What a layer of the GPU's stack reports may be the node's driver, whoever installed the package that called it.
    if verdict == "unclear" and domain in INSTALLED and (signature.layer, incident.first.source) == ("host", "job"):
        leaves += (of_user := _of_user(context))
        verdict = "workload" if of_user else verdict
    if row and row.action == "ignore" and verdict == "infrastructure":
        verdict = "unclear"  # no alert for what the vendor says to ignore
    severity = row.severity if row else signature.severity
    caused_by = reported.root_id if reported and reported.role == "cascade" else None
    if role == "cascade":
        caused_by = root.reported.root_id if root.reported else incident_id(root.incident, node)
    return Diagnosis(
        incident=incident,
        id=reported.id if reported else incident_id(incident, node),
        role=reported.role if reported else role,
        root_cause=reported.root_cause if reported else best.cause.id if best else UNKNOWN,
        caused_by=caused_by,
        verdict=reported.verdict if reported else verdict,
        domain=reported.domain if reported else domain,
        evidence=tuple(
            Evidence(subject=leaf.subject, value=leaf.value, reason=leaf.reason) for leaf in distinct_evidence(leaves)
        ),
        remediation=best.cause.remediation if best else signature.remediation,
        references=tuple(best.cause.references if best else signature.references),
        severity=severity,
        action=reported.action if reported else _action(incident, assessments, row, severity, signature.reach),
        considered=tuple(assessments),
        same_time=tuple(e.incident for e in same_time if catalogue.signatures[e.incident.signature].role != "context"),
    )


def _domain(signature: Signature, best: Assessment | None) -> Domain:
    """Where the fault lies: by its cause, else by its line. What happened to a peer is unknown."""
    if best and (best.cause.domain != UNKNOWN or best.cause.id == PEER_FAILURE):
        return best.cause.domain
    return signature.domain


def _of_user(context: EvidenceContext) -> tuple[Leaf, ...]:
    """The evidence that the job's user installed the package that failed, if the log shows it."""
    owner = context.facts.get("traceback_owner")
    if owner is None or owner.value != "user":
        return ()
    reason = "the last package of the traceback is in a folder of the job's user"
    return (Leaf(Truth.HELD, "fact traceback_owner", "= user", "user", reason, owner.source, owner.line),)


def _action(
    incident: Incident, assessments: Iterable[Assessment], row: TableRow | None, severity: Severity, reach: str
) -> Action | None:
    """The action of the vendor's table; else, for a critical incident, the strongest action of its causes.

    Job lines alone never call an operator, nor does what a user's program can provoke.
    """
    if row:
        is_trusted = incident.first.source == "kernel" or row.action not in OPERATOR_ACTIONS
        return row.action if is_trusted else None
    if severity != "critical" or (incident.first.source == "kernel" and reach == "job"):
        return None
    allowed = [
        a.cause.action
        for a in assessments
        if a.truth is Truth.HELD
        and a.cause.action
        and (
            a.cause.action not in OPERATOR_ACTIONS or (a.cause.verdict == "infrastructure" and _is_trusted(incident, a))
        )
    ]
    return max(allowed, key=ACTIONS.index, default=None)


def _verdict(incident: Incident, best: Assessment) -> Verdict:
    """The verdict of a cause. A fault of the kernel is `infrastructure` only by what no job wrote.

    A job's own line may say `infrastructure`: nothing that pages or drains asks the verdict of a job's line.
    """
    if best.cause.verdict == "infrastructure" and incident.first.source == "kernel" and not _is_trusted(incident, best):
        return "unclear"
    return best.cause.verdict


def _is_trusted(incident: Incident, assessment: Assessment) -> bool:
    """Whether the conditions of a cause were decided by what a job cannot write. Supporting conditions do not count.

    A job's log can lie, and a job chooses the libraries of its processes. For a job's line, one condition must be
    decided by the kernel or the node. For a kernel line, no condition may be decided by the job.
    """
    answered = [leaf.source in ("node", "kernel") for leaf in assessment.held if leaf.source]
    return any(answered) and (all(answered) or incident.first.source == "job")
