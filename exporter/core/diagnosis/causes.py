"""Root causes: their conditions, evaluated against what is known around an incident; and nodes at risk.

Conditions are data (see `pack_types.Condition`) with three values. A missing fact leaves a condition undetermined, and
the explanation names that fact. Knows nothing of roles, files, clocks or metrics.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Condition, RootCause
from exporter.core.diagnosis.assessment import Assessment, Leaf
from exporter.core.diagnosis.incidents import device_of
from exporter.core.model import JOBS_ON_SM, ContextLine, Incident, Match, Truth
from exporter.core.patterns.expression import search_in_time
from exporter.core.patterns.syntax import FLAGS
from exporter.core.text.versions import VersionRange

if TYPE_CHECKING:
    import regex
import re

MAX_SUFFICIENT_SETS = 256  # their number is the product over all alternatives of a tree


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value with its source and, if known, its log line.

    Sources: `log` (printed by the job), `process` (read from the job's process), `node` and `kernel`. A job controls
    the first two.
    """

    value: str
    source: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class EvidenceContext:
    """Everything known around one incident, by the names that conditions use."""

    facts: Mapping[str, SourcedValue]
    captures: Mapping[str, SourcedValue]
    job: Mapping[str, str]
    nearby: Mapping[str, Sequence[Incident | ContextLine]]  # by signature: incidents nearby, lines earlier in the log
    lines: Sequence[SourcedValue] = ()  # the texts of the incident
    device: str | None = None  # the PCI address of the incident; lines about other devices are not evidence


def evidence_context(incident: Incident, nearby: Iterable[Incident], node_facts: Mapping[str, str]) -> EvidenceContext:
    """Everything known around an incident. The job's own log and processes override the node's facts."""
    nearby = list(nearby)
    own = [incident, *(i for i in nearby if i.scope == incident.scope)]
    by_signature: dict[str, list[Incident | ContextLine]] = {}
    for other in nearby:
        by_signature.setdefault(other.signature, []).append(other)
    for match in (m for i in own for m in i.matches):
        for signature, line in match.context.marks.items():
            by_signature.setdefault(signature, []).append(line)
    job = incident.first.job
    described = {"id": job.id, "kind": job.kind, **({"user": job.user} if job.user else {})} if job else {}
    captures = {name: _from_line(m, value) for m in reversed(incident.matches) for name, value in m.captures.items()}
    lines = [_from_line(match, match.text) for match in incident.matches]
    return EvidenceContext(
        _facts_by_priority(own, node_facts), captures, described, by_signature, lines, device_of(incident)
    )


def _facts_by_priority(own: Sequence[Incident], node_facts: Mapping[str, str]) -> dict[str, SourcedValue]:
    """Facts by priority: mapped libraries, the job's log, its start environment, the node.

    The job may have changed its environment since its start. Of one version in two lengths, the longer is kept.
    """
    matches = [match for incident in reversed(own) for match in reversed(incident.matches)]
    process = {name: value for match in matches for name, value in match.process.items()}
    log = {name: value for match in matches for name, value in match.context.facts.items()}
    facts = {name: SourcedValue(value, "node") for name, value in node_facts.items()}
    facts.update({name: SourcedValue(value, "process") for name, value in process.items() if name.startswith("env.")})
    facts.update({name: SourcedValue(value, "log") for name, value in log.items()})
    for name, value in process.items():
        if not name.startswith("env.") and not log.get(name, "").startswith(f"{value}."):
            facts[name] = SourcedValue(value, "kernel" if name == JOBS_ON_SM else "process")
    return facts


def _from_line(match: Match, value: str) -> SourcedValue:
    return SourcedValue(value, "kernel" if match.source == "kernel" else "log", match.line)


def assess(signature: str, context: EvidenceContext, catalogue: Catalogue) -> list[Assessment]:
    """An assessment of every cause that can explain a signature; best first."""
    return sorted((_assess(cause, context) for cause in catalogue.causes_of(signature)), key=lambda a: a.rank)


