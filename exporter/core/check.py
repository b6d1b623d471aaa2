"""What a pack promises about itself, put to the test: each example is matched, each near miss is not.

Runs the real pipeline with both engines, so a gate that misses an example is found here and not on a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.core.catalogue import Catalogue
from exporter.core.model import Chunk, Match, SourceKind
from exporter.core.pipeline import Pipeline, Processed
from exporter.core.signatures import CrashShape, Echo, LogFact, Patterned, Signature


@dataclass(frozen=True, slots=True)
class Broken:
    """One promise that does not hold."""

    id: str
    text: str
    what: str

    def __str__(self) -> str:
        return f"{self.id}: {self.what}\n    {self.text.strip()[:300]}"


def broken_promises(catalogue: Catalogue) -> Iterator[Broken]:
    """Every example that is not matched as promised, and every near miss that is matched."""
    pipelines = [Pipeline(catalogue, engine="hyperscan"), Pipeline(catalogue, engine="python")]
    items: list[Patterned] = [*catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes]
    for item in items:
        for pipeline in pipelines:
            yield from _examples(pipeline, item)
            yield from _near_misses(pipeline, item)
    yield from _echoes(pipelines[0], catalogue)


def _examples(pipeline: Pipeline, item: Patterned) -> Iterator[Broken]:
    if not item.examples:
        yield Broken(item.id, "", "has no example; add one as its emitter prints it")
    if not item.near_misses and not isinstance(item, LogFact):
        yield Broken(item.id, "", "has no near miss; add a text that looks alike and must not match")
    for example in item.examples:
        text = example.text
        shown, captures = _shown(pipeline, item, text)
        if not shown:
            yield Broken(item.id, text, f"example is not matched by the {pipeline.engine.name} engine")
        for name, value in example.captures.items():
            if captures.get(name) != value:
                yield Broken(item.id, text, f"capture {name} is {captures.get(name)!r}, not {value!r}")


def _near_misses(pipeline: Pipeline, item: Patterned) -> Iterator[Broken]:
    for near_miss in item.near_misses:
        if _shown(pipeline, item, near_miss.text)[0]:
            yield Broken(item.id, near_miss.text, f"near miss is matched by the {pipeline.engine.name} engine")


def _echoes(pipeline: Pipeline, catalogue: Catalogue) -> Iterator[Broken]:
    echoes: list[Echo] = list(catalogue.echoes)
    for echo in echoes:
        for example in echo.examples:
            if pipeline.matcher.echo(example.text) != echo.id:
                yield Broken(echo.id, example.text, f"is taken as {pipeline.matcher.echo(example.text) or 'no echo'}")
        for near_miss in echo.near_misses:
            if pipeline.matcher.echo(near_miss.text):
                yield Broken(echo.id, near_miss.text, "near miss is taken for an echo")


def _shown(pipeline: Pipeline, item: Patterned, text: str) -> tuple[bool, dict[str, str]]:
    """Whether some line of `text` shows the item, and what it captured."""
    for source in item.sources:
        processed = run_text(pipeline, text, source)
        if isinstance(item, Signature):
            matches: list[Match] = [m for m in processed.matches if m.signature == item.id]
            if matches:
                return True, {k: v for m in reversed(matches) for k, v in m.captures.items()}
        elif isinstance(item, CrashShape):
            if processed.unmatched:
                return True, {}
        else:
            facts = dict(pipeline.context_of(_LOG).facts)
            if facts:
                return True, facts
    return False, {}


_LOG = "check"


def run_text(pipeline: Pipeline, text: str, source: SourceKind) -> Processed:
    """One text through the pipeline as a log of its own, kernel text in any of its written forms."""
    pipeline.forget(_LOG)
    data = text.encode() if text.endswith("\n") else text.encode() + b"\n"
    return pipeline.process(
        Chunk(
            log=_LOG,
            origin=_LOG,
            path=_LOG,
            source=source,
            format="plain",
            offset=0,
            line=1,
            data=data,
            read_at=0.0,
            end="final",
        )
    )
