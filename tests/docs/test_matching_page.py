"""docs/internals/matching.md: its worked example and its list of calls are what the code does."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from exporter.core.matching.evaluate import RuleSet
from exporter.core.matching.evaluators import Evaluator
from exporter.core.matching.rules import Matcher
from exporter.core.patterns.digit_sensitivity import searched
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.masks import NONE_SENSITIVE, SensitiveRuns, masked
from exporter.core.patterns.open_text import OpenText, states_in
from exporter.core.patterns.pattern_walk import walk
from tests.support.matches import catalogue_of

PAGE = (Path(__file__).parents[2] / "docs/internals/matching.md").read_text()
TEXT, PATTERN = "Xid 79: pid 1234", "Xid 79: pid"
TABLES = PAGE.split("| after | certain | possible | tested |\n| --- | --- | --- | --- |\n")[1:]
OPENNESS = [NONE_SENSITIVE, SensitiveRuns(lengths=frozenset({0})), SensitiveRuns(characters=frozenset({0}))]


@pytest.mark.parametrize("step", range(3), ids=["open", "length", "characters"])
def test_each_row_of_the_example_is_the_frontier_after_that_much_of_the_pattern(step: int) -> None:
    rows = TABLES[step].split("\n\n")[0].splitlines()
    assert rows
    for row in rows:
        pattern = row.split("`")[1]
        text = OpenText(TEXT, OPENNESS[step])
        frontier, walker = walk(pattern, text, text.all_starts())
        cells = (", ".join(map(str, states_in(bits))) for bits in (frontier.certain, frontier.possible, walker.tested))
        assert row == f"| `{pattern}` |" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def test_the_example_ends_with_the_characters_of_the_first_run() -> None:
    text = masked(TEXT.encode())
    assert text
    runs = ", ".join(run.decode() for run in text.runs)
    assert f"mask   {text.mask[0].decode('latin-1').replace(chr(255), '·')}\nruns   {runs}\n" in PAGE
    assert searched([Expression(PATTERN)], TEXT) == OPENNESS[-1]
    assert searched([Expression(r"Xid (\d+): pid")], TEXT) == NONE_SENSITIVE


def test_from_a_line_to_the_regular_expression_are_the_six_calls_of_the_page() -> None:
    matcher = Matcher(catalogue_of(f"signatures: [{{id: xid, patterns: ['{PATTERN}']}}]"))
    (rule,) = matcher.rules
    calls: list[str] = []

    def note_calls(_text: str, **_limits: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame and frame.f_code.co_qualname != "Evaluator.evaluate":
            calls.insert(0, frame.f_code.co_qualname)
            frame = frame.f_back

    rule.patterns[0]._compiled = cast("Any", SimpleNamespace(search=note_calls))
    Evaluator(RuleSet([rule], matcher, "job")).evaluate(TEXT, lambda: ())
    listed = PAGE.split("```text\nEvaluator.evaluate\n")[1].split("```")[0].splitlines()
    assert calls == [line.split()[0] for line in listed]
    assert len(calls) <= 6
