"""What is known around an incident, held against the conditions of the causes that can explain it; and exposure.

Conditions are data (see `signatures.Condition`) and three-valued: a fact that is missing leaves a condition
undetermined, and the explanation names it. Knows nothing of roles, files, clocks or metrics.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Condition, RootCause
from exporter.core.diagnosis.assessment import Assessment, Leaf
from exporter.core.diagnosis.incidents import device_of
from exporter.core.model import JOBS_ON_SM, Incident, Mark, Match, Truth
from exporter.core.patterns.expression import search_in_time
from exporter.core.patterns.syntax import FLAGS
from exporter.core.text.versions import VersionRange

MAX_WAYS = 256  # that an explanation looks at: their number is the product over all alternatives of a tree


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value and where it was learnt: `log` (a job said it of itself), `process` (we read it of the job, which chose
    it), `node` (we read it) or `kernel`; and in which line of its log, where that is known.
    """

    value: str
    origin: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that is known around one incident, as conditions ask for it."""

    facts: Mapping[str, KnownValue]
    captures: Mapping[str, KnownValue]
    job: Mapping[str, str]
    near: Mapping[str, Sequence[Incident | Mark]]  # by signature: what is near, or was told of earlier in the log
    device: str | None = None  # the PCI address that the incident names: what is said of another device is no evidence


def view_of(incident: Incident, near: Iterable[Incident], node_facts: Mapping[str, str]) -> View:
    """Gather what is known around an incident: the job's own log and processes before the node."""
    near = list(near)
    own = [incident, *(i for i in near if i.scope == incident.scope)]
    contexts = [m.context for i in own for m in i.matches]
    facts = _known_facts(own, node_facts)
    seen: dict[str, list[Incident | Mark]] = {}
    for other in near:
        seen.setdefault(other.signature, []).append(other)
    for context in contexts:
        for signature, mark in context.marks.items():
            seen.setdefault(signature, []).append(mark)
    job = incident.first.job
    described = {"id": job.id, "kind": job.kind, **({"user": job.user} if job.user else {})} if job else {}
    captures = {name: _said(m, value) for m in reversed(incident.matches) for name, value in m.captures.items()}
    return View(facts, captures, described, seen, device_of(incident))


def _known_facts(own: Sequence[Incident], node_facts: Mapping[str, str]) -> dict[str, KnownValue]:
    """The job's own beats the node's; of its own, what it mapped beats what it said, and what it said the environment that
    it was started with, which it may have changed since. Of one version told at two lengths the longer is kept.
    """
    matches = [match for incident in reversed(own) for match in reversed(incident.matches)]
    process = {name: value for match in matches for name, value in match.process.items()}
    log = {name: value for match in matches for name, value in match.context.facts.items()}
    facts = {name: KnownValue(value, "node") for name, value in node_facts.items()}
    facts.update({name: KnownValue(value, "process") for name, value in process.items() if name.startswith("env.")})
    facts.update({name: KnownValue(value, "log") for name, value in log.items()})
    for name, value in process.items():
        if not name.startswith("env.") and not log.get(name, "").startswith(f"{value}."):
            facts[name] = KnownValue(value, "kernel" if name == JOBS_ON_SM else "process")
    return facts


def _said(match: Match, value: str) -> KnownValue:
    return KnownValue(value, "kernel" if match.source == "kernel" else "log", match.line)


def assess(signature: str, view: View, catalogue: Catalogue) -> list[Assessment]:
    """Every cause that can explain a signature, judged, the best first."""
    return sorted((_assess(cause, view) for cause in catalogue.causes_of(signature)), key=lambda a: a.rank)


def best_cause(assessments: Iterable[Assessment]) -> Assessment | None:
    """The satisfied cause with the most evidence, or None."""
    return min((a for a in assessments if a.truth is Truth.HELD), key=lambda a: a.rank, default=None)


