"""Traces lines through decoding, required literals and patterns, for authors and for lines that should match."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporter.core.catalogue.pack_types import MAX_LINES
from exporter.core.decoding.formats import decode
from exporter.core.decoding.prefixes import Clock
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.rules import Rule, Verdict, facts_of
from exporter.core.model import LogFormat, Record, SourceKind

SHOWN_RULES = 6  # of those that look at the other kind of log only: a line of an Xid has fifty


@dataclass(frozen=True, slots=True)
class Reading:
    """One line with a required literal, or a single line given by the user."""

    number: int
    record: Record
    literals: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    elsewhere: tuple[Rule, ...]  # rules that would have been tried in the other kind of log

    def facts(self) -> dict[str, str]:
        """The facts of the job's software that the line states."""
        return {
            name: value
            for verdict in self.verdicts
            if verdict.outcome == "matched" and verdict.found and verdict.rule.kind == "fact"
            for name, value in facts_of(verdict.found, verdict.text).items()
        }


def read(lines: Sequence[str], source: SourceKind, form: LogFormat, pipeline: Pipeline) -> Iterator[Reading]:
    """The lines of a log that contain a required literal; a single line in any case."""
    gates = pipeline.matcher.gates[source]
    other: SourceKind = "kernel" if source == "job" else "job"
    for number, line in enumerate(lines, 1):
        raw = line.encode("utf-8", "backslashreplace")
        hits = {gate for gate in pipeline.engine_for(source).scan(raw).gates if gate < len(gates)}
        if not hits and len(lines) > 1:
            continue
        record = decode(raw, form, source, Clock(time.time()))
        rules = pipeline.matcher.tried_under(hits, source)
        there = set(pipeline.engine_for(other).scan(raw).gates)
        yield Reading(
            number,
            record,
            tuple(sorted(gates[gate].literal.decode() for gate in hits)),
            tuple(pipeline.evaluators.trace(hits, [record.text, *lines[number : number + MAX_LINES - 1]], source)),
            tuple(rule for rule in pipeline.matcher.tried_under(there, other) if rule not in rules),
        )


def stages_of(reading: Reading, source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    """The stages of one line, as text."""
    record = reading.record
    yield f"line {reading.number}   {record.text[:160]}"
    fields = {"time": record.time, "rank": record.rank, "host": record.host, "device": record.device}
    prefix = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
    if prefix:
        yield f"  prefix   {prefix}"
    if not reading.literals:
        yield "  gates    none: no signature's required literal occurs in it, so no pattern was tried"
        yield from _nearest(record.text, source, pipeline)
    else:
        yield f"  gates    {', '.join(map(repr, reading.literals))}"
    if reading.elsewhere:
        some = ", ".join(rule.id for rule in reading.elsewhere[:SHOWN_RULES])
        more = f" and {len(reading.elsewhere) - SHOWN_RULES} more" if len(reading.elsewhere) > SHOWN_RULES else ""
        yield f"  -        counts only in {'kernel' if source == 'job' else 'job'} logs: {some}{more}"
    for verdict in reading.verdicts:
        if verdict.outcome != "no pattern":
            yield from _verdict(verdict)
    tried = [verdict.rule.id for verdict in reading.verdicts if verdict.outcome == "no pattern"]
    if tried:
        yield f"  -        no pattern matches of: {', '.join(tried)}"


def _verdict(verdict: Verdict) -> Iterator[str]:
    rule = verdict.rule
    descriptions = {
        "matched": f"matches /{_short(verdict.by)}/",
        "unless": f"matches, but so does its `unless` /{_short(verdict.by)}/",
        "amid": f"/{_short(verdict.by)}/ matches, but amid what the kernel says, where a name that a user chose may stand",
        "echo": f"matches, but the line only quotes it (echo {verdict.by})",
        "yields": f"matches, but yields to {verdict.by}",
        "timeout": "ran out of time",
        "off": "is off for this log after timeouts",
    }
    yield f"  {'+' if verdict.outcome == 'matched' else '-'}        {rule.id}: {descriptions[verdict.outcome]}"
    if verdict.outcome == "matched" and verdict.found:
        for name, value in verdict.found.captures(verdict.text).items():
            yield f"             {name} = {value}"


def _short(pattern: str) -> str:
    """A pattern as one line; `gpufault signatures show ID` has it whole."""
    line = " ".join(pattern.split())
    return line if len(line) <= 120 else line[:119] + "…"


def _nearest(text: str, source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    """The required literal most similar to a part of the text: shows a changed wording."""
    lowered = text.lower()
    best, ratio = None, 0.6
    gates = pipeline.matcher.gates[source]
    for index, gate in enumerate(gates):
        literal = gate.literal.decode().lower()
        found = difflib.SequenceMatcher(None, lowered, literal, autojunk=False).find_longest_match()
        if found.size / len(literal) > ratio and pipeline.matcher.tried_under([index], source):
            best, ratio = index, found.size / len(literal)
    if best is not None:
        rules = ", ".join(rule.id for rule in pipeline.matcher.tried_under([best], source)[:3])
        yield f"  nearest  {gates[best].literal.decode()!r} of {rules}"
