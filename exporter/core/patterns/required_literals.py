"""Literals that every match of a pattern must contain: the gate that a line passes before it is decoded, and what a
decoded text must hold before a regex looks at it.

Read off the parsed pattern, so an author writes no gate and none can be forgotten. A gate never crosses a character
that a carrier may rewrite (docker's JSON escapes quotes, `<`, `>`, `&` and backslashes; the kernel escapes control
characters; ANSI colours stand around words but not inside them).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple

from exporter.core.patterns.regex_safety import characters
from exporter.core.patterns.syntax import REPEATS, Unreadable, inside, parse, sre

MIN_LENGTH = 4  # shorter ones hit ordinary text: in 512 MB of training logs "NaN" hit 0.4% of lines, "HSA_" none
MAX_LENGTH = 24  # longer ones hit no rarer, and colours or line wraps may cut them
RARE_LENGTH = 10  # longer ones hit hardly rarer, so that fewer of them are better
MAX_ALTERNATIVES = 64
MAX_SPELLINGS = 24  # `cl(?:Create|Finish)` has two; an ordinary word as a gate costs more than twenty rare literals
MAX_NEEDS = (
    4  # sets of literals that are looked for in a text, of MAX_NEED_CHOICES each: 50 ns a literal, a search 2 µs
)
MAX_NEED_CHOICES = 8
_EQUAL_ASCII = frozenset(map(ord, "\u0130\u0131\u017f\u212a"))  # İ, ı, ſ and K are i, s and k when case is ignored
_REWRITTEN = frozenset("\"'\\<>&`\x7f") | {chr(c) for c in range(32)}


MAX_CHECKED = 4096  # patterns whose literals are read off once a process; the built-in packs have 1,800


class NoGate(ValueError):
    """A pattern without a required literal would have to be tried on every line."""


class Gate(NamedTuple):
    """One literal. `ignore_case`: ASCII letters of either case count."""

    literal: bytes
    ignore_case: bool = False


class Needs(NamedTuple):
    """What a text must hold: of each set of literals one. `ignore_case`: they are lower case, and so must the text be.

    `first`: the same of the line in which a match begins. `one_line`: no match goes on, or looks, beyond that line.
    """

    sets: Sequence[Sequence[str]]
    ignore_case: bool = False
    first: Sequence[Sequence[str]] = ()
    one_line: bool = False


NO_NEEDS = Needs([])
_DOT_IS_ANY = re.compile(r"\(\?[a-zA-Z]*s")  # a newline, too


@lru_cache(MAX_CHECKED)
def derive(pattern: str, *, ignore_case: bool = False) -> frozenset[Gate]:
    """The best set of gates of which every match of `pattern` contains one, in its first line.

    Raises NoGate without a gate of at least MIN_LENGTH bytes, and Unreadable.
    """
    parsed = parse(pattern, ignore_case=ignore_case)
    any_case = _any_case(parsed)
    best = _best(_of_sequence(list(parsed), _GATED), _GATED)
    if best is None:
        raise NoGate(
            f"has no literal of {MIN_LENGTH} characters that every match must contain in its first line; add one"
        )
    texts = {text.lower() if any_case else text for text in best}
    # `fault` finds `faults`, too.
    rarest = {text for text in texts if not any(other in text for other in texts - {text})}
    return frozenset(Gate(text.encode(), any_case) for text in rarest)


@lru_cache(MAX_CHECKED)
def needs(pattern: str) -> Needs:
    """What every text that `pattern` is found in holds, as `regex` reads it: the longest literals of it."""
    try:
        parsed = parse(pattern)
    except Unreadable:
        return NO_NEEDS
    any_case = _any_case(parsed)

    def best(how: _LiteralReading) -> list[list[str]]:
        sets = {literals for literals in _of_sequence(list(parsed), how) if len(literals) <= MAX_NEED_CHOICES}
        if any_case:
            sets = {frozenset(text.lower() for text in literals) for literals in sets}
        longest = sorted(sets, key=lambda literals: (-min(map(len, literals)), sorted(literals)))[:MAX_NEEDS]
        return [sorted(literals) for literals in longest]

    if _DOT_IS_ANY.search(pattern):
        return Needs(best(_WHOLE), any_case)
    return Needs(best(_WHOLE), any_case, best(_FIRST), not any(_sees_newline(*node) for node in parsed))


@lru_cache(MAX_CHECKED)
def needed_after(pattern: str) -> frozenset[str] | None:
    """Literals of which the lines after a text must have one to change what `pattern` finds in it; None if any lines may.
    In lower case where the pattern ignores case."""
    try:
        parsed = parse(pattern)
        if _DOT_IS_ANY.search(pattern) or _repeats_lines(parsed):
            return None
        literals = _after_newlines(list(parsed), [])
    except (Unreadable, NoGate):
        return None
    return frozenset(map(str.lower, literals)) if literals and _any_case(parsed) else literals


def _after_newlines(nodes: Sequence[Any], after: Sequence[Any]) -> frozenset[str]:
    """What must follow each newline that these nodes may read: in them, or in what comes `after` them."""
    literals = frozenset[str]()
    for number, (op, arg) in enumerate(nodes):
        rest = [*nodes[number + 1 :], *after]
        if not _sees_newline(op, arg) or (_is_optional_class(op, arg) and rest == _LINE_END):
            continue  # at `\s*$` the text's own line ends, too
        if op in _UNYIELDING or op is sre.AT:
            raise NoGate
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            literals |= _after_newlines(list(arg[1]), [])
            continue
        parts = inside(op, arg)
        if not parts:  # one character
            sets = [_pieces(of_node) for of_node in _of_sequence(rest, _WHOLE)]
            best = _best((pieces for pieces in sets if all(pieces)), _WHOLE)
            if best is None:
                raise NoGate
            literals |= best
        for part in parts:
            literals |= _after_newlines(list(part), rest)
    return literals


@lru_cache(MAX_CHECKED)
def needed_next(pattern: str, newlines: int) -> frozenset[str] | None:
    """The same for the first line after a text, and only for matches that have read so many newlines before it."""
    try:
        parsed = parse(pattern)
        if _DOT_IS_ANY.search(pattern) or _repeats_lines(parsed):
            return None
        literals, _ = _next(list(parsed), [], _Count(0, 0), newlines)
    except (Unreadable, NoGate):
        return None
    return frozenset(map(str.lower, literals)) if literals and _any_case(parsed) else literals


class _Count(NamedTuple):
    """How many newlines were read before a node."""

    least: int
    most: int

    def __or__(self, other: _Count) -> _Count:
        return _Count(min(self.least, other.least), max(self.most, other.most))


def _next(nodes: Sequence[Any], after: Sequence[Any], count: _Count, newlines: int) -> tuple[frozenset[str], _Count]:
    """What must follow one newline in its line, if it is the last of so many that these nodes may read; and the count
    after them.
    """
    literals = frozenset[str]()
    for number, (op, arg) in enumerate(nodes):
        rest = [*nodes[number + 1 :], *after]
        if not _sees_newline(op, arg) or (_is_optional_class(op, arg) and rest == _LINE_END):
            continue
        if op is sre.LITERAL:
            count = _Count(count.least + 1, count.most + 1)
            if count.least <= newlines <= count.most:
                best = _best((of_node for of_node in _of_sequence(rest, _FIRST) if all(of_node)), _FIRST)
                if best is None:
                    raise NoGate
                literals |= best
        elif op in (sre.SUBPATTERN, sre.BRANCH) or (op in REPEATS and arg[1] == 1 and op not in _UNYIELDING):
            parts = [_next(list(part), rest, count, newlines) for part in inside(op, arg)]
            literals = literals.union(*(of_part for of_part, _ in parts))
            counts = [part_count for _, part_count in parts] + ([count] if op in REPEATS and arg[0] == 0 else [])
            count = reduce(or_, counts)
        else:  # the next line may be one more of those that it reads
            raise NoGate
    return literals, count


def _is_optional_class(op: Any, arg: Any) -> bool:
    return op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and arg[0] == 0 and len(arg[2]) == 1 and not inside(*arg[2][0])


def _repeats_lines(parsed: Any) -> bool:
    """Whether a pattern asks again for what a group held that may hold a newline."""
    nodes = list(_every(parsed))
    groups = {arg[0] for op, arg in nodes if op is sre.SUBPATTERN and any(_sees_newline(*node) for node in arg[-1])}
    return any(op is sre.GROUPREF and arg in groups for op, arg in nodes)


def _every(nodes: Iterable[Any]) -> Iterator[Any]:
    """These nodes and all inside them."""
    for op, arg in nodes:
        yield op, arg
        for sequence in [arg[1]] if op in (sre.ASSERT, sre.ASSERT_NOT) else inside(op, arg):
            yield from _every(sequence)


_LINE_END = [(sre.AT, sre.AT_END)]
_UNYIELDING = (sre.ATOMIC_GROUP, sre.POSSESSIVE_REPEAT)  # what they have read they do not give back


def _pieces(literals: Iterable[str]) -> frozenset[str]:
    """The longest part of each literal that lies in one line."""
    return frozenset(max(literal.split("\n"), key=len) for literal in literals)


class _LiteralReading(NamedTuple):
    """How a pattern is read: which characters a literal may hold, and whether its first line is all that counts."""

    plain: Callable[[int], bool]
    least: int  # characters of a literal
    first_line: bool
    ends: Callable[[Any, Any], bool]  # whether a node may end the first line
    spellings: int = 1  # most literals in which a run with alternatives is spelt out


def _sees_newline(op: Any, arg: Any) -> bool:
    """Whether a node may read a newline, look at one, or ask for a text's end."""
    if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.CATEGORY):
        return "\n" in characters(op, arg, 0)
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return any(_sees_newline(*node) for node in arg[1])
    if op is sre.AT:
        return bool(arg == sre.AT_END_STRING)
    return any(_sees_newline(*node) for sequence in inside(op, arg) for node in sequence)


