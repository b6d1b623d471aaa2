"""A pattern that does not look into addresses finds the same whatever they are."""

from __future__ import annotations

import random
import re

import regex
from hypothesis import assume, example, given
from hypothesis import strategies as st

from exporter import packs
from exporter.core.addresses import decide, look_into, without_addresses
from exporter.core.expression import Expression
from exporter.core.knowledge import FLAGS

ADDRESSES = ["0x0", "0x7f3a", "0xbad", "0x12_34", "0x99", "0xfed0"]
PIECES = [
    *ADDRESSES,
    *ADDRESSES,
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


def another(text: str, dice: random.Random) -> str:
    """The text with other addresses, as long as those."""

    def other(found: re.Match[str]) -> str:
        digits = dice.choice(["0123456789", "abcdef", "0123456789abcdef"])
        return "0x" + "".join("_" if character == "_" else dice.choice(digits) for character in found[0][2:])

    return re.sub(r"\b0x[0-9a-f]+(?:_[0-9a-f]+)*\b", other, text)


@given(TEXTS, st.randoms(use_true_random=False))
def test_texts_that_differ_in_addresses_alone_are_one_text_without_them(text: str, dice: random.Random) -> None:
    same = without_addresses(text.encode())
    assert same == without_addresses(another(text, dice).encode())
    assert without_addresses(same) == same
    assert len(same) == len(text)


@example("(?>0x(?:7f|[0-9a-f]+)) a", "0x7f3a a", random.Random(1))
@example(r"(\w+) \1", "0x7f3a 0x7f3a", random.Random(1))
@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_what_looks_into_no_address_finds_the_same_in_all(pattern: str, text: str, dice: random.Random) -> None:
    text = without_addresses(text.encode()).decode()
    assume(not look_into([Expression(pattern)], text))
    compiled = regex.compile(pattern, FLAGS)
    expected = compiled.search(text)
    for _ in range(20):
        found = compiled.search(another(text, dice))
        assert (found and found.regs) == (expected and expected.regs)


@given(PATTERNS, TEXTS, st.randoms(use_true_random=False))
def test_what_no_address_decides_comes_as_far_in_all(pattern: str, text: str, dice: random.Random) -> None:
    text = without_addresses(text.encode()).decode()
    assume(not decide(pattern, text))
    compiled = regex.compile(pattern, FLAGS)
    for _ in range(5):
        other = another(text, dice)
        for stop in range(len(text) + 1):
            assert bool(compiled.fullmatch(text, endpos=stop)) == bool(compiled.fullmatch(other, endpos=stop))


def test_most_patterns_look_into_no_address() -> None:
    """Else nothing is gained by looking."""
    text = without_addresses(
        b"Memory access fault by GPU node-1 (Agent handle: 0x55c4d8e0) on address 0x7f5c5fc0d000. Reason: x"
    )
    catalogue = packs.load()
    patterns = [pattern for signature in catalogue.signatures.values() for pattern in signature.patterns]
    looking = [pattern for pattern in patterns if look_into([Expression(pattern)], text.decode())]
    assert len(looking) < len(patterns) / 20