def best_cause(assessments: Iterable[Assessment]) -> Assessment | None:
    """The satisfied cause with the most evidence, or None. Assumptions are not evidence."""
    proven = (a for a in assessments if a.truth is Truth.HELD and any(leaf.source for leaf in (*a.held, *a.supports)))
    return min(proven, key=lambda a: a.rank, default=None)


def distinct_evidence(leaves: Iterable[Leaf]) -> list[Leaf]:
    """The evidence for a cause, each value once with all its reasons.

    Reasons of negated conditions count only if there are no others.
    """
    distinct: dict[tuple[str, str], Leaf] = {}
    reasons: dict[tuple[str, str], dict[str, bool]] = {}
    for leaf in leaves:
        if leaf.source:
            distinct.setdefault((leaf.subject, leaf.value), leaf)
            if leaf.reason:
                is_positive = not leaf.requirement.startswith("not ")
                reasons.setdefault((leaf.subject, leaf.value), {})[leaf.reason] = is_positive
    return [replace(leaf, reason="; ".join(_preferred(reasons.get(key, {})))) for key, leaf in distinct.items()]


def _preferred(reasons: Mapping[str, bool]) -> list[str]:
    return [reason for reason, is_positive in reasons.items() if is_positive] or list(reasons)


def _assess(cause: RootCause, context: EvidenceContext) -> Assessment:
    truth, leaves = judge(cause.when, context) if cause.when else (Truth.UNDETERMINED, ())
    sufficient = _sufficient_sets(cause.when, context) if cause.when and truth is Truth.UNDETERMINED else []
    return Assessment(
        cause,
        truth,
        held=_of_truth(Truth.HELD, leaves),
        failed=_of_truth(Truth.FAILED, leaves),
        undetermined=_of_truth(Truth.UNDETERMINED, leaves),
        supports=tuple(leaf for c in cause.supported_by for leaf in _if_held(c, context)),
        against=tuple(leaf for c in cause.against for leaf in _if_held(c, context)),
        sufficient=tuple(sorted(sufficient, key=len)),
    )


def _of_truth(truth: Truth, leaves: Iterable[Leaf]) -> tuple[Leaf, ...]:
    return tuple(leaf for leaf in leaves if leaf.truth is truth)


def _if_held(condition: Condition, context: EvidenceContext) -> tuple[Leaf, ...]:
    """The leaves that make a condition hold; empty if it does not hold."""
    truth, leaves = judge(condition, context)
    return _of_truth(Truth.HELD, leaves) if truth is Truth.HELD else ()


def judge(condition: Condition, context: EvidenceContext) -> tuple[Truth, tuple[Leaf, ...]]:
    """The truth of a condition and the leaves that decide it. An `any` that holds gives its best branch."""
    if condition.not_:
        truth, leaves = judge(condition.not_, context)
        return truth.negated, tuple(
            replace(
                leaf,
                truth=leaf.truth.negated,
                requirement=f"not {leaf.requirement}",
                reason=leaf.reason or condition.why,
            )
            for leaf in leaves
        )
    children = condition.all or condition.any
    if not children:
        leaf = _leaf(condition, context)
        return leaf.truth, (leaf,)
    judged = [judge(child, context) for child in children]
    holding = [leaves for truth, leaves in judged if truth is Truth.HELD]
    if condition.any and holding:
        return Truth.HELD, max(holding, key=lambda leaves: len(_of_truth(Truth.HELD, leaves)))
    truths = [truth for truth, _ in judged]
    return (Truth.all_of if condition.all else Truth.any_of)(truths), tuple(
        leaf for _, leaves in judged for leaf in leaves
    )