def _may_hold_newline(op: Any, arg: Any) -> bool:
    """Whether a newline written inside this node ends the first line. Classes such as \\s are taken as spaces."""
    if op is sre.LITERAL:
        return bool(arg == 10)
    if op is sre.IN:
        return (sre.LITERAL, 10) in arg and (sre.NEGATE, None) not in arg
    return any(_may_hold_newline(*node) for sequence in inside(op, arg) for node in sequence)


def _is_plain_for_gates(character: int) -> bool:
    return character < 128 and chr(character) not in _REWRITTEN


_GATED = _LiteralReading(
    _is_plain_for_gates, MIN_LENGTH, first_line=True, ends=_may_hold_newline, spellings=MAX_SPELLINGS
)
_WHOLE = _LiteralReading(
    lambda character: character not in _EQUAL_ASCII, 1, first_line=False, ends=lambda _op, _arg: False
)
_FIRST = _LiteralReading(lambda character: character not in {10, *_EQUAL_ASCII}, 1, first_line=True, ends=_sees_newline)


def _of_sequence(nodes: Sequence[Any], how: _LiteralReading) -> list[frozenset[str]]:
    """All sets of literals that a sequence offers: each of its literal runs, in all spellings, and its required parts."""
    literals: list[frozenset[str]] = []
    run = _NOTHING
    for op, arg in _without_groups(nodes):
        if op is sre.LITERAL and arg == 10 and how.first_line:  # only the first line of a block is gated
            break
        start = _start(op, arg, how)
        longer = _joined(run, start.texts, how)
        if longer is not None:
            run = longer
        if longer is None or not start.is_all:
            if all(run):
                literals.append(frozenset(run))
            run = start.texts if longer is None and start.is_all else _NOTHING
            literals.extend(_of_node(op, arg, how))
            if how.first_line and how.ends(op, arg):
                break
    if all(run):
        literals.append(frozenset(run))
    return literals


