"""Why an incident happened: roles from what is near it, causes from conditions over evidence, exposure from facts.

Conditions are data (see `signatures.Condition`) and three-valued: a fact that is missing leaves a condition
undetermined, and the explanation names it. Knows no files, no clocks, no metrics.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import regex

from exporter.core.catalogue import Catalogue
from exporter.core.incidents import Entry
from exporter.core.match import TIMEOUT_SECONDS
from exporter.core.model import PEER_FAILURE, UNKNOWN, Diagnosis, Evidence, Incident, Match, Truth, Verdict
from exporter.core.signatures import FLAGS, Condition, RootCause
from exporter.core.versions import VersionRange

_STRENGTHS = "ABCDE"


@dataclass(frozen=True, slots=True)
class Known:
    """A value and where it was learnt: `log` (a job said it of itself), `node` (we read it) or `kernel`; and in which
    line of its log, where that is known.
    """

    value: str
    origin: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that is known around one incident, as conditions ask for it."""

    facts: Mapping[str, Known]
    captures: Mapping[str, Known]
    job: Mapping[str, str]
    near: Mapping[str, Sequence[tuple[Mapping[str, str], Known]]]  # signature -> its captures and its line


@dataclass(frozen=True, slots=True)
class Leaf:
    """How one leaf condition came out, in words: what was looked at, what was asked of it, what it was, why it matters.

    `origin` is where the value was learnt (see Known); empty where nothing was known and an assumption stands in.
    """

    truth: Truth
    what: str
    asked: str
    value: str
    why: str
    origin: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """How one root cause came out for one incident: its leaves, by what they did to it."""

    cause: RootCause
    truth: Truth
    held: tuple[Leaf, ...]
    failed: tuple[Leaf, ...]
    undetermined: tuple[Leaf, ...]
    supports: tuple[Leaf, ...]
    against: tuple[Leaf, ...]

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sorts the best first: most evidence, then best grade, then by name.

        What was only assumed is no evidence, and what is asked for twice is so once.
        """
        evidence = {(leaf.what, leaf.value) for leaf in (*self.held, *self.supports) if leaf.origin}
        return (len(self.against) - len(evidence), _STRENGTHS.index(self.cause.strength), self.cause.id)


def incident_id(incident: Incident, node: str) -> str:
    """16 hex digits that a replay gives again: of the node and the place and text of the first line."""
    first = incident.first
    # A kernel record has its boot and number; its wall time is an estimate that differs from start to start.
    stamp = f"{first.time:.6f}" if first.time_source == "log" and first.source == "job" else ""
    parts = (node, first.origin, str(first.offset), first.signature, stamp, first.text)
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def root_of(entry: Entry, near: Sequence[Entry], catalogue: Catalogue) -> Entry | None:
    """The incident that this one is a consequence of, or None when it is a root. `near` is in canonical order.

    A cascade that finds nothing to follow is a root too: its own root is on a peer (see `diagnose`).
    """
    known = [e for e in near if catalogue.signatures[e.incident.signature].role != "context"]
    for other in known:
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
        if up.told:
            return up
        numbers = [e.number for e in path]
        if up.number in numbers:
            return min(path[numbers.index(up.number) :], key=lambda e: e.order)
        path.append(up)
    return path[-1]


def _is_consequence(entry: Entry, other: Entry, catalogue: Catalogue) -> bool:
    """Whether an incident follows another; of two that follow each other, only the later does."""
    a, b = entry.incident.signature, other.incident.signature
    return catalogue.follows(a, b) and not (catalogue.follows(b, a) and entry.order < other.order)


def view_of(incident: Incident, near: Iterable[Incident], node_facts: Mapping[str, str]) -> View:
    """Gather what is known around an incident: the job's own log first, then its other logs, then the node."""
    near = list(near)
    facts = {name: Known(value, "node") for name, value in node_facts.items()}
    own = [incident, *(i for i in near if i.scope == incident.scope)]
    contexts = [m.context for i in own for m in i.matches]
    for context in reversed(contexts):
        facts.update({name: Known(value, "log") for name, value in context.facts.items()})
    seen: dict[str, list[tuple[Mapping[str, str], Known]]] = {}
    for other in near:
        seen.setdefault(other.signature, []).append((other.captures(), _said(other.first, other.first.text)))
    for context in contexts:
        for signature, mark in context.marks.items():
            seen.setdefault(signature, []).append((mark.captures, Known(mark.text, "log", mark.line)))
    job = incident.first.job
    described = {"id": job.id, "kind": job.kind, **({"user": job.user} if job.user else {})} if job else {}
    captures = {name: _said(m, value) for m in reversed(incident.matches) for name, value in m.captures.items()}
    return View(facts, captures, described, seen)


def _said(match: Match, value: str) -> Known:
    return Known(value, "kernel" if match.source == "kernel" else "log", match.line)


