"""How much of a crash line is looked at: what is not, may differ from line to line of a flood."""

from __future__ import annotations

import pytest

from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import SourceKind
from exporter.core.patterns.masks import NOTHING, masked


@pytest.mark.parametrize(
    ("source", "text", "looked"),
    [
        (
            "job",
            "Memory access fault by GPU node-1 (Agent handle: 0x55c4d8e0) on address 0x7f5c5fc0d000. Reason: x",
            "",
        ),
        ("kernel", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "79"),
    ],
)
def test_of_a_crash_line_few_runs_are_looked_at(source: SourceKind, text: str, looked: str) -> None:
    """Else nothing is gained by looking."""
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.under(pipeline.engine_for(source).scan(text.encode()).gates, source)
    more = evaluator.lines > 1
    seen, _ = evaluator._looked((text,), evaluator._of((text,), more=more), NOTHING, more=more)
    found = masked(text.encode())
    assert found
    assert not seen.sized
    assert "".join(found.runs[run].decode() for run in seen.kept) == looked


def test_lines_behind_a_block_are_not_looked_at_for_what_stands_within_it() -> None:
    """Else each line of another GPU that may follow makes a verdict of its own."""
    head = "amdgpu 0000:{}:00.0: amdgpu:"
    fault = (
        f"{head} [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:7, for process python pid 9 thread python pid 9)"
    )
    page = f"{head}   in page starting at address 0x00007f3b2c000000 from client 0x1b (UTCL2)"
    text, *behind = fault.format("03"), page.format("03"), fault.format("c1"), page.format("c1"), "audit: type=1400"
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.under(pipeline.engine_for("kernel").scan(text.encode()).gates, "kernel")
    shown = evaluator.shown(text, lambda: behind)
    assert shown.block == f"{text}\n{behind[0]}"
    assert [one.capture("address", shown.block) for one in shown.found] == ["0x00007f3b2c000000"]
