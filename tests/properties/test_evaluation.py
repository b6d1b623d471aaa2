"""The short cuts that a flood of lines takes give the answers of the full evaluation."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import packs
from exporter.core.matching.evaluate import RuleSet
from exporter.core.matching.evaluators import Evaluator
from exporter.core.matching.match_result import MatchResult
from exporter.core.matching.rules import Matcher, RuleMatch, search
from exporter.core.matching.verdict_cache import ANALYSE_AFTER
from exporter.core.model import SourceKind
from exporter.core.patterns.expression import TRIES, Expression
from exporter.core.patterns.syntax import FLAGS
from tests.support.matches import catalogue_of

# Patterns and texts of one small alphabet, so that they meet; the hazards are what PCRE and regex read differently.
PATTERNS = [
    "GPU fault", r"fault at 0x\w+", r"(?i)gpu fault", r"\AGPU", r"fault$", r"fault\Z", r"^at", r"\bat\b", r"\s+0x", r"\S 1",
    r"fault(?! at)", r"(?<=GPU )fault", r"(?P<a>\w)(?P=a)", r"(?>GPU|at) ", r"GPU ++fault", r"[^\s\d]{3}\d", r"Xid \d+: 7[0-9]",
    r"[1-3]{2}", r"(?:at|fault){e<=1}", r"❯ \S", r"(?i)K", r"a.t", r"\w+\W\w+", ": 79", r"\b79\b", r"x?\d{2}3", r"(?:1|at )2",
    "fault\nat", r"\n^$", r"(?x) GPU \  fault # x",
]  # fmt: skip
WORDS = [
    "GPU",
    " ",
    "fault",
    " at ",
    "0x7f",
    "0x12",
    "1",
    "23",
    "7912",
    ": 79",
    "79",
    ":",
    "Xid 79: 79",
    "\n",
    "\x1c",
    "\x85",
    "❯",
    "é",
    "K",
    "k",
    "\t",
    "٣",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


@given(st.sampled_from(PATTERNS), TEXTS)
def test_what_a_pattern_needs_rules_out_no_text_that_it_is_found_in(pattern: str, text: str) -> None:
    found, plain = EXPRESSIONS[pattern].find(text), regex.search(pattern, text, FLAGS)
    assert (found and found.span()) == (plain and plain.span())


EXPRESSIONS = {pattern: Expression(pattern) for pattern in PATTERNS}


# The evaluator and a plain search


def judged(matcher: Matcher, text: str, behind: list[str], source: SourceKind) -> MatchResult:
    """The plain rule: search for each, drop what yields to another, then what only quotes an error."""
    found, mid_message = [], False
    for rule in (rule for rule in matcher.rules if source in rule.sources):
        block = "\n".join([text, *behind[: rule.lines - 1]])
        outcome, _, one = search(rule, block, source, matcher.quarantine, len(text))
        found += [one] if one else []
        mid_message = mid_message or (outcome == "mid-message" and rule.lines == 1 and rule.kind != "shape")
    ids = {one.rule.id for one in found}
    kept = [one for one in found if not one.rule.yields_to & ids]
    signatures = [one for one in kept if one.rule.kind == "signature"]
    shapes = sorted((one for one in kept if one.rule.kind == "shape"), key=lambda one: one.rule.id)
    shapes.sort(
        key=lambda one: (not one.rule.ends_process, one.rule.needs_report, not one.rule.crash, one.rule.in_traceback)
    )
    crash = shapes[0] if shapes and not signatures else None
    echo = (bool(signatures) or crash is not None) and source == "job" and bool(matcher.echo(text))
    return MatchResult(
        tuple(one for one in kept if one.rule.kind == "fact" or (one.rule.kind == "signature" and not echo)),
        echo or (mid_message and not signatures and crash is None),
        None if echo else crash,
        "\n".join([text, *behind]),
    )


def told(shown: MatchResult, text: str) -> tuple[object, ...]:
    def of(one: RuleMatch) -> tuple[object, ...]:
        return (one.rule.id, one.start, one.captures(shown.block or text))

    return (sorted(map(of, shown.matches), key=repr), shown.echo, shown.crash and shown.crash.rule.id)


MATCHER = Matcher(
    catalogue_of(r"""