class _Start(NamedTuple):
    """The texts of which every match of a node begins with one. `is_all`: they are all that it reads."""

    texts: tuple[str, ...]
    is_all: bool


_NOTHING: tuple[str, ...] = ("",)
_UNKNOWN = _Start(_NOTHING, is_all=False)


def _start(op: Any, arg: Any, how: _LiteralReading) -> _Start:
    """A position and what is looked at have no width."""
    if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return _Start(_NOTHING, is_all=not how.ends(op, arg))
    if op is sre.LITERAL:
        return _Start((chr(arg),), is_all=True) if how.plain(arg) else _UNKNOWN
    if op is sre.IN and len(arg) <= how.spellings and all(kind is sre.LITERAL and how.plain(c) for kind, c in arg):
        return _Start(tuple(chr(character) for _, character in arg), is_all=True)
    if op is sre.BRANCH or (op is sre.SUBPATTERN and not arg[1]):
        starts = [_start_of_sequence(part, how) for part in inside(op, arg)]
    elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and tuple(arg[:2]) == (0, 1):
        starts = [_Start(_NOTHING, is_all=True), _start_of_sequence(arg[2], how)]
    else:
        return _UNKNOWN
    texts = tuple(dict.fromkeys(text for start in starts for text in start.texts))
    return _Start(texts, all(start.is_all for start in starts)) if len(texts) <= how.spellings else _UNKNOWN


