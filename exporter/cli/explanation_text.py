"""The text that explains an incident: cause, evidence with line numbers, what could change the answer, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.cli import incident_text, text_layout
from exporter.cli.fact_commands import command_for
from exporter.core.catalogue.loader import Catalogue
from exporter.core.collectives import collective_texts, collectives_of
from exporter.core.diagnosis.assessment import Assessment, Diagnosis, Leaf
from exporter.core.diagnosis.causes import distinct_evidence
from exporter.core.diagnosis.incidents import gpu_of
from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import Incident
from exporter.core.text.printable import printable

SHOWN_CANDIDATES = 4  # the best of those that a missing fact leaves open; more would not help at 3 a.m.
SHOWN_REFERENCES = 2
SHOWN_SAME_TIME = 2
MARKS = {"held": "+", "failed": "-", "undetermined": "?"}


def explanation(
    diagnosis: Diagnosis,
    cascades: Sequence[Diagnosis],
    catalogue: Catalogue,
    fact_lines: Mapping[str, Sequence[int]],
    *,
    color: bool,
    log: str | None = None,
    recorder: Iterable[str] = (),
) -> Iterator[str]:
    """The lines that explain a root incident. fact_lines: the line numbers of the log that state each fact.

    log: its path, if incidents of the kernel are among them. recorder: what the ranks' flight recorders show.
    """
    incident = diagnosis.incident
    in_log = (one.incident.first.line for one in (diagnosis, *cascades) if log in (None, one.incident.first.path))
    first_line = next(in_log, incident.first.line)
    signature = catalogue.signatures[incident.signature]
    chosen = next((a for a in diagnosis.considered if a.cause.id == diagnosis.root_cause), None)
    yield from incident_text.heading(
        _place(incident, log), signature.title, signature.severity, incident.first.text, color=color
    )
    extent = [f"{incident.lines} lines"] if incident.lines > 1 else []
    extent += [f"{len(incident.ranks)} ranks"] if len(incident.ranks) > 1 else []
    gpu = gpu_of(incident)
    extent += [f"GPU {gpu}"] if gpu else []
    yield from text_layout.field("signature", " · ".join([incident.signature, *extent]))
    yield from _emphasised(text_layout.field("cause", _cause(diagnosis, chosen)), color=color)
    if chosen:
        for leaf in distinct_evidence((*chosen.held, *chosen.supports)):
            yield from text_layout.field("because", _evidence_text(leaf, first_line, fact_lines, log), breaks=True)
        for leaf in distinct_evidence(chosen.against):
            yield from text_layout.field("although", _evidence_text(leaf, first_line, fact_lines, log), breaks=True)
    waiting = next((each.incident.waiting for each in (diagnosis, *cascades) if each.incident.waiting), ())
    for text in collective_texts(collectives_of(waiting)):
        yield from text_layout.field("ranks", printable(text))
    for text in recorder:
        yield from text_layout.field("recorder", printable(text))
    for other in diagnosis.same_time[:SHOWN_SAME_TIME]:
        text = incident_text.same_time(other.signature, other.first.text)
        yield from text_layout.field("meanwhile", text, breaks=True)
    yield from _open_questions(diagnosis, chosen)
    if diagnosis.remediation:
        yield from _emphasised(text_layout.field("do", diagnosis.remediation), color=color)
    if cascades:
        text = ", ".join(f"{c.incident.signature} ({_place(c.incident, log)})" for c in cascades)
        yield from text_layout.field("then", f"{text} – as a consequence")
    for reference in diagnosis.references[:SHOWN_REFERENCES]:
        yield f"  {'read':<{text_layout.INDENT}}{reference}"


def _place(incident: Incident, log: str | None) -> str:
    if log is None or incident.first.path == log:
        return f"line {incident.first.line}"
    return f"kernel log, {rfc3339(incident.first.happened)}"


def _cause(diagnosis: Diagnosis, chosen: Assessment | None) -> str:
    if chosen:
        return incident_text.cause_text(chosen.cause, diagnosis.verdict)
    if any(a.sufficient for a in diagnosis.considered):
        return "unknown: facts are missing; the causes below are neither confirmed nor ruled out"
    if diagnosis.considered:
        return "unknown: no known cause fits"
    return "unknown: no cause is known for this; the advice is the signature's"


def _evidence_text(leaf: Leaf, before: int, fact_lines: Mapping[str, Sequence[int]], log: str | None) -> str:
    if log and leaf.source == "kernel":  # its lines have no numbers in this log
        return incident_text.reason(leaf.what, leaf.value, leaf.reason)
    line = leaf.line
    if line is None and leaf.source == "log":
        stated = fact_lines.get(leaf.what.removeprefix("fact "), ())
        line = max((number for number in stated if number <= before), default=None)
    where = leaf.source if line is None else f"line {line}"
    return incident_text.reason(leaf.what, leaf.value, leaf.reason, where)


def _open_questions(diagnosis: Diagnosis, chosen: Assessment | None) -> Iterator[str]:
    """What could change the answer: assumptions, and causes that a missing fact could favour."""
    asked: set[str] = set()
    assumed = [leaf for leaf in chosen.held if leaf.what.startswith("fact ") and not leaf.source] if chosen else []
    for leaf in {leaf.what: leaf for leaf in assumed}.values():
        because = f" – {leaf.reason}" if leaf.reason else ""
        yield from text_layout.field("unless", f"{_value(leaf, holds=False)}, which is not known here{because}")
        yield from _commands([leaf], asked)
    candidates = [a for a in diagnosis.considered if a.sufficient and (chosen is None or a.could_outrank(chosen))]
    for candidate in candidates[:SHOWN_CANDIDATES]:
        wanted = " and ".join(f"{_value(leaf)}{_because(leaf)}" for leaf in candidate.sufficient[0])
        yield from text_layout.field(
            "or else" if chosen else "perhaps", f"{candidate.cause.title} ({candidate.cause.id}), if {wanted}"
        )
        yield from _commands(candidate.sufficient[0], asked)
    more = len(candidates) - SHOWN_CANDIDATES
    if more > 0:
        yield from text_layout.field("", f"and {more} less likely; --details tells them")
    if chosen and not assumed and not candidates and len(diagnosis.considered) > 1:
        yield from text_layout.field("facts", "no missing fact would change this")


def _because(leaf: Leaf) -> str:
    return f" ({leaf.reason})" if leaf.reason else ""


def _value(leaf: Leaf, *, holds: bool = True) -> str:
    """A condition on a fact in words: `rocm_version is below 6.2`."""
    name, asked = leaf.what.removeprefix("fact "), leaf.requirement
    while asked.startswith("not "):
        asked, holds = asked.removeprefix("not "), not holds
    if asked == "known":
        return f"{name} is {'set' if holds else 'not set'}"
    negation = "" if holds else "not "
    if asked.startswith("~ "):
        words = _in_words(asked.removeprefix("~ "))
        return f"{name} is {negation}like {words}" if words else f"{name} {'shows it' if holds else 'is another'}"
    if asked.startswith("= "):
        return f"{name} is {negation}{asked.removeprefix('= ')}"
    if asked.startswith("in "):
        return f"{name} is {negation}one of {asked.removeprefix('in ')}"
    bounds = [
        next(w + bound.removeprefix(s) for s, w in _BOUNDS.items() if bound.startswith(s))
        for bound in asked.split(", ")
    ]
    return f"{name} is {negation}{' and '.join(bounds)}"


def _in_words(pattern: str) -> str:
    """The alternatives of a pattern that read as plain text; "" if it has none."""
    plain = [part for part in pattern.split("|") if re.fullmatch(r"[\w .+\[\]-]+", part)]
    return " or ".join([", ".join(plain[:-1]), plain[-1]] if len(plain) > 1 else plain)


_BOUNDS = {"<=": "at most ", ">=": "at least ", "==": "", "!=": "other than ", "<": "below ", ">": "above "}


def _commands(leaves: Iterable[Leaf], asked: set[str]) -> Iterator[str]:
    """The commands that print these facts, each once."""
    for leaf in leaves:
        fact = leaf.what.removeprefix("fact ")
        command = command_for(fact)
        if command and fact not in asked:
            asked.add(fact)
            yield f"{' ' * (text_layout.INDENT + 4)}$ {command}"


def _emphasised(lines: list[str], *, color: bool) -> list[str]:
    return [text_layout.paint(line, "1", color) for line in lines]


def every_candidate(diagnosis: Diagnosis) -> Iterator[str]:
    """Every cause that could explain an incident, condition by condition."""
    for assessment in diagnosis.considered:
        mark = ">" if assessment.cause.id == diagnosis.root_cause else MARKS[assessment.truth]
        grade = incident_text.GRADES[assessment.cause.strength]
        yield f"  {mark} {assessment.cause.id}: {assessment.truth}; {grade}"
        for leaf in (*assessment.held, *assessment.failed, *assessment.undetermined):
            yield f"      {MARKS[leaf.truth]} {_condition(leaf)}"
        for leaf in assessment.supports:
            yield f"      + supported by {_condition(leaf)}"
        for leaf in assessment.against:
            yield f"      - speaks against it: {_condition(leaf)}"


def _condition(leaf: Leaf) -> str:
    value = f" ({leaf.value}{', from the ' + leaf.source if leaf.source else ''})" if leaf.value else ""
    return text_layout.one_line(f"{leaf.what} {leaf.requirement}{value}") + (f": {leaf.reason}" if leaf.reason else "")