signatures:
  - {id: gpu_fault, patterns: ['GPU fault(?: at (?P<address>0x\w+))?'], unless: ['fault at 0x12'], yields_to: [xid_79]}
  - {id: xid_79, patterns: ['Xid (?P<number>79): (?P<step>\d+)']}
  - {id: xid_other, patterns: ['Xid (?P<number>\d+)'], yields_to: ['xid_7*']}
  - {id: fault_block, lines: 2, patterns: ['fault(?P<more>.*)\nXid'], yields_to: [gpu_fault]}
  - {id: fault_pair, lines: 3, patterns: ['fault.*\n.*fault']}
log_facts: [{id: fact_step, patterns: ['fault at (?P<step>\w+)'], set: {step: '{step}'}}]
crash_shapes: [{id: any_fault, patterns: ['fault']}]
echoes: [{id: typed, patterns: ['\A❯ ', '\A\d+: ', '"']}]
""")
)
EVALUATOR = Evaluator(RuleSet([r for r in MATCHER.rules if "job" in r.sources], MATCHER, "job"))
LINES = TEXTS.map(lambda text: text.replace("\n", " "))


@given(LINES, st.lists(LINES, max_size=2))
def test_an_evaluation_agrees_with_a_plain_search_for_each_rule(text: str, behind: list[str]) -> None:
    assert told(EVALUATOR.evaluate(text, lambda: behind), text) == told(judged(MATCHER, text, behind, "job"), text)


@pytest.mark.heavy
@pytest.mark.parametrize("source", ["job", "kernel"])
def test_a_cached_result_of_each_built_in_example_is_that_of_a_plain_search(source: SourceKind) -> None:
    catalogue = packs.load(whole=True)
    matcher = Matcher(catalogue)
    items = [*catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes, *catalogue.echoes]
    rules = [rule for rule in matcher.rules if source in rule.sources]
    evaluator = Evaluator(RuleSet(rules, matcher, source))
    for number in range(ANALYSE_AFTER):
        evaluator.evaluate(f"line {number}", lambda: ())
    for item in items:
        for example in (*item.examples, *item.near_misses):
            text, *behind = example.text.rstrip("\n").split("\n")
            expected = told(judged(matcher, text, behind, source), text)
            for _ in range(2):  # as it comes first, and as it is remembered
                shown = evaluator.evaluate(text, lambda behind=behind: behind)  # type: ignore[misc]
                assert told(shown, text) == expected


@pytest.mark.parametrize("search", range(4))
def test_what_ran_out_of_time_is_not_remembered(search: int) -> None:
    """The last line before it is known which digits matter is judged twice, and the second time for all that follow."""
    matcher = Matcher(
        catalogue_of("signatures: [{id: gpu_fault, lines: 2, patterns: ['GPU fault'], unless: ['a test']}]")
    )
    (rule,) = matcher.rules
    evaluator = Evaluator(RuleSet([rule], matcher, "job"))
    for number in range(100, 100 + ANALYSE_AFTER - 1):
        assert evaluator.evaluate(f"GPU fault {number}", lambda: ["and on"]).matches
    (pattern,) = rule.patterns
    compiled = pattern._compiled
    assert compiled
    tries = itertools.count()

    def run_out_once(text: str, **how: Any) -> regex.Match[str] | None:
        if search <= next(tries) < search + TRIES:
            raise TimeoutError
        return compiled.search(text, **how)

    pattern._compiled = Mock(search=run_out_once)
    evaluator.evaluate("GPU fault 228", lambda: ["and on"])
    pattern._compiled = compiled
    for number in range(229, 999):
        assert evaluator.evaluate(f"GPU fault {number}", lambda: ["and on"]).matches


@pytest.mark.heavy
def test_no_built_in_pattern_is_ruled_out_of_a_text_that_it_is_found_in() -> None:
    catalogue = packs.load(whole=True)
    items = [*catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes, *catalogue.echoes]
    for item in items:
        texts = [example.text for example in (*item.examples, *item.near_misses)]
        for pattern in (*item.patterns, *item.unless):
            expression = Expression(pattern)
            for text in texts:
                assert bool(expression.find(text)) == bool(regex.search(pattern, text, FLAGS))
