"""Which patterns are refused unread by any engine, and which loops take exponential time."""

from __future__ import annotations

import pytest

from exporter.core.patterns.regex_safety import ambiguous_loop
from exporter.core.patterns.required_literals import needs
from exporter.core.patterns.syntax import MAX_SIZE, refusal, spelt_out


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "(?:a{0,200}b){0,200}", "a(?=(?:b{200}){200})"])
def test_a_repeat_bomb_is_refused_by_its_size(pattern: str) -> None:
    assert f"over {MAX_SIZE}; repeat less" in (refusal(pattern) or "")


@pytest.mark.parametrize("pattern", [r"\b", "(?=fault)", "^$", "(?:fault)?", "fault*|x*"])
def test_what_can_match_without_text_is_refused(pattern: str) -> None:
    assert (refusal(pattern) or "").startswith("can match without any text")


@pytest.mark.parametrize("pattern", ["fault", ".*fault", "(?:a{100}){100}", "[a-z]+", r"(?:\d+,)*\d"])
def test_an_ordinary_pattern_is_not_refused(pattern: str) -> None:
    assert refusal(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:a+)+",
        "(?:a*)*b",
        r"(?:\w+ ?)+x",
        "(?:a?b?)*c",
        "(?:ab|a|b)*c",
        "(?:a|ab|ba|b)*c",
        "(?:ab|abab)+c",
        "(?:.*a){20}",
        r"(?:\s*\w+){1,30}!",
        "(?:a{1,2})+b",
        "(?:(?:a|b){2,3})+c",
        "(?i:(?:ab|Ab)+)c",
        "(?:[^,]|,?;?x)+!",
        "x(?P<words>(?:a+|b+)*)y",
    ],
)
def test_a_loop_that_reads_one_text_in_two_ways_is_found(pattern: str) -> None:
    text = ambiguous_loop(pattern)
    assert text


@pytest.mark.parametrize(
    "pattern",
    [
        "a+",
        r"\s*.*\s*x",  # a polynomial, of which the time limit is no match
        r"(?:\d{2})+",
        r"(?:[0-9a-f]{2}:)+",
        r"(?:\w+[ ,])*x",
        r"(?:\w+\W+)+x",
        "(?:a|b)*c",
        "(?:ab|ac)*d",
        "(?:a{0,3},)+",
        "(?:a{2,5}b?c)+",
        "(?>a+)+b",
        "(?:a++)+b",
        "(?:a++b)++c",
        "(?:a?b)*c",
        "(?:ab?){3}c",
        "(?:(?:a|b){2,2})+c",
        '"(?:[^"\\\\]|\\\\.)*"',
    ],
)
def test_a_loop_that_reads_every_text_in_one_way_is_left_alone(pattern: str) -> None:
    assert ambiguous_loop(pattern) is None


def test_the_text_that_is_told_shows_the_two_ways() -> None:
    assert ambiguous_loop(r"(?:\w+ ?)+x") == "aa"
    assert ambiguous_loop("(?:ab|abab)+c") == "baba"


@pytest.mark.parametrize(
    ("pattern", "is_fuzzy"),
    [
        ("fault{e<=1}", True),
        ("(?:fault){1<=e<=2}", True),
        ("fault{2i+1d<=4:[a-z]}", True),
        (r"fault\\{e<=1}", True),
        (r"fault\{{e<=1}", True),
        (r"fault[\]]{e}", True),
        (r"fault\{code\}", False),
        (r"fault\{e<=1}", False),
        (r"fault\\\{e<=1}", False),
        ("fault[{]e<=1}", False),
        ("fault[]{]e<=1}", False),
        (r"fault[\]{]e<=1}", False),
        ("fault {code}", False),
        ("fault{1,2}", False),
    ],
)
def test_escaped_braces_and_sets_are_not_fuzzy_matching(pattern: str, is_fuzzy: bool) -> None:
    assert ("fuzzy matching" in (refusal(pattern) or "")) == is_fuzzy


@pytest.mark.parametrize("pattern", [r"(?:an optional \(?abc) fault", r"(?i)status \(?if é"])
def test_an_escaped_parenthesis_opens_no_flags(pattern: str) -> None:
    assert refusal(pattern) is None
    assert needs(pattern).sets


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"Xid (?P<xid>13), ", "13"),
        (r"Xid (?P<xid>1|3), ", None),
        (r"Xid (?P<xid>\d+), ", None),
        (r"Xid (?:(?P<xid>13), )?", None),  # may be missing
        (r"Xid (?P<xid>13)?", None),
        (r"(?i)Xid (?P<xid>ab)", None),  # in either case
        (r"Xid (?P<xid__13>.)", None),
        (r"\(?P<xid>13", ""),
        (r"Xid 13", ""),
    ],
)
def test_what_a_group_holds_in_each_match(pattern: str, expected: str | None) -> None:
    assert spelt_out(pattern, "xid") == expected
