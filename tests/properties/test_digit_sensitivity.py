"""A pattern finds the same in all texts of a shape that have the digits in common that it looks at."""

from __future__ import annotations

import random
import re

import pytest
import regex
from hypothesis import example, given, reject
from hypothesis import strategies as st

from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline
from exporter.core.model import SourceKind
from exporter.core.patterns.digit_sensitivity import held, looked_at, places_of, read_from_start, shape_of, widened
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.syntax import FLAGS

ADDRESSES = ["0x0", "0x7f3a", "0xbad", "0x12_34", "0x99", "0xfed0"]
WORDS = ["00ab12", "12bad7f0", "abcdef1", "1234567", "decade"]
PIECES = [
    *ADDRESSES,
    *ADDRESSES,
    *WORDS,
    " ",
    " ",
    ":",
    "(",
    ")",
    "a",
    "bad",
    "fed ",
    "at ",
    "7",
    "12",
    "x",
    "_",
    "0x",
    "0xg",
    "node7",
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
ATOMS = ["a", "b", "d", "0", "7", "x", "0x", "bad", " ", ":", "at", "dead ", ".", "[0-9a-f]", "[a-f]", "[^ ]", "[^a]",
         r"\d", r"\w", r"\D", r"\S", r"\s", r"\b", r"\B", "^", "$", r"\A", r"\Z", r"(?=\d)", r"(?!a)",
         r"(?!0x[0-9a-f]+)", r"(?<=x)", r"(?<!\d)", r"(?<=a| )", r"(?=.*a)", r"(?!.*7)"]  # fmt: skip
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,3}", "{2}", "*?", "+?", "{1,2}?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"({part})"),
        inner.map(lambda part: f"(?>{part})"),
        inner.map(lambda part: f"(?:{part})*+"),
        inner.map(lambda part: f"(?i:{part})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}){pair[1]}\\1"),
    ),
    max_leaves=8,
)


def compile_or_reject(pattern: str) -> regex.Pattern[str]:
    try:
        return regex.compile(pattern, FLAGS)
    except regex.error:  # refers to a group that is open
        reject()


HEXADECIMAL = re.compile(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{6,}\b")


def another(text: str, same: int, dice: random.Random) -> str:
    """A text of the same shape that has the digits in common that stand at some places."""
    of_addresses = {at for found in re.finditer(r"\b0x[0-9a-f]+(?:_[0-9a-f]+)*\b", text) for at in range(*found.span())}
    digits = dice.choice(["0123456789", "abcdef", "0123456789abcdef"])

    def other(at: int, character: str) -> str:
        if same >> at & 1:
            return character
        if at in of_addresses and character not in "x_" and at - 1 in of_addresses:
            return dice.choice(digits)
        return dice.choice("0123456789") if character in "0123456789" and at not in of_addresses else character

    def other_word(found: re.Match[str]) -> str:
        kept = [text[at] if same >> at & 1 else "" for at in range(*found.span())]
        words = ("".join(one or dice.choice(digits) for one in kept) for _ in range(10))
        return next(filter(HEXADECIMAL.fullmatch, words), found[0])

    other_text = "".join(other(at, character) for at, character in enumerate(text))
    words = {found.start(): other_word(found) for found in HEXADECIMAL.finditer(text)}
    for start, word in words.items():
        other_text = other_text[:start] + word + other_text[start + len(word) :]
    return other_text


@given(TEXTS, st.randoms(use_true_random=False))
def test_texts_that_differ_in_digits_alone_have_one_shape(text: str, dice: random.Random) -> None:
    other = another(text, 0, dice)
    assert widened(shape_of(other.encode())) == widened(shape_of(text.encode()))
    assert len(widened(shape_of(text.encode()))) == len(shape_of(text.encode())) == len(text)


@pytest.mark.parametrize(
    ("text", "other", "alike"),
    [
        ("Ch 00ab12cd", "Ch ffff1fff", True),
        ("Ch 00ab12cd", "Ch 00001234", False),  # may be a decimal number
        ("Ch 00ab12cd", "Ch deadbeef", False),  # may be a word
        ("Ch 00ab12cd", "Ch 00AB12CD", False),
        ("Ch 1ab", "Ch 1cd", False),
        ("at 0x7f3a", "at 0xbeef", True),
        ("at 0x7f3a", "at 5x1234", False),
        ("node00ab12cd", "node00ab12ce", False),
        ("in lib.so[7f3a5c+1000000]", "in lib.so[7fffff+1000000]", True),
    ],
)
def test_hexadecimal_words_are_alike_where_nothing_else_can_be_meant(text: str, other: str, alike: bool) -> None:
    assert (widened(shape_of(text.encode())) == widened(shape_of(other.encode()))) is alike


@example("(?>0x(?:7f|[0-9a-f]+)) a", "0x7f3a a", random.Random(1))
@example(r"(\w+) \1", "0x7f3a 0x7f3a", random.Random(1))
@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_what_has_the_same_digits_where_a_pattern_looks_is_one_to_it(
    pattern: str, text: str, dice: random.Random
) -> None:
    compiled = compile_or_reject(pattern)
    at = looked_at([Expression(pattern)], text)
    expected = compiled.search(text)
    for _ in range(20):
        found = compiled.search(another(text, at, dice))
        assert (found and found.regs) == (expected and expected.regs)


@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_what_reads_from_the_start_comes_as_far_in_all(pattern: str, text: str, dice: random.Random) -> None:
    compiled = compile_or_reject(pattern)
    at = read_from_start(pattern, text)
    for _ in range(5):
        other = another(text, at, dice)
        for stop in range(len(text) + 1):
            assert bool(compiled.fullmatch(text, endpos=stop)) == bool(compiled.fullmatch(other, endpos=stop))


@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_what_may_begin_in_one_may_begin_in_all(pattern: str, text: str, dice: random.Random) -> None:
    expression = Expression(pattern)
    needs = expression.needs
    first = [(literal, needs.ignore_case) for literals in needs.first for literal in literals]
    other = another(text, held(first, text), dice)
    assert expression.may_begin_in(other) == expression.may_begin_in(text)


@pytest.mark.parametrize(
    ("pattern", "text", "looked"),
    [
        (r"\d+ GPUs? \w", "17 GPU 3", ""),
        ("error 700", "error 7001 of 12", "700"),
        (r"Xid \(.*\): 79, pid=(\d+)", "Xid (PCI:0000:3b:00): 79, pid=1234", "79"),
        (r"Xid \(.*\): 79, pid=(\d+)", "Xid of 79", ""),
        (r"(\d+)/\1", "12/12 of a", "1212"),
        ("at 0x[0-9a-f]+", "fault at 0x7f3a_12ab of 99", ""),
        ("at 0x7f", "fault at 0x7f3a", "7f"),
        (r"(?<!\d)79", "179 7", "79"),
    ],
)
def test_which_digits_a_pattern_looks_at(pattern: str, text: str, looked: str) -> None:
    at = looked_at([Expression(pattern)], text)
    assert "".join(text[place] for place in places_of(at)) == looked


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
def test_of_a_crash_line_few_digits_are_looked_at(source: SourceKind, text: str, looked: str) -> None:
    """Else nothing is gained by looking."""
    pipeline = Pipeline(packs.load(), engine="python")
    evaluator = pipeline.evaluators.under(pipeline.engine_for(source).scan(text.encode()).gates, source)
    more = evaluator.lines > 1
    at, _ = evaluator._looked((text,), evaluator._of((text,), more=more), more=more)
    assert "".join(text[place] for place in places_of(at)) == looked
