"""`gpufault explain`: why a line did or did not match, stage by stage, and how its cause was chosen."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from exporter.cli import options as flags

if TYPE_CHECKING:
    from exporter.core.catalogue import Catalogue
    from exporter.core.diagnose import Assessment, Leaf
    from exporter.core.match import Verdict
    from exporter.core.model import SourceKind
    from exporter.core.pipeline import Pipeline

HELP = "why a line did or did not match, and how its cause was chosen"
DESCRIPTION = "Takes one line, or a log on stdin, and shows each stage: decoding, gates, patterns, incidents, causes."
MARKS = {"held": "+", "failed": "-", "undetermined": "?"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("line", nargs="?", metavar="LINE", help="default: stdin")
    parser.add_argument("--source", default="auto", choices=("job", "kernel", "auto"), help="default: auto")
    parser.add_argument(
        "--facts", default="none", metavar="FILE|host|none", help="facts of the node that the line is from"
    )
    flags.add_catalogue(parser)


def run(options: argparse.Namespace) -> int:
    from exporter import packs
    from exporter.cli.scan import facts_named
    from exporter.core.pipeline import Pipeline

    text = options.line if options.line is not None else sys.stdin.buffer.read().decode("utf-8", "backslashreplace")
    if not text.strip():
        print("gpufault explain: nothing to explain; give a line, or a log on stdin", file=sys.stderr)
        return 2
    catalogue = packs.load([Path(d) for d in options.signatures_dir or ()])
    source = _source(text, options.source)
    pipeline = Pipeline(catalogue, utc_offset=-time.timezone)
    lines = text.splitlines() if options.line is None else [text]
    for out in (_stages(lines, source, pipeline), _causes(text, source, catalogue, facts_named(options.facts))):
        for shown in out:
            print(shown)
    return 0


def _source(text: str, asked: Literal["job", "kernel", "auto"]) -> SourceKind:
    from exporter.core.decode import looks_like_kernel

    if asked != "auto":
        return asked
    return "kernel" if looks_like_kernel(text.split("\n", 1)[0].encode()) else "job"


def _stages(lines: Sequence[str], source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    """What happens to each line that a gate occurs in; a single line is told of in any case."""
    from exporter.core.decode import Clock, decode
    from exporter.scan.plan import form_of

    raws = [line.encode("utf-8", "backslashreplace") for line in lines]
    form = form_of([raw for raw in raws if raw.strip()], source)
    yield f"read as  {source} log, {form}"
    for number, raw in enumerate(raws, 1):
        gates = pipeline.matcher.gates[source]
        hits = {gate for _, gate in pipeline.engine_for(source).scan(raw) if gate < len(gates)}
        if not hits and len(lines) > 1:
            continue
        record = decode(raw, form, source, Clock(time.time()))
        yield f"line {number}   {record.text[:160]}"
        fields = {"time": record.time, "rank": record.rank, "host": record.host, "device": record.device}
        told = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
        if told:
            yield f"  prefix   {told}"
        if not hits:
            yield "  gates    none: no signature's required literal occurs in it, so no pattern was tried"
            yield from _nearest(record.text, source, pipeline)
            continue
        literals = sorted(gates[gate].literal.decode() for gate in hits)
        yield f"  gates    {', '.join(map(repr, literals))}"
        other: SourceKind = "kernel" if source == "job" else "job"
        rules = pipeline.matcher.tried_under(hits, source)
        there = {gate for _, gate in pipeline.engine_for(other).scan(raw)}
        for rule in pipeline.matcher.tried_under(there, other):
            if rule not in rules:
                yield f"  -        {rule.id}: counts only in {other} logs"
        block = "\n".join([record.text, *lines[number : number + 11]])
        for rule in rules:
            seen = "\n".join(block.split("\n")[: rule.lines])
            for verdict in pipeline.matcher.judge(seen, [rule], source):
                yield from _verdict(verdict)


def _verdict(verdict: Verdict) -> Iterator[str]:
    rule = verdict.rule
    told = {
        "matched": f"matches /{_short(verdict.by)}/",
        "no pattern": "none of its patterns matches",
        "unless": f"matches, but so does its `unless` /{_short(verdict.by)}/",
        "echo": f"matches, but the line only quotes it (echo {verdict.by})",
        "yields": f"matches, but yields to {verdict.by}",
        "timeout": "ran out of time",
        "off": "is switched off after time-outs",
    }
    yield f"  {'+' if verdict.outcome == 'matched' else '-'}        {rule.id}: {told[verdict.outcome]}"
    if verdict.outcome == "matched" and verdict.found:
        for name, value in verdict.found.captures.items():
            yield f"             {name} = {value}"


def _short(pattern: str) -> str:
    """A pattern as one line; `gpufault signatures show ID` has it whole."""
    line = " ".join(pattern.split())
    return line if len(line) <= 120 else line[:119] + "…"


def _nearest(text: str, source: SourceKind, pipeline: Pipeline) -> Iterator[str]:
    """The gate that is most like some part of the text: a wording that changed shows up here."""
    import difflib

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


def _causes(text: str, source: SourceKind, catalogue: Catalogue, facts: Mapping[str, str]) -> Iterator[str]:
    """Incidents of the whole text, and every cause that could explain each root."""
    from exporter.core.casebook import Casebook
    from exporter.core.diagnose import assess, view_of
    from exporter.core.pipeline import Pipeline
    from exporter.core.promises import run_text

    processed = run_text(Pipeline(catalogue, utc_offset=-time.timezone), text, source)
    casebook = Casebook(catalogue, "explain", window=60.0, settle=0.0, live=False)
    casebook.add(processed.matches)
    diagnoses = casebook.settle(0.0, lambda _: facts, everything=True)
    roots = {d.id: d for d in diagnoses if d.role == "root"}
    incidents = casebook.incidents()
    for diagnosis in diagnoses:
        incident = diagnosis.incident
        yield ""
        if diagnosis.caused_by:
            yield f"incident {incident.signature}: a consequence of {roots[diagnosis.caused_by].incident.signature}"
            continue
        yield f"incident {incident.signature}, {incident.lines} lines: root cause {diagnosis.root_cause} ({diagnosis.verdict})"
        near = [i for i in incidents if i.key != incident.key]
        for assessment in assess(incident.signature, view_of(incident, near, facts), catalogue):
            yield from _assessment(assessment, chosen=assessment.cause.id == diagnosis.root_cause)
        if diagnosis.remediation:
            yield f"  do       {' '.join(diagnosis.remediation.split())}"


def _assessment(assessment: Assessment, *, chosen: bool) -> Iterator[str]:
    mark = ">" if chosen else MARKS[assessment.truth]
    yield f"  {mark} {assessment.cause.id}: {assessment.truth}, evidence grade {assessment.cause.strength}"
    for leaves in (assessment.held, assessment.failed, assessment.undetermined):
        for leaf in leaves:
            yield f"      {MARKS[leaf.truth]} {_leaf(leaf)}"
    for leaf in assessment.supports:
        yield f"      + supported by {_leaf(leaf)}"
    for leaf in assessment.against:
        yield f"      - speaks against it: {_leaf(leaf)}"


def _leaf(leaf: Leaf) -> str:
    value = f" ({leaf.value}{', from the ' + leaf.origin if leaf.origin else ''})" if leaf.value else ""
    return " ".join(f"{leaf.what} {leaf.asked}".split()) + value + (f": {leaf.why}" if leaf.why else "")
