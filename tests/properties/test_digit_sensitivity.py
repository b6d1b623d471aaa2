"""A pattern finds the same in all texts of a shape that have the digits in common that it looks at."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
import regex
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from exporter.core.patterns.digit_sensitivity import contained, read_from_start, searched
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.masks import RUN, SensitiveRuns, masked
from exporter.core.patterns.syntax import FLAGS

MANY = 400
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
TEXTS = (
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=7)
    .map("".join)
    .filter(lambda text: masked(text.encode()) is not None)
)
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


class Other(NamedTuple):
    """A text that agrees in the sensitive runs, and its positions by those of the first; None within a run."""

    text: str
    positions: list[int | None]


def another(text: str, sensitive: SensitiveRuns, dice: random.Random) -> Other:
    first = masked(text.encode())
    assert first
    parts, at = [], 0
    for number, found in enumerate(RUN.finditer(text.encode())):
        parts += [text[at : found.start()], _other_run(text[slice(*found.span())], number, sensitive, dice)]
        at = found.end()
    parts.append(text[at:])
    other = "".join(parts)
    if (second := masked(other.encode())) is None or second.mask != first.mask:
        return Other(text, [*range(len(text) + 1)])
    positions: list[int | None] = []
    for number, part in enumerate(parts):
        before = sum(map(len, parts[:number]))
        length = len(first.runs[number // 2]) if number % 2 else len(part)
        is_open = number % 2 and number // 2 not in sensitive.lengths | sensitive.characters
        positions += (
            [before + n if n < 1 + part.startswith("x") else None for n in range(length)]
            if is_open
            else range(before, before + length)
        )
    return Other(other, [*positions, len(other)])


def _other_run(run: str, number: int, sensitive: SensitiveRuns, dice: random.Random) -> str:
    if number in sensitive.characters:
        return run
    before = "x" if run.startswith("x") else ""
    digits = "0123456789" if run.isdigit() else dice.choice(["0123456789abcdef", "abcdef7", "0123456789abcdef"])
    length = len(run) if number in sensitive.lengths else dice.choice([1, 1, 2, 3, 6, 7, 8, len(run)])
    return before + "".join(dice.choice(digits) for _ in range(length - len(before) or 1))


def moved(span: tuple[int, int], other: Other) -> tuple[int | None, int | None]:
    return (-1, -1) if span == (-1, -1) else (other.positions[span[0]], other.positions[span[1]])


@pytest.mark.parametrize(
    ("text", "other", "alike"),
    [
        ("pid 12", "pid 4711", True),
        ("pid 12", "pid 123456789012345678901", False),  # too long
        ("Ch 00ab12cd", "Ch ffff1fff0", True),
        ("Ch 00ab12cd", "Ch 00001234", False),  # may be a decimal number
        ("Ch 00ab12cd", "Ch deadbeef", False),  # may be a word
        ("Ch 00ab12cd", "Ch 00AB12CD", False),
        ("Ch 1ab", "Ch 1cd", False),
        ("at 0x7f3a", "at 0xbeef12", True),
        ("at 0x7f3a", "at 0x1234", True),
        ("at 0x7f3a", "at 5x1234", False),
        ("at 0x7f3a_5c000000", "at 0x7f_5c00000f", True),
        ("node00ab12cd", "node00ab12ce", False),
        ("in lib.so[7f3a5c+1000000]", "in lib.so[7fffff+2000]", True),
        ("in lib.so[7f3a5c+1000000]", "in lib.so[7fffff+20000000]", False),
    ],
)
def test_texts_have_one_mask_where_their_runs_are_of_one_kind(text: str, other: str, alike: bool) -> None:
    first, second = masked(text.encode()), masked(other.encode())
    assert first
    assert (second is not None and first.mask == second.mask) is alike


@given(TEXTS)
def test_a_text_is_its_mask_and_its_runs(text: str) -> None:
    found = masked(text.encode())
    assert found
    pieces = found.mask[0].split(b"\xff")
    runs = [*found.runs, b""]
    assert b"".join(piece + run for piece, run in zip(pieces, runs, strict=True)) == text.encode()


@given(TEXTS, TEXTS)
def test_a_mask_of_two_lines_is_that_of_each(text: str, line: str) -> None:
    first, second = masked(text.encode()), masked(line.encode())
    assert first
    assert second
    assert first.with_line(second) == masked(f"{text}\n{line}".encode())


@example("(?>0x(?:7f|[0-9a-f]+)) a", "0x7f3a a", random.Random(1))
@example(r"(\w+) \1", "0x7f3a 0x7f3a", random.Random(1))
@settings(max_examples=MANY)
@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_a_pattern_finds_the_same_in_texts_that_agree_in_its_sensitive_runs(
    pattern: str, text: str, dice: random.Random
) -> None:
    compiled = compile_or_reject(pattern)
    runs = range(len(RUN.findall(text.encode())))  # a guess may be wrong
    guess = SensitiveRuns(*(frozenset(run for run in runs if dice.random() < 0.3) for _ in range(2)))
    sensitive = searched([Expression(pattern)], text, guesses={(pattern, len(runs)): guess})
    expected = compiled.search(text)
    for _ in range(8):
        other = another(text, sensitive, dice)
        found = compiled.search(other.text)
        assert bool(found) == bool(expected), other
        if found and expected:
            assert found.start() == other.positions[expected.start()], other
            assert list(found.regs[1:]) == [moved(span, other) for span in expected.regs[1:]], other


@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_a_pattern_read_from_the_start_comes_as_far_in_all_such_texts(
    pattern: str, text: str, dice: random.Random
) -> None:
    compiled = compile_or_reject(pattern)
    sensitive = read_from_start(pattern, text)
    for _ in range(5):
        other = another(text, sensitive, dice)
        for stop, there in enumerate(other.positions):
            if there is not None:
                found = compiled.fullmatch(other.text, endpos=there)
                assert bool(compiled.fullmatch(text, endpos=stop)) == bool(found), other


@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_a_match_may_begin_in_all_texts_that_agree_in_its_literals(
    pattern: str, text: str, dice: random.Random
) -> None:
    expression = Expression(pattern)
    needs = expression.needs
    first = [(literal, needs.ignore_case) for literals in needs.first for literal in literals]
    other = another(text, contained(first, text), dice)
    assert expression.may_begin_in(other.text) == expression.may_begin_in(text)


def shown(text: str, sensitive: SensitiveRuns) -> str:
    """The sensitive runs: their characters, or a dot for each where only the length matters."""
    found = masked(text.encode())
    assert found
    runs = {n: run.decode() for n, run in enumerate(found.runs) if n in sensitive.characters}
    runs |= {n: "." * len(run) for n, run in enumerate(found.runs) if n in sensitive.lengths}
    return " ".join(runs[n] for n in sorted(runs))


@pytest.mark.parametrize(
    ("pattern", "text", "sensitive"),
    [
        (r"\d+ GPUs? \w", "17 GPU 3", ""),
        ("error 700", "error 7001 of 12", "7001"),
        (r"Xid \(.*\): 79, pid=(\d+)", "Xid (PCI:0000:3b:00): 79, pid=1234", "79"),
        (r"Xid \(.*\): 79, pid=(\d+)", "Xid of 79", ""),
        (r"pid (\d{1,20}) of (?P<of>\d{4})", "pid 12 of 1234, 7", "...."),
        (r"pid=.*?(\d+)$", "pid=a 12", ""),
        (r"pid=.{0,40}(\d+)$", "pid=a 12", ".."),
        (r"pid=.{0,40}: no", "pid=a 12: no", ""),
        (r"pid=.{0,4}: no", "pid=a 12: no", ".."),
        (r"(?P<all>\S.{0,300})", "12 of 3", ""),
        (r"(?<!\d)(\d+)(?!\d)", "12 of 3", ""),
        (r"(\d+)/\1", "12/12 of a", "12 12"),
        ("at 0x[0-9a-f]+", "fault at 0x7f3a_12ab12ab of 99", ""),
        ("at 0x7f", "fault at 0x7f3a", "x7f3a"),
        (r"(?<!\d)79", "179 7", "179 ."),
    ],
)
def test_sensitive_runs_of_a_pattern(pattern: str, text: str, sensitive: str) -> None:
    assert shown(text, searched([Expression(pattern)], text)) == sensitive
