"""Example checks: each example of a pack must match, each near miss must not.

They run the real pipeline, so missed gates are found here, not on a node. `lint` checks the rest of a pack.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_files import PackFile
from exporter.core.catalogue.pack_types import MAX_LINES, CrashShape, Echo, LogFact, Patterned, Signature
from exporter.core.decoding import formats
from exporter.core.decoding.prefixes import Clock
from exporter.core.matching.pipeline import Pipeline, Processed
from exporter.core.matching.rules import Outcome, Verdict
from exporter.core.model import Chunk, LogFormat, SourceKind
from exporter.core.patterns import required_literals
from exporter.core.text.problems import Loc, Problem

EngineName = Literal["auto", "hyperscan", "python"]
BOTH: tuple[EngineName, ...] = ("hyperscan", "python")
_LOG = "promise"
# Of several lines, the one with the furthest outcome explains a failure.
_FURTHEST: tuple[Outcome, ...] = ("matched", "yields", "echo", "mid-message", "unless", "timeout", "off", "no pattern")


@dataclass(frozen=True, slots=True)
class FailedExample:
    """One failed example: its item, location and engines, and the signatures that its text shows.

    `taken_by` is the signature or echo that counts instead.
    """

    item: Patterned
    problem: Problem
    text: str
    engines: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    taken_by: str = ""


@dataclass(frozen=True, slots=True)
class _Shown:
    """Whether a text shows an item, with its captures and all signatures."""

    shown: bool
    captures: Mapping[str, str]
    signatures: tuple[str, ...]


def failed_examples(
    files: Iterable[PackFile], catalogue: Catalogue, engines: Sequence[EngineName] = BOTH
) -> Iterator[FailedExample]:
    """Every example that does not match, and every near miss that does."""
    pipelines = [Pipeline(catalogue, engine=engine) for engine in engines]
    for file in files:
        for loc, item in file.items():
            if isinstance(item, Patterned):
                broken = [*_examples(pipelines, file, loc, item), *_near_misses(pipelines, file, loc, item)]
                yield from _shadowed(file, loc, item, broken) or broken


def check_examples(files: Iterable[PackFile]) -> tuple[int, int]:
    """The numbers of examples and near misses in packs."""
    items = [item for file in files for _, item in file.items() if isinstance(item, Patterned)]
    return sum(len(item.examples) for item in items), sum(len(item.near_misses) for item in items)


def _shadowed(file: PackFile, loc: Loc, item: Patterned, broken: Sequence[FailedExample]) -> list[FailedExample]:
    """One problem for a signature whose examples all count for others."""
    takers = sorted({b.taken_by for b in broken if b.taken_by})
    if not takers or sum(bool(b.taken_by) for b in broken) < len(item.examples):
        return []
    message = (
        f"{item.id} never counts: {', '.join(takers)} takes each of its examples; narrow that one, or remove it from "
        "`yields_to`"
    )
    return [replace(broken[0], problem=file.document.problem((*loc, "id"), message), shows=tuple(takers))]


def _examples(pipelines: Sequence[Pipeline], file: PackFile, loc: Loc, item: Patterned) -> Iterator[FailedExample]:
    for index, example in enumerate(item.examples):
        here = (*loc, "examples", index)
        results = {pipeline.engine.name: _shown(pipeline, item, example.text) for pipeline in pipelines}
        missing = tuple(name for name, result in results.items() if not result.shown)
        if missing:
            why, taken_by = _why(pipelines[0], item, example.text)
            problem = file.document.problem(here, f"example does not match {item.id}: {why}")
            yield FailedExample(item, problem, example.text, missing, results[missing[0]].signatures, taken_by)
            continue
        for name, value in example.captures.items():
            if wrong := tuple(e for e, result in results.items() if result.captures.get(name) != value):
                got = results[wrong[0]].captures.get(name)
                actual = "missing" if got is None else repr(got)
                message = f"capture {name} is {actual}, not {value!r}; fix the group's pattern, or the example"
                problem = file.document.problem((*here, "captures", name), message)
                yield FailedExample(item, problem, example.text, wrong, results[wrong[0]].signatures)


def _near_misses(pipelines: Sequence[Pipeline], file: PackFile, loc: Loc, item: Patterned) -> Iterator[FailedExample]:
    for index, near_miss in enumerate(item.near_misses):
        results = {pipeline.engine.name: _shown(pipeline, item, near_miss.text) for pipeline in pipelines}
        if wrong := tuple(name for name, result in results.items() if result.shown):
            by = _furthest(pipelines[0], item, near_miss.text)
            pattern = f" by patterns[{item.patterns.index(by.by)}]" if by and by.by in item.patterns else ""
            message = f"near miss is matched{pattern}; narrow the pattern, or exclude the line with `unless`"
            problem = file.document.problem((*loc, "near_misses", index), message)
            yield FailedExample(item, problem, near_miss.text, wrong, results[wrong[0]].signatures)


def _shown(pipeline: Pipeline, item: Patterned, text: str) -> _Shown:
    """What a text shows, in the first kind of log that shows the item."""
    if isinstance(item, Echo):
        taken_as = pipeline.matcher.echo(text)
        return _Shown(taken_as == item.id, {}, (taken_as,) if taken_as else ())
    if isinstance(item, CrashShape) and (not item.kind or item.needs_report):
        furthest = _furthest(pipeline, item, text)
        return _Shown(furthest is not None and furthest.outcome == "matched", {}, ())
    signatures: tuple[str, ...] = ()
    for source in item.sources:
        processed = run_text(pipeline, text, source)
        signatures = tuple(dict.fromkeys(match.signature for match in processed.matches))
        if isinstance(item, Signature) and item.id in signatures:
            matches = [match for match in processed.matches if match.signature == item.id]
            return _Shown(True, {k: v for m in reversed(matches) for k, v in m.captures.items()}, signatures)
        if isinstance(item, CrashShape) and processed.unmatched:
            return _Shown(True, {}, ())
        if isinstance(item, LogFact):
            facts = pipeline.context_of(_LOG).facts
            if any(name in facts or ("{" in name and facts) for name in item.set):
                return _Shown(True, facts, ())
    return _Shown(False, {}, signatures)


def _why(pipeline: Pipeline, item: Patterned, text: str) -> tuple[str, str]:
    """Why a text does not show an item, with advice; and what took it instead."""
    if isinstance(item, Echo):
        other = pipeline.matcher.echo(text)
        if other:
            return f"it matches {other}, which comes first; narrow that one, or move the example there", other
        return "none of its patterns matches; fix a pattern or the example", ""
    verdict = _furthest(pipeline, item, text)
    if verdict is None:
        literals = sorted({gate.literal.decode() for p in item.patterns for gate in required_literals.derive(p)})
        shown = ", ".join(map(repr, literals[:4])) + (", …" if len(literals) > 4 else "")
        return f"no line contains a required literal ({shown}); fix a pattern or the example", ""
    advice = {
        "matched": "it follows another program's tag, or counts for another rule; remove the tag",
        "yields": f"{verdict.by} takes it, to which it yields; narrow that one, or remove it from `yields_to`",
        "echo": f"echo {verdict.by} matches it as a quote; write it as its emitter prints it, or narrow the echo",
        "mid-message": "it is inside a kernel message, where user text may be; begin where the message begins",
        "unless": f"its own `unless` /{verdict.by}/ excludes it; narrow that",
        "timeout": "a pattern ran out of time; narrow its loops",
        "off": "a pattern ran out of time; narrow its loops",
        "no pattern": "none of its patterns matches; fix a pattern or the example",
    }
    return advice[verdict.outcome], verdict.by if verdict.outcome in ("yields", "echo") else ""


def _furthest(pipeline: Pipeline, item: Patterned, text: str) -> Verdict | None:
    """What the item's rule says to the line of a text that comes furthest; None where no gate leads to the rule."""
    verdicts_of_item: list[Verdict] = []
    lines = text.splitlines()
    clock = Clock(0.0)
    for source in item.sources:
        records = [formats.decode(line.encode(), "plain", source, clock).text for line in lines]
        for number, line in enumerate(lines):
            hit = pipeline.engine_for(source).scan(line.encode()).gates
            verdicts = pipeline.evaluators.trace(hit, records[number : number + MAX_LINES], source)
            verdicts_of_item += [verdict for verdict in verdicts if verdict.rule.id == item.id]
    return min(verdicts_of_item, key=lambda v: _FURTHEST.index(v.outcome), default=None)


def run_text(pipeline: Pipeline, text: str, source: SourceKind, form: LogFormat = "plain") -> Processed:
    """One text through the pipeline as a log of its own, kernel text in any of its written forms."""
    pipeline.forget(_LOG)
    data = text.encode() if text.endswith("\n") else text.encode() + b"\n"
    return pipeline.process(
        Chunk(
            log=_LOG,
            origin=_LOG,
            path=_LOG,
            source=source,
            format=form,
            offset=0,
            line=1,
            data=data,
            read_at=0.0,
            end="final",
        )
    )
