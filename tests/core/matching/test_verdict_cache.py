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
