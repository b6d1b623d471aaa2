"""Ordinary lines are not looked at: none of the literals of all patterns is in them, whatever program writes them."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from exporter.config import packs
from exporter.core.decoding.lines import candidates
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import SourceKind

sys.path.append(str(Path(__file__).resolve().parents[3]))

from benchmarks.ordinary import OF_JOBS, OF_KERNELS

MOST = 0.01  # of the lines; each costs as much as 10 kB without one
SOURCES: dict[str, SourceKind] = {**dict.fromkeys(OF_JOBS, "job"), **dict.fromkeys(OF_KERNELS, "kernel")}


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline(packs.load())


@pytest.mark.parametrize(("kind", "source"), SOURCES.items())
def test_few_lines_of_an_ordinary_log_hold_a_literal(kind: str, source: SourceKind, pipeline: Pipeline) -> None:
    dice, line = random.Random(1), (OF_JOBS | OF_KERNELS)[kind]
    lines = [line(number, dice) for number in range(20 if kind == "lines of 400 kB" else 2000)]
    log = "\n".join(lines).encode()
    hits = pipeline.engine_for(source).scan(log)
    literals = {
        pipeline.matcher.gates[source][gate] for gate in hits.gates if gate < len(pipeline.matcher.gates[source])
    }
    assert len(list(candidates(log, hits, len(log)))) <= MOST * len(lines), literals


LEVEL = re.compile(r"\b(?:error|exception|fatal|critical|warning|warn|info)\b(?=[\])]?:? )", re.IGNORECASE)


def test_a_painted_level_hides_few_crash_lines(pipeline: Pipeline) -> None:
    examples = [e.text for s in packs.load(whole=True).signatures.values() if "job" in s.sources for e in s.examples]
    engine = pipeline.engine_for("job")

    def is_candidate(text: str) -> bool:
        data = text.encode()
        return any(True for _ in candidates(data, engine.scan(data), len(data)))

    painted = [
        (text, LEVEL.sub(lambda word: f"\x1b[31m{word[0]}\x1b[0m", text))
        for text in examples
        if LEVEL.search(text) and is_candidate(text)
    ]
    hidden = [text for text, colours in painted if not is_candidate(colours)]
    assert len(painted) > 600
    assert len(hidden) <= 0.08 * len(painted), hidden  # where the word is most of what all such lines share
