"""Gates: literals that no match can do without, read off a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import regex
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from exporter.core.patterns.required_literals import (
    MAX_ALTERNATIVES,
    MAX_LENGTH,
    MAX_NEED_CHOICES,
    MIN_LENGTH,
    NO_NEEDS,
    Gate,
    Needs,
    NoGate,
    derive,
    needed_after,
    needed_next,
    needs,
)
from exporter.core.patterns.syntax import FLAGS, Unreadable


def literals(pattern: str) -> set[str]:
    """The gates of a pattern that minds case."""
    gates = derive(pattern)
    assert not any(gate.ignore_case for gate in gates)
    return {gate.literal.decode() for gate in gates}


@pytest.mark.parametrize(
    ("pattern", "gates"),
    [
        ("GPU fault", {"GPU fault"}),
        (r"fault 0x[0-9a-f]+ of process \d+", {"of process"}),  # the longest one
        (r"GPU\d fault on ring", {"fault on ring"}),
        (r"\bGPU fault\b$", {"GPU fault"}),  # a position has no width
        ("GPU (?:page) fault", {"GPU page fault"}),  # a group of nothing but text
        ("GPU (?P<kind>page|ring) fault", {"GPU page fault", "GPU ring fault"}),
        (r"level=(?:info|warn\w*) ", {"level=info", "level=warn"}),  # up to where an alternative is not a literal
        (r"cl(?:Create|Fin(?:ish|al)) \d", {"clCreate", "clFinish", "clFinal"}),
        (r"(?:error|failure|\d+): fault", {": fault"}),
        ("GPU (?=x)fault", {"GPU fault"}),  # what is looked at has no width
        ("GPU [Ff]ault: (?:error )?", {"GPU Fault:", "GPU fault:"}),
        ("page fault|ring timeout", {"page fault", "ring timeout"}),
        ("(?:page fault|ring timeout): GPU", {"page fault: GPU", "ring timeout: GPU"}),
        ("(?:page fault|GPU|timeout)", None),  # a short branch lets everything through
        ("(?:page fault)?ring timeout", {"ring timeout"}),  # what may be missing is none
        ("(?:page fault)*ring timeout", {"ring timeout"}),
        ("(?:page fault)+", {"page fault"}),
        ("(?:page fault){2,3}?", {"page fault"}),
        ("(?>page fault)x", {"page fault"}),
        ("(?:page fault)++x", {"page fault"}),
        ("(?=page fault)ring timeout", {"ring timeout"}),  # what is looked at ahead may stand anywhere
        ("(?<!page fault)ring timeout", {"ring timeout"}),
        ("faults?", {"fault"}),  # which finds the other spelling, too
        ("[Ff]ault", {"Fault", "fault"}),
        ("GPU.*fault", {"fault"}),
        ("(?x) GPU \\s  fault  # a comment", {"fault"}),
        ("GPU", None),
        (r"\d+", None),
    ],
)
def test_a_gate_is_what_every_match_must_hold(pattern: str, gates: set[str] | None) -> None:
    if gates is None:
        with pytest.raises(NoGate):
            derive(pattern)
    else:
        assert literals(pattern) == gates


@pytest.mark.parametrize(
    ("pattern", "gates"),
    [
        (r'reason: "page fault" on ring', {"reason:", "page fault", "on ring"}),  # docker writes \"
        ("fault <page> here", {"fault", "page", "here"}),  # Go's encoder writes \u003c
        ("page & fault", {"page", "fault"}),
        ("`hipErrorLaunch'", {"hipErrorLaunch"}),
        (r"page\\fault", {"page", "fault"}),
        (r"page\tfault", {"page", "fault"}),  # kmsg writes \x09
        ("page fäult", {"page f"}),  # and \xc3\xa4
    ],
)
def test_a_gate_holds_no_character_that_a_carrier_may_rewrite(pattern: str, gates: set[str]) -> None:
    (gate,) = literals(pattern)
    assert gate in gates


@pytest.mark.parametrize(
    ("pattern", "gate"),
    [
        (r"page fault\n  in process \S+ of a job", "page fault"),  # the longer one is in the second line
        (r"page fault(?:\n| )of process", "page fault"),
        (r"page fault[\r\n]+of process", "page fault"),
        (r"(?>page fault\n)of process", "page fault"),
        (r"(?:page fault\n)+of process", "page fault"),
        (r"(x)?page fault(?(1)\n|,)of process", "page fault"),
        (r"page[^\n]*of process", "of process"),  # no newline in there
    ],
)
def test_a_gate_stands_in_the_first_line(pattern: str, gate: str) -> None:
    assert literals(pattern) == {gate}


def test_a_pattern_whose_literal_stands_in_its_second_line_has_no_gate() -> None:
    with pytest.raises(NoGate, match="first line"):
        derive(r"\d+\npage fault")


@pytest.mark.parametrize("pattern", ["(?i)Page FAULT", "(?i:Page) FAULT", "(?:(?i:P)age|x) FAULT|Page FAULT"])
def test_a_pattern_that_ignores_case_anywhere_has_gates_that_do(pattern: str) -> None:
    assert derive(pattern)
    assert all(gate.ignore_case and gate.literal == gate.literal.lower() for gate in derive(pattern))


def test_a_gate_is_short_enough_to_stay_whole() -> None:
    assert literals("x" * 100) == {"x" * MAX_LENGTH}
    assert literals(r"\d  fault  \d") == {"fault"}  # wraps and colours stand where spaces are
    assert literals(r"\d at \d") == {" at "}  # unless nothing else is left


def test_a_pattern_of_too_many_alternatives_takes_another_gate() -> None:
    names = [f"{n:02}fault" for n in range(MAX_ALTERNATIVES + 1)]
    assert literals(f"(?:{'|'.join(names[:-1])}) GPU!") == set(names[:-1])
    assert literals(f"(?:{'|'.join(names)}) GPU!") == {"GPU!"}


@pytest.mark.parametrize("pattern", [r"\p{Lu}fault", "(?<x>fault)", "[[:alpha:]]fault", "fault{99999999999}", "("])
def test_what_re_and_regex_do_not_read_alike_is_not_read(pattern: str) -> None:
    with pytest.raises(Unreadable, match="common syntax"):
        derive(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"NVRM: Xid \((?P<gpu>\S+)\): 79, ", Needs([["NVRM: Xid ("], ["): 79, "]])),
        (r"\A\s*#(?!\d)", Needs([["#"]])),  # a text that has been cut out: of any length, of any character
        (r"[;{}]\s*(?://|#)", Needs([["#", "//"]])),
        ("page\n.*\nfault", Needs([["\nfault"], ["page\n"]])),  # a block has newlines
        ("(?i)Page FAULT", Needs([["page fault"]], ignore_case=True)),
        (f"(?:{'|'.join('abcdefghi'[: MAX_NEED_CHOICES + 1])}|jj)x", Needs([["x"]])),
        (r"fault{e<=1}", NO_NEEDS),
        (r"\p{Lu}fault", NO_NEEDS),
        (r"\d+", NO_NEEDS),
    ],
)
def test_what_a_text_needs_is_every_long_literal_of_a_pattern(pattern: str, expected: Needs) -> None:
    assert needs(pattern)[:2] == expected[:2]


@pytest.mark.parametrize(
    ("pattern", "first", "one_line"),
    [
        (r"Xid \d+: 79, (?P<rest>[^\n]*)$", [[": 79, "], ["Xid "]], True),
        (r"page fault(?:\nat (\w+))?", [["page fault"]], False),
        (r"page\s+fault", [["page"]], False),  # the fault may stand in the next line
        (r"page[^)]*fault", [["page"]], False),
        (r"page(?=\s|$) fault", [["page"]], False),
        (r"(?:page\n|pages )fault", [["page"]], False),
        (r"(?:page|pages) fault(?!\n)", [[" fault"], ["page"]], False),
        (r"fault\Z", [["fault"]], False),
        (r"(?s:fault.*page)", (), False),
        (r"fault(?<!s) \w+\b", [["fault "]], True),
    ],
)
def test_what_the_line_needs_in_which_a_match_begins(
    pattern: str, first: Sequence[Sequence[str]], *, one_line: bool
) -> None:
    assert list(needs(pattern)[2:]) == [first, one_line]


# A grammar of patterns, each with a strategy for strings that it matches.

WORDS = st.text(alphabet="abAB -", min_size=1, max_size=8)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["word"] * 3 + ["newline", "class", "any", "sequence", "choice", "repeat", "group"]))
    if depth == 0 or kind == "word":
        return re.escape(draw(WORDS))
    part = patterns(depth - 1)
    match kind:
        case "newline":
            return draw(st.sampled_from([r"\n", r"[\n,]", r"(\n)", r"(?:\n|,)", r"(?>\n)", r"\n+"]))
        case "class":
            return draw(st.sampled_from(["[abc]", r"\d", r"[^x\n]", r"\w", "\\\\", '"']))
        case "any":
            return draw(st.sampled_from([".", ".*", ".*?"]))
        case "sequence":
            return "".join(draw(st.lists(part, min_size=1, max_size=4)))
        case "choice":
            return f"(?:{'|'.join(draw(st.lists(part, min_size=1, max_size=3)))})"
        case "repeat":
            repeated = draw(patterns(0))  # one in another takes exponential time, here and in a pack
            return f"(?:{repeated}){draw(st.sampled_from(['?', '*', '+', '{2}', '{0,2}', '+?']))}"
        case _:
            return f"{draw(st.sampled_from(['(', '(?:', '(?i:', '(?>', '(?=']))}{draw(part)})"


@given(st.data())
def test_every_match_of_every_pattern_holds_what_the_pattern_needs(data: st.DataObject) -> None:
    pattern = "".join(data.draw(st.lists(patterns(), min_size=1, max_size=5)))
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    text += data.draw(st.sampled_from(["", "\nab", "\nA-B\n", "\n"]))
    sets, ignore_case, first, one_line = needs(pattern)

    def holds_one_of_each(text: str, sets: Sequence[Sequence[str]]) -> bool:
        return all(any(literal in (text.lower() if ignore_case else text) for literal in found) for found in sets)

    if found := regex.search(pattern, text, FLAGS):
        begin = text.rfind("\n", 0, found.start()) + 1
        line = text[begin:].partition("\n")[0]
        assert holds_one_of_each(text, sets)
        assert holds_one_of_each(line, first)
        if one_line:
            alone = regex.search(pattern, line, FLAGS)
            assert alone
            assert (alone.start(), alone.end()) == (found.start() - begin, found.end() - begin)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # half of the patterns have no gate
@given(st.data())
def test_every_match_of_every_pattern_holds_one_of_its_gates_in_its_first_line(data: st.DataObject) -> None:
    pattern = "".join(data.draw(st.lists(patterns(), min_size=2, max_size=5)))
    try:
        gates = derive(pattern)
    except NoGate:
        reject()
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    found = regex.search(pattern, text, FLAGS)
    assume(found)  # not of a group that takes all and gives nothing back
    assert found
    first = text[found.start() :].partition("\n")[0]
    assert any(holds(gate, first) for gate in gates)


def holds(gate: Gate, text: str) -> bool:
    assert len(gate.literal) >= MIN_LENGTH
    return gate.literal.decode() in (text.lower() if gate.ignore_case else text)


@pytest.mark.parametrize("letter", "\u0130\u0131\u017f\u212a")
def test_a_letter_that_equals_an_ascii_one_is_not_required(letter: str) -> None:
    assert needs(f"(?i)fault {letter} at").sets == [["fault "], [" at"]]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("fault at", set()),
        (r"fault\s*$", set()),  # its own line ends, whatever lies behind
        (r"fault(?: at|\s*$)", set()),
        (r"fault(?=:|\s*$)", set()),
        (r"fault\s*$ at", {" at"}),
        (r"fault\s+$", None),
        (r"fault\s*+$", None),  # it keeps what it has read of the next line
        (r"fault\nat (?P<where>\w+)", {"at "}),
        (r"fault(?:\n.*address (?P<a>\w+)(?:\n.*status (?P<s>\w+))?)?", {"address ", "status "}),
        (r"fault\n(?:.*\n){0,2}?.*(?:Search|Look) for", {" for"}),
        (r"(?i)fault\nAt", {"at"}),
        (r"(\w+) fault\n\1 at", {" at"}),
        (r"(\w+\s)fault \1at", None),  # a newline may come again
        (r"fault(?!\nat)", {"at"}),
        (r"fault[^x]*", None),
        (r"(?s)fault.*at", None),
        (r"fault\Z", None),
        ("(?P<open>fault", None),
    ],
)
def test_what_lines_behind_must_hold_to_change_a_match(pattern: str, expected: set[str] | None) -> None:
    assert needed_after(pattern) == expected


FRAGMENTS = [
    "ab", "a", "b", "A", r"\n", r"\s*$", r"\s*", r"(?:\nb)?", r"(?:\n.*a(b)?)?", "(a)?", r"(?=\nb)", r"(?!\s*b)", r"\1",
    ".*", r"[^a]", r"[^b]*", r"(?:a|\s*$)", r"(?:\n|b)", r"(?:[^\n]*\n){0,2}?", "$", "^", r"\b", "(?i:b)", r"(\s)",
]  # fmt: skip


@settings(max_examples=400)
@given(
    pattern=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map("".join),
    text=st.text("abA ", max_size=6),
    behind=st.text("abA \n", max_size=8),
)
def test_lines_without_what_a_match_needs_of_them_do_not_change_it(pattern: str, text: str, behind: str) -> None:
    needed = needed_after(pattern)
    behind = behind.lower() if needs(pattern).ignore_case else behind
    assume(needed is not None and not any(literal in behind for literal in needed))

    def found_in(block: str) -> object:
        found = regex.search(pattern, block, FLAGS)
        return found and found.start() <= len(text) and (found.start(), found.regs[1:])

    assert (found_in(f"{text}\n{behind}") or None) == (found_in(f"{text}\n") or None)


BLOCK = r"fault(?:\n.*at (?P<a>\w+)(?:\n.*status (?P<s>\w+))?)?"


@pytest.mark.parametrize(
    ("pattern", "newlines", "expected"),
    [
        (BLOCK, 1, {"at "}),
        (BLOCK, 2, {"status"}),
        (BLOCK, 3, set()),
        (r"fault(?:\nby \w+)?(?:\nat \w+)?\nstatus", 1, {"by ", "at ", "status"}),
        (r"fault(?:\nby \w+)?(?:\nat \w+)?\nstatus", 3, {"status"}),
        (r"fault\n(?:at|\w+\nfrom) here", 1, None),
        (r"fault(?:\nin|\nnear \w+\nfrom) here", 1, {"in", "near"}),
        (r"fault(?:\nin|\nnear \w+\nfrom) here", 2, {"from here"}),
        (r"(?i)fault\nAt", 1, {"at"}),
        (r"fault\s*$", 1, set()),
        (r"fault(?:\nat){2}", 1, None),  # behind the first comes the same again
        (r"fault\n?+at", 1, None),
        (r"fault\s+at", 1, None),
        (r"fault(?!\nat)", 1, None),
        (r"(?s)fault.*at", 1, None),
        ("(?P<open>fault", 1, None),
    ],
)
def test_what_the_next_line_must_hold_to_change_a_match(pattern: str, newlines: int, expected: set[str] | None) -> None:
    assert needed_next(pattern, newlines) == expected


@settings(max_examples=400)
@given(
    pattern=st.lists(st.sampled_from([*FRAGMENTS, r"\nb", r"(?:\n.*a(?:\n.*b)?)?"]), min_size=1, max_size=5).map(
        "".join
    ),
    lines=st.lists(st.text("abA ", max_size=4), min_size=1, max_size=3),
    following=st.lists(st.text("abA ", max_size=4), min_size=1, max_size=3),
)
def test_a_next_line_without_what_a_match_needs_of_it_ends_the_match(
    pattern: str, lines: list[str], following: list[str]
) -> None:
    needed = needed_next(pattern, len(lines))
    line = following[0].lower() if needs(pattern).ignore_case else following[0]
    assume(needed is not None and not any(literal in line for literal in needed))

    def found_in(block: str) -> object:
        found = regex.search(pattern, block, FLAGS)
        return found and found.start() <= len(lines[0]) and (found.start(), found.regs[1:])

    text = "\n".join([*lines, ""])
    assert (found_in(text + "\n".join(following)) or None) == (found_in(text) or None)
