"""How much of a crash line is sensitive: the rest may differ from line to line of a flood."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.matching import verdict_cache
from exporter.core.matching.match_result import NeedsMoreLines
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.verdict_cache import ANALYSE_AFTER
from exporter.core.model import SourceKind
from exporter.core.patterns.masks import NONE_SENSITIVE, masked
from tests.support.matches import Tail, catalogue_of


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (
            "job",
            "Memory access fault by GPU node-1 (Agent handle: 0x55c4d8e0) on address 0x7f5c5fc0d000. Reason: x",
            "",
        ),
        ("kernel", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "79"),
    ],
)
def test_few_runs_of_a_crash_line_are_sensitive(source: SourceKind, text: str, expected: str) -> None:
    """Else the cache saves nothing."""
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.for_gates(pipeline.engine_for(source).scan(text.encode()).gates, source)
    more = evaluator.lines > 1
    result, _ = evaluator.rules.evaluate((text,), more=more)
    sensitive, _ = evaluator.rules.sensitive_runs((text,), result, NONE_SENSITIVE, more=more)
    masked_text = masked(text.encode())
    assert masked_text
    assert not sensitive.lengths
    assert "".join(masked_text.runs[run].decode() for run in sensitive.characters) == expected


def test_lines_after_a_block_are_not_searched_for_what_stands_inside_it() -> None:
    """Else each line of another GPU that may follow makes a verdict of its own."""
    head = "amdgpu 0000:{}:00.0: amdgpu:"
    fault = (
        f"{head} [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:7, for process python pid 9 thread python pid 9)"
    )
    page = f"{head}   in page starting at address 0x00007f3b2c000000 from client 0x1b (UTCL2)"
    text, *following = fault.format("03"), page.format("03"), fault.format("c1"), page.format("c1"), "audit: type=1400"
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.for_gates(pipeline.engine_for("kernel").scan(text.encode()).gates, "kernel")
    result = evaluator.evaluate(text, lambda: following)
    assert result.block == f"{text}\n{following[0]}"
    assert [match.capture("address", result.block) for match in result.matches] == ["0x00007f3b2c000000"]


def test_a_text_without_runs_is_analysed_too() -> None:
    """Else the lines behind each such line are decoded."""
    text = "hipErrorInvalidDeviceFunction: invalid device function"
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.for_gates(pipeline.engine_for("job").scan(text.encode()).gates, "job")
    masked_text = masked(text.encode())
    assert masked_text
    assert not masked_text.runs
    for _ in range(ANALYSE_AFTER):
        evaluator.evaluate(text, lambda: ["step"])
    cached = evaluator.cached(masked_text, more=True)
    assert cached
    assert isinstance(cached.result, NeedsMoreLines)
    assert cached.result.alone


def test_no_line_behind_a_signature_is_asked_for_a_shape() -> None:
    pipeline = Pipeline(
        catalogue_of("""
signatures:
  - {id: gpu_fault, patterns: ['GPU fault(?:\\n  on ring (?P<ring>\\w+))?'], lines: 2}
crash_shapes:
  - {id: shape, kind: c++, patterns: ['GPU fault(?:\\n  of process (?P<name>\\w+))?'], lines: 2}
"""),
        engine="python",
    )
    evaluator = pipeline.evaluators.for_gates(pipeline.engine_for("job").scan(b"GPU fault").gates, "job")
    result, _ = evaluator.rules.evaluate(("GPU fault",), more=True)
    assert isinstance(result, NeedsMoreLines)
    assert result.in_next.exact == (b"on ring",)


@pytest.mark.parametrize("lengths", [(2, 3, 2), (3, 1, 2), (1, 12, 3)])
def test_a_cached_crash_without_a_signature_has_its_words_where_they_stand(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_cache, "ANALYSE_AFTER", 2)
    tail, numbers = Tail(Pipeline(packs.load())), ["123456789012"[:length] for length in lengths]
    tail.offer(b"".join(b"node n%s has been marked dead\n" % number.encode() for number in numbers), "final")
    assert {match.captures["type"] for match in tail.matches} == {"has been marked dead"}