def diagnose(
    entry: Entry, near: Sequence[Entry], root: Entry, node_facts: Mapping[str, str], catalogue: Catalogue, node: str
) -> Diagnosis:
    """The diagnosis of an incident whose root is `root` (itself, if it is one)."""
    incident, told = entry.incident, entry.told
    signature = catalogue.signatures[incident.signature]
    assessments = assess(incident.signature, view_of(incident, [e.incident for e in near], node_facts), catalogue)
    if told:  # later evidence changes no cause: at most, that of the one told of does not hold any more
        assessments = [a for a in assessments if a.cause.id == told.root_cause]
    best = best_cause(assessments)
    role: Literal["root", "cascade"] = "root" if root.number == entry.number else "cascade"
    caused_by = told.root_id if told and told.role == "cascade" else None
    if role == "cascade":
        caused_by = root.told.root_id if root.told else incident_id(root.incident, node)
    cause = best.cause.id if best else PEER_FAILURE if role == "root" and signature.role == "cascade" else UNKNOWN
    return Diagnosis(
        incident=incident,
        id=told.id if told else incident_id(incident, node),
        role=told.role if told else role,
        root_cause=told.root_cause if told else cause,
        caused_by=caused_by,
        verdict=_verdict(incident, best),
        evidence=_evidence((*best.held, *best.supports)) if best else (),
        remediation=best.cause.remediation if best else signature.remediation,
        references=tuple(best.cause.references if best else signature.references),
        considered=tuple(assessments),
    )


def _evidence(leaves: Iterable[Leaf]) -> tuple[Evidence, ...]:
    """What speaks for a cause, each thing once, with all that it says."""
    whys: dict[tuple[str, str], dict[str, None]] = {}
    for leaf in leaves:
        if leaf.origin:
            whys.setdefault((leaf.what, leaf.value), {}).update({leaf.why: None} if leaf.why else {})
    return tuple(Evidence(what=what, value=value, why="; ".join(why)) for (what, value), why in whys.items())


def _verdict(incident: Incident, best: Assessment | None) -> Verdict:
    """A job's log can lie: only what the kernel said or what we read on the node blames the infrastructure."""
    if best is None:
        return "unclear"
    if best.cause.verdict != "infrastructure" or incident.first.source == "kernel":
        return best.cause.verdict
    trusted = any(leaf.origin in ("node", "kernel") for leaf in (*best.held, *best.supports))
    return "infrastructure" if trusted else "unclear"


def assess(signature: str, view: View, catalogue: Catalogue) -> list[Assessment]:
    """Every cause that can explain a signature, judged, the best first."""
    return sorted((_assess(cause, view) for cause in catalogue.causes_of(signature)), key=lambda a: a.rank)


def best_cause(assessments: Iterable[Assessment]) -> Assessment | None:
    """The satisfied cause with the most evidence, or None."""
    return min((a for a in assessments if a.truth is Truth.HELD), key=lambda a: a.rank, default=None)


def _assess(cause: RootCause, view: View) -> Assessment:
    truth, leaves = judge(cause.when, view) if cause.when else (Truth.HELD, ())
    supports = [leaf for c in cause.supported_by for leaf in _if_held(c, view)]
    against = [leaf for c in cause.against for leaf in _if_held(c, view)]
    return Assessment(
        cause,
        truth,
        held=tuple(leaf for leaf in leaves if leaf.truth is Truth.HELD),
        failed=tuple(leaf for leaf in leaves if leaf.truth is Truth.FAILED),
        undetermined=tuple(leaf for leaf in leaves if leaf.truth is Truth.UNDETERMINED),
        supports=tuple(supports),
        against=tuple(against),
    )


def _if_held(condition: Condition, view: View) -> list[Leaf]:
    """The leaves that make a condition hold, if it does."""
    truth, leaves = judge(condition, view)
    return [leaf for leaf in leaves if leaf.truth is Truth.HELD] if truth is Truth.HELD else []


def judge(condition: Condition, view: View) -> tuple[Truth, tuple[Leaf, ...]]:
    """A condition's truth, and the leaves that made it so (of an `any` that holds, those of the best branch that holds)."""
    if condition.all:
        judged = [judge(child, view) for child in condition.all]
        return _and(truth for truth, _ in judged), tuple(leaf for _, leaves in judged for leaf in leaves)
    if condition.any:
        judged = [judge(child, view) for child in condition.any]
        holding = [leaves for truth, leaves in judged if truth is Truth.HELD]
        if holding:
            return Truth.HELD, max(holding, key=lambda leaves: sum(leaf.truth is Truth.HELD for leaf in leaves))
        return _or(truth for truth, _ in judged), tuple(leaf for _, leaves in judged for leaf in leaves)
    if condition.not_:
        truth, leaves = judge(condition.not_, view)
        flipped = {Truth.HELD: Truth.FAILED, Truth.FAILED: Truth.HELD, Truth.UNDETERMINED: Truth.UNDETERMINED}
        why = condition.why
        return flipped[truth], tuple(
            replace(leaf, truth=flipped[leaf.truth], asked=f"not {leaf.asked}", why=leaf.why or why) for leaf in leaves
        )
    leaf = _leaf(condition, view)
    return leaf.truth, (leaf,)


