"""No text makes a built-in pattern take many steps: hostile texts for each, and a bound that is the same on each machine.

The steps are those of a plain backtracking matcher, of which `regex` takes some 10 ns each and skips most. A text is as
long as the longest that is searched; it repeats a literal that the pattern's loops can read, a piece of one of its examples
or near misses, or two of them in turn, cut off or not, and holds what the pattern requires.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import regex

from exporter.config import packs
from exporter.core.catalogue.pack_types import Patterned
from exporter.core.matching.rules import longest_text
from exporter.core.patterns.counting_matcher import MOST_STEPS, Backtracker, TooManySteps
from exporter.core.patterns.required_literals import Needs, needs
from exporter.core.patterns.step_bound import Size, cost, with_needs
from exporter.core.patterns.syntax import FLAGS

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


def longest(item: Patterned, known: Needs) -> Size:
    """The texts that a pattern is searched in."""
    return longest_text(1 if known.one_line else item.lines)


def hostile(item: Patterned, pattern: str, chance: random.Random, mutations: int) -> Iterator[str]:
    known = needs(pattern)
    size = longest(item, known)
    repeated = cost(pattern, size)
    texts = [repeated.text(size.text), repeated.text(size.text // 2) * 2]
    said = [one.text for one in (*item.examples, *item.near_misses)] or [pattern]
    for _ in range(mutations):
        text, other = chance.choice(said), chance.choice(said)
        start = chance.randrange(len(text))
        stop = start + chance.choice(LENGTHS)
        piece = text[start:stop]
        if chance.random() < 0.3:
            at = chance.randrange(len(other))
            piece += other[at : at + chance.choice(LENGTHS)]
        end = text[stop:] if chance.random() < 0.6 else ""
        texts.append(text[:stop] + piece * (size.line // len(piece)) + end)
    for text in texts:
        yield with_needs(text, known, size.text)


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
            known = needs(pattern)
            if all(any(literal in text for literal in literals) for literals in known.sets):
                assert_few_steps(pattern, text[: longest(item, known).text], Backtracker(pattern))


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
