"""No text makes a built-in pattern take many steps: hostile texts for each, and a bound that is the same on each machine.

The steps are those of a plain backtracking matcher, of which `regex` takes some 10 ns each and skips most. A text is as
long as the longest that is searched; it repeats the pattern's literals, a piece of one of its examples or near misses, or two
of them in turn, cut off or not, and holds what the pattern requires.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import regex

from exporter.config import packs
from exporter.core.authoring.lint import repetitive
from exporter.core.catalogue.pack_types import Patterned
from exporter.core.matching.rules import MAX_TEXT, longest_text
from exporter.core.patterns.required_literals import Needs, needs
from exporter.core.patterns.syntax import FLAGS, literal_runs
from tests.support.backtracker import MOST_STEPS, Backtracker, TooManySteps

LENGTHS = (1, 1, 2, 3, 5, 8, 13, 21)  # of what is repeated
# What a hostile job wrote when patterns saw 16 KiB.
KNOWN = [
    "CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink " + "error d" * 2328 + "etected during the execution",
    "torch.AcceleratorError: CUDA error:" + "error:" * 2500,
    "RuntimeError: CUDA error: an illegal memory access was enc" + "'" * 16_000,
    "hipAa " * 400,
    "[PG " * 600,
    "\n" * 2048,
]


@pytest.fixture(scope="module")
def items() -> list[Patterned]:
    catalogue = packs.load(whole=True)
    return [*catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes, *catalogue.echoes]


def patterns_of(item: Patterned) -> list[str]:
    return sorted({*item.patterns, *item.unless})


def longest(item: Patterned, required: Needs) -> int:
    """The characters of the longest text that a pattern is searched in."""
    return longest_text(1 if required.one_line else item.lines)


def with_needs(text: str, required: Needs, length: int) -> str:
    """A text with what a pattern requires at its end: in one without, it is not searched for."""
    held = text.lower() if required.ignore_case else text
    missing = [literals[0] for literals in required.sets if not any(literal in held for literal in literals)]
    end = "".join(f" {literal}" for literal in missing)
    return text[: length - len(end)] + end


def hostile(item: Patterned, pattern: str, chance: random.Random, mutations: int) -> Iterator[str]:
    required = needs(pattern)
    length = longest(item, required)
    literals = literal_runs(pattern)
    texts = [repetitive(literals, length), repetitive(literals, length // 2) * 2, chance.choice(" 0a") * length]
    samples = [one.text for one in (*item.examples, *item.near_misses)] or [pattern]
    for _ in range(mutations):
        text, other = chance.choice(samples), chance.choice(samples)
        start = chance.randrange(len(text))
        stop = start + chance.choice(LENGTHS)
        piece = text[start:stop]
        if chance.random() < 0.3:
            at = chance.randrange(len(other))
            piece += other[at : at + chance.choice(LENGTHS)]
        end = text[stop:] if chance.random() < 0.6 else ""
        texts.append(text[:stop] + piece * (MAX_TEXT // len(piece)) + end)
    for text in texts:
        yield with_needs(text, required, length)


def assert_few_steps(pattern: str, text: str, matcher: Backtracker) -> None:
    try:
        matcher.find(text, MOST_STEPS)
    except TooManySteps:
        pytest.fail(f"over {MOST_STEPS:,} steps: {pattern!r} in {text[:80]!r}…{text[-80:]!r}")


@pytest.mark.heavy
@pytest.mark.parametrize("text", KNOWN, ids=lambda text: repr(text[:32]))
def test_no_known_text_is_slow(text: str, items: list[Patterned]) -> None:
    for item in items:
        for pattern in patterns_of(item):
            required = needs(pattern)
            if all(any(literal in text for literal in literals) for literals in required.sets):
                assert_few_steps(pattern, text[: longest(item, required)], Backtracker(pattern))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1))
def test_no_built_in_pattern_takes_many_steps_on_any_text(seed: int, items: list[Patterned]) -> None:
    chance = random.Random(seed)
    for item in items:
        for pattern in patterns_of(item):
            matcher = Backtracker(pattern)
            for text in hostile(item, pattern, chance, mutations=1):
                assert_few_steps(pattern, text, matcher)


@pytest.mark.heavy
def test_the_counting_matcher_finds_what_regex_finds(items: list[Patterned]) -> None:
    for item in items:
        texts = [*(one.text for one in item.examples[:2]), *(one.text for one in item.near_misses[:1])]
        for pattern in patterns_of(item):
            matcher = Backtracker(pattern)
            for text in texts:
                found = regex.search(pattern, text, FLAGS)
                assert matcher.find(text, MOST_STEPS)[0] == (found and found.span()), pattern


def test_a_slow_pattern_is_found() -> None:
    with pytest.raises(TooManySteps):
        Backtracker("fault: .*a.*b").find("fault: a" * 256, MOST_STEPS)