def _sufficient_sets(
    condition: Condition, context: EvidenceContext, *, negated: bool = False
) -> list[tuple[Leaf, ...]]:
    """Each set of undetermined leaves that would make a condition hold."""
    if condition.not_:
        return _sufficient_sets(condition.not_, context, negated=not negated)
    children = condition.all or condition.any
    if children:
        sets = [_sufficient_sets(child, context, negated=negated) for child in children]
        if bool(condition.any) != negated:
            return list(dict.fromkeys(leaves for alternatives in sets for leaves in alternatives))
        choices = itertools.islice(itertools.product(*sets), MAX_SUFFICIENT_SETS)
        return [tuple(dict.fromkeys(itertools.chain(*choice))) for choice in choices]
    _, (leaf,) = judge(Condition(not_=condition) if negated else condition, context)
    if leaf.truth is Truth.FAILED:
        return []
    return [(leaf,)] if leaf.truth is Truth.UNDETERMINED else [()]


def _leaf(condition: Condition, context: EvidenceContext) -> Leaf:
    if condition.match:
        return _match_leaf(condition, condition.match, context)
    if condition.text:
        return _text_leaf(condition, condition.text, context)
    if condition.reported_by:
        return _reporter_leaf(condition, context)
    if condition.fact:
        sourced, subject = context.facts.get(condition.fact), f"fact {condition.fact}"
    elif condition.capture:
        sourced, subject = context.captures.get(condition.capture), f"capture {condition.capture}"
    else:
        value, subject = context.job.get(condition.job or ""), f"job {condition.job}"
        sourced = None if value is None else SourcedValue(value, "log")
    needed = requirement_text(condition)
    if condition.exists is not None and (sourced is not None or not condition.fact):
        holds = (sourced is not None) == condition.exists
        present = sourced or SourcedValue("", "")
        return Leaf(_truth(holds), subject, needed, present.value, condition.why, present.source, present.line)
    if sourced is None:
        if condition.if_unknown:
            holds = condition.if_unknown == "held"
            assumed = f"unknown; assumed {'to hold' if holds else 'not to hold'}"
            return Leaf(_truth(holds), subject, needed, assumed, condition.why)
        missing = Truth.UNDETERMINED if condition.fact else Truth.FAILED
        return Leaf(missing, subject, needed, "unknown", condition.why)
    if condition.of:
        whole = context.captures.get(condition.of)
        truth, value = _compare_share(condition, sourced.value, whole.value if whole else "")
        return Leaf(truth, subject, needed, value, condition.why, sourced.source, sourced.line)
    return Leaf(
        _compare(condition, sourced.value), subject, needed, sourced.value, condition.why, sourced.source, sourced.line
    )


def _reporter_leaf(condition: Condition, context: EvidenceContext) -> Leaf:
    first = context.lines[0] if context.lines else SourcedValue("", "log")
    truth, reporter = _truth(first.source == condition.reported_by), f"by the {first.source}"
    needed = f"by the {condition.reported_by}"
    return Leaf(truth, "reported", needed, reporter, condition.why, first.source, first.line, of_signature=True)


def _text_leaf(condition: Condition, pattern: str, context: EvidenceContext) -> Leaf:
    for line in context.lines:
        if words := _first_match(pattern, line.value):
            held = Leaf(Truth.HELD, "words", f"~ {pattern}", words[0], condition.why, line.source, line.line)
            return replace(held, of_signature=True)
    return Leaf(Truth.FAILED, "words", f"~ {pattern}", "none in the incident", condition.why)


def _compare_share(condition: Condition, part: str, whole: str) -> tuple[Truth, str]:
    """Whether an amount is a large enough share of another, and both in words."""
    amount, total = byte_count(part), byte_count(whole)
    if amount is None or not total:
        return Truth.FAILED, f"{part}; {condition.of} is unknown"
    return _truth(amount / total >= (condition.at_least or 0.0)), f"{part} against {whole}"


def _match_leaf(condition: Condition, glob: str, context: EvidenceContext) -> Leaf:
    needed = " and ".join(f"{name} ~ {pattern}" for name, pattern in condition.where.items())
    for signature, lines in context.nearby.items():
        if not fnmatch.fnmatchcase(signature, glob):
            continue
        for captures, line in (_captures_and_line(other) for other in lines if not _names_other(other, context.device)):
            if all(_search(pattern, captures.get(name, "")) for name, pattern in condition.where.items()):
                text = line.value[:300]
                return Leaf(Truth.HELD, f"line of {signature}", needed, text, condition.why, line.source, line.line)
    return Leaf(Truth.FAILED, f"line of {glob}", needed, "none found nearby", condition.why)