def _start_of_sequence(nodes: Iterable[Any], how: _LiteralReading) -> _Start:
    texts = _NOTHING
    for op, arg in nodes:
        start = _start(op, arg, how)
        longer = _joined(texts, start.texts, how)
        if longer is None:
            return _Start(texts, is_all=False)
        texts = longer
        if not start.is_all:
            return _Start(texts, is_all=False)
    return _Start(texts, is_all=True)


def _joined(texts: Sequence[str], more: Sequence[str], how: _LiteralReading) -> tuple[str, ...] | None:
    """Each text with each of the others behind it; None if they are too many."""
    if len(texts) * len(more) > how.spellings:
        return None
    return tuple(text + end for text in texts for end in more)


def _without_groups(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes with those of plain groups in their place, so that a literal may begin in a group and go on behind it."""
    for op, arg in nodes:
        if op is sre.SUBPATTERN and not arg[1]:
            yield from _without_groups(arg[-1])
        else:
            yield op, arg


def _of_node(op: Any, arg: Any, how: _LiteralReading) -> list[frozenset[str]]:
    if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP) or (op in REPEATS and arg[0] >= 1):
        return _of_sequence(list(inside(op, arg)[0]), how)
    if op is sre.BRANCH:
        choices = [_best(_of_sequence(list(branch), how), how) for branch in inside(op, arg)]
        union = frozenset[str]().union(*(c for c in choices if c))
        if all(choices) and len(union) <= MAX_ALTERNATIVES:
            return [union]
    return []


def _any_case(parsed: Any) -> bool:
    return bool(parsed.state.flags & re.IGNORECASE) or _ignores_case_within(parsed)


def _ignores_case_within(nodes: Iterable[Any]) -> bool:
    """Whether some group ignores case, as in `(?i:error)`: then all gates do, which costs speed and misses nothing."""
    return any(
        (op is sre.SUBPATTERN and bool(arg[1] & re.IGNORECASE)) or any(map(_ignores_case_within, inside(op, arg)))
        for op, arg in nodes
    )


def _best(sets: Iterable[frozenset[str]], how: _LiteralReading) -> frozenset[str] | None:
    """The set whose shortest literal is longest; of equals, the one with fewest literals. Gates are cut, and are long
    enough with RARE_LENGTH characters.
    """
    best: frozenset[str] | None = None
    best_score = (0, 0, 0)
    for candidate in sets:
        cut = frozenset(_core(text) for text in candidate) if how.first_line else candidate
        shortest = min(map(len, cut))
        score = (min(shortest, RARE_LENGTH) if how is _GATED else shortest, -len(cut), shortest)
        if shortest >= how.least and score > best_score:
            best, best_score = cut, score
    return best


_LEVEL = re.compile(r"\b(?:error|exception|fatal|critical|warning|warn|info)\b[\])]?:? +", re.IGNORECASE)


def _core(text: str) -> str:
    """At most MAX_LENGTH characters of a literal, without spaces at its ends where it stays long enough.

    Programs paint the word of a level: what stands behind it, or before it, is the gate if that is rare enough.
    """
    level = _LEVEL.search(text)
    if level:
        around = text[level.end() :], text[: level.start()]
        text = next((part for part in around if len(part.strip()) >= RARE_LENGTH), text)
    cut = text[:MAX_LENGTH]
    return cut.strip() if len(cut.strip()) >= MIN_LENGTH else cut