def evidence_of(leaves: Iterable[Leaf]) -> list[Leaf]:
    """What speaks for a cause, each thing once, with all that it says; what it rules out only where it says no more."""
    found: dict[tuple[str, str], Leaf] = {}
    whys: dict[tuple[str, str], dict[str, bool]] = {}
    for leaf in leaves:
        if leaf.origin:
            found.setdefault((leaf.what, leaf.value), leaf)
            if leaf.why:
                whys.setdefault((leaf.what, leaf.value), {})[leaf.why] = not leaf.asked.startswith("not ")
    return [replace(leaf, why="; ".join(_strongest(whys.get(key, {})))) for key, leaf in found.items()]


def _strongest(whys: Mapping[str, bool]) -> list[str]:
    return [why for why, positive in whys.items() if positive] or list(whys)


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
        ways=tuple(sorted(_ways(cause.when, view), key=len)) if cause.when and truth is Truth.UNDETERMINED else (),
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


def _ways(condition: Condition, view: View, *, negated: bool = False) -> list[tuple[Leaf, ...]]:
    """Each set of undetermined leaves that would make a condition hold, were they to come out so."""
    if condition.not_:
        return _ways(condition.not_, view, negated=not negated)
    children = condition.all or condition.any
    if children:
        ways = [_ways(child, view, negated=negated) for child in children]
        if bool(condition.any) != negated:
            return list(dict.fromkeys(way for choice in ways for way in choice))
        choices = itertools.islice(itertools.product(*ways), MAX_WAYS)
        return [tuple(dict.fromkeys(itertools.chain(*choice))) for choice in choices]
    _, (leaf,) = judge(Condition(not_=condition) if negated else condition, view)
    if leaf.truth is Truth.FAILED:
        return []
    return [(leaf,)] if leaf.truth is Truth.UNDETERMINED else [()]


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
        found = known or KnownValue("", "")
        return Leaf(_truth(holds), what, asked, found.value, condition.why, found.origin, found.line)
    if known is None:
        if condition.if_unknown:
            assumed = f"not known, taken as {condition.if_unknown}"
            return Leaf(_truth(condition.if_unknown == "held"), what, asked, assumed, condition.why)
        missing = Truth.UNDETERMINED if condition.fact else Truth.FAILED
        return Leaf(missing, what, asked, "not known", condition.why)
    return Leaf(_compare(condition, known.value), what, asked, known.value, condition.why, known.origin, known.line)


def _of_job(value: str | None) -> KnownValue | None:
    return None if value is None else KnownValue(value, "log")


def _match_leaf(condition: Condition, glob: str, view: View) -> Leaf:
    asked = " and ".join(f"{name} ~ {pattern}" for name, pattern in condition.where.items())
    for signature, lines in view.near.items():
        if not fnmatch.fnmatchcase(signature, glob):
            continue
        for captures, line in (_told_by(one) for one in lines if not _is_about_another(one, view.device)):
            if all(_search(pattern, captures.get(name, "")) for name, pattern in condition.where.items()):
                said = line.value[:300]
                return Leaf(Truth.HELD, f"line of {signature}", asked, said, condition.why, line.origin, line.line)
    return Leaf(Truth.FAILED, f"line of {glob}", asked, "none near", condition.why)


def _is_about_another(one: Incident | Mark, device: str | None) -> bool:
    """Whether something near names another device."""
    other = device_of(one) if isinstance(one, Incident) else None
    return device is not None and other is not None and other != device


def _told_by(one: Incident | Mark) -> tuple[Mapping[str, str], KnownValue]:
    """The captures and the line of something near."""
    if isinstance(one, Mark):
        return one.captures, KnownValue(one.text, "log", one.line)
    return one.captures(), _said(one.first, one.first.text)


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
        return bool(search_in_time(regex.compile(pattern, FLAGS), text))
    except TimeoutError:
        return False


def _truth(holds: bool) -> Truth:
    return Truth.HELD if holds else Truth.FAILED


def asks(condition: Condition) -> str:
    """What a leaf condition asks of its subject, in short: `>=6.2`, `~ MI300A`, `known`."""
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
    view = View({name: KnownValue(value, "node") for name, value in facts.items()}, {}, {}, {})
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