def _and(truths: Iterable[Truth]) -> Truth:
    found = set(truths)
    if Truth.FAILED in found:
        return Truth.FAILED
    return Truth.UNDETERMINED if Truth.UNDETERMINED in found else Truth.HELD


def _or(truths: Iterable[Truth]) -> Truth:
    found = set(truths)
    if Truth.HELD in found:
        return Truth.HELD
    return Truth.UNDETERMINED if Truth.UNDETERMINED in found else Truth.FAILED


def _leaf(condition: Condition, view: View) -> Leaf:
    if condition.match:
        return _match_leaf(condition, condition.match, view)
    if condition.fact:
        known, what = view.facts.get(condition.fact), f"fact {condition.fact}"
    elif condition.capture:
        known, what = view.captures.get(condition.capture), f"capture {condition.capture}"
    else:
        known, what = _of_job(view.job.get(condition.job or "")), f"job {condition.job}"
    asked = asks(condition)
    if condition.exists is not None and (known is not None or not condition.fact):
        holds = (known is not None) == condition.exists
        found = known or Known("", "")
        return Leaf(_truth(holds), what, asked, found.value, condition.why, found.origin, found.line)
    if known is None:
        if condition.if_unknown:
            assumed = f"not known, taken as {condition.if_unknown}"
            return Leaf(_truth(condition.if_unknown == "held"), what, asked, assumed, condition.why)
        missing = Truth.UNDETERMINED if condition.fact else Truth.FAILED
        return Leaf(missing, what, asked, "not known", condition.why)
    return Leaf(
        _compare(condition, known.value), what, asked, known.value, condition.why, known.origin, known.line
    )


def _of_job(value: str | None) -> Known | None:
    return None if value is None else Known(value, "log")


def _match_leaf(condition: Condition, glob: str, view: View) -> Leaf:
    asked = " and ".join(f"{name} ~ {pattern}" for name, pattern in condition.where.items())
    for signature, lines in view.near.items():
        if not fnmatch.fnmatchcase(signature, glob):
            continue
        for captures, line in lines:
            if all(_search(pattern, captures.get(name, "")) for name, pattern in condition.where.items()):
                said = line.value[:300]
                return Leaf(Truth.HELD, f"line of {signature}", asked, said, condition.why, line.origin, line.line)
    return Leaf(Truth.FAILED, f"line of {glob}", asked, "none near", condition.why)


def _compare(condition: Condition, value: str) -> Truth:
    if condition.equals is not None:
        return _truth(value == condition.equals)
    if condition.in_ is not None:
        return _truth(value in condition.in_)
    if condition.matches is not None:
        return _truth(_search(condition.matches, value))
    if condition.version is not None:
        truths = [VersionRange.parse(condition.version).holds_for(part) for part in value.split(",")]
        return truths[0] if len(truths) == 1 else _any(truths)
    return Truth.HELD


def _any(truths: Sequence[Truth]) -> Truth:
    """Of several versions (several ROCm installs) any may be the one that ran: only unanimity is an answer."""
    return truths[0] if len(set(truths)) == 1 else Truth.UNDETERMINED


def _search(pattern: str, text: str) -> bool:
    try:
        return bool(regex.search(pattern, text, FLAGS, timeout=TIMEOUT_SECONDS))
    except TimeoutError:
        return False


def _truth(holds: bool) -> Truth:
    return Truth.HELD if holds else Truth.FAILED


def asks(condition: Condition) -> str:
    if condition.equals is not None:
        return f"= {condition.equals}"
    if condition.in_ is not None:
        return f"in {', '.join(condition.in_)}"
    if condition.matches is not None:
        return f"~ {condition.matches}"
    if condition.version is not None:
        return condition.version
    return "known" if condition.exists else "not known"


def exposed(cause: RootCause, facts: Mapping[str, str]) -> bool:
    """Whether a node's facts meet a cause's conditions, crash or not. What only a crash can tell is left out of account;
    a job's environment too, where it is not known. A cause without conditions on facts exposes nobody.
    """
    if cause.when is None:
        return False
    view = View({name: Known(value, "node") for name, value in facts.items()}, {}, {}, {})
    return _exposure(cause.when, view) is Truth.HELD


def _exposure(condition: Condition, view: View) -> Truth | None:
    if condition.all or condition.any:
        judged = [_exposure(child, view) for child in condition.all or condition.any or ()]
        truths = [truth for truth in judged if truth is not None]
        if not truths:
            return None
        return _and(truths) if condition.all else _or(truths)
    if condition.not_:
        inner = _exposure(condition.not_, view)  # what a node is not can rule a cause out, and exposes nobody
        return Truth.FAILED if inner is Truth.HELD else Truth.UNDETERMINED if inner is Truth.UNDETERMINED else None
    known = condition.fact in view.facts
    if not condition.fact or (not known and (condition.if_unknown or condition.fact.startswith("env."))):
        return None
    return _leaf(condition, view).truth