def _names_other(nearby: Incident | ContextLine, device: str | None) -> bool:
    """Whether an incident nearby names another device."""
    other = device_of(nearby) if isinstance(nearby, Incident) else None
    return device is not None and other is not None and other != device


def _captures_and_line(nearby: Incident | ContextLine) -> tuple[Mapping[str, str], SourcedValue]:
    if isinstance(nearby, ContextLine):
        return nearby.captures, SourcedValue(nearby.text, "log", nearby.line)
    return nearby.captures(), _from_line(nearby.first, nearby.first.text)


def _compare(condition: Condition, value: str) -> Truth:
    if condition.equals is not None:
        return _truth(value == condition.equals)
    if condition.in_ is not None:
        return _truth(value in condition.in_)
    if condition.matches is not None:
        return _truth(_search(condition.matches, value))
    if condition.version is not None:
        # Any of several installed versions may be the one in use: the answer is known only if all agree.
        truths = {VersionRange.parse(condition.version).holds_for(part) for part in value.split(",")}
        return truths.pop() if len(truths) == 1 else Truth.UNDETERMINED
    return Truth.HELD


def _search(pattern: str, text: str) -> bool:
    return _first_match(pattern, text) is not None


def _first_match(pattern: str, text: str) -> regex.Match[str] | None:
    import regex  # takes 12 ms, and most scans need none of it

    try:
        return search_in_time(regex.compile(pattern, FLAGS), text)
    except TimeoutError:
        return None


def _truth(holds: bool) -> Truth:
    return Truth.HELD if holds else Truth.FAILED


def requirement_text(condition: Condition) -> str:
    """The requirement of a leaf condition, in short: `>=6.2`, `~ MI300A`, `known`."""
    if condition.equals is not None:
        return f"= {condition.equals}"
    if condition.in_ is not None:
        return f"in {', '.join(condition.in_)}"
    if condition.matches is not None:
        return f"~ {condition.matches}"
    if condition.version is not None:
        return condition.version
    if condition.of:
        return f">= {condition.at_least:.0%} of {condition.of}"
    return "known" if condition.exists else "not known"


def is_at_risk(cause: RootCause, facts: Mapping[str, str]) -> bool:
    """Whether a node's facts meet the conditions of a cause, with or without a crash.

    Conditions on captures, jobs and lines are skipped, and so are unknown environment variables. A cause without
    conditions on facts puts no node at risk.
    """
    if cause.when is None:
        return False
    context = EvidenceContext({name: SourcedValue(value, "node") for name, value in facts.items()}, {}, {}, {})
    return _fact_truth(cause.when, context) is Truth.HELD


def _fact_truth(condition: Condition, context: EvidenceContext) -> Truth | None:
    """The truth of a condition by facts alone; None if it has no conditions on facts."""
    if condition.all or condition.any:
        judged = [_fact_truth(child, context) for child in condition.all or condition.any or ()]
        truths = [truth for truth in judged if truth is not None]
        if not truths:
            return None
        return Truth.all_of(truths) if condition.all else Truth.any_of(truths)
    if condition.not_:
        inner = _fact_truth(condition.not_, context)  # a negation can rule a cause out, but puts no node at risk
        return Truth.FAILED if inner is Truth.HELD else Truth.UNDETERMINED if inner is Truth.UNDETERMINED else None
    has_value = condition.fact in context.facts
    if not condition.fact or (not has_value and (condition.if_unknown or condition.fact.startswith("env."))):
        return None
    return _leaf(condition, context).truth


_AMOUNT = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?) ?(?P<unit>[KMGT]?i?B?|bytes?)", re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def byte_count(text: str) -> float | None:
    """Bytes of `2.50 GiB`, `512M`, `4,096 bytes` or `4096`; units are powers of 1024. None for other text."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    number = float(match["number"].replace(",", ""))
    return number * float(1024 ** _POWERS[match["unit"][:1].lower()])
