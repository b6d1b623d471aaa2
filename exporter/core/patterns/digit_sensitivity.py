"""Digit sensitivity: which digits of a text patterns look at. Lines that differ only in other digits share a verdict.

A flood of page faults has another pid and another `0x7f3a5c000000` in each line. What a pattern asks of them depends on
how far it comes: `Xid .*: 79, ` looks at two digits of a line with an Xid, wherever they stand, and at none of any other.
So a pattern is followed through the text with all its ways at once, as sets of places in the bits of integers. A way that
asks more of a digit than to be one is in doubt from there on. Where such a way comes to the pattern's end, the digits that
were asked for are looked at, and it is followed again with these as they are, until nothing is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from exporter.core.patterns.expression import Expression
from exporter.core.patterns.regex_safety import Class, characters
from exporter.core.patterns.required_literals import Needs
from exporter.core.patterns.syntax import REPEATS, Unreadable, parse, sre

_ADDRESS = re.compile(rb"0x(?<!\w0x)[0-9a-f]+(?:_[0-9a-f]+)*\b")  # NVIDIA's driver writes 0x7f3a_5c000000
_WORD = re.compile(rb"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{6,}\b")  # hexadecimal without a mark: `Ch 0000abcd`
_DECIMAL, _HEXADECIMAL = frozenset("0123456789"), frozenset("0123456789abcdef")
_TO_ZERO = bytes.maketrans(b"123456789abcdef", b"0" * 15)
_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
_REFERS = re.compile(r"\(\?P=|\\[1-9]")
_MAX_STEPS = 20_000  # of a pattern through a text, a µs or two each; no built-in pattern takes a tenth
_MAX_SPELLINGS = 32  # of what a group holds that is asked for again

_AT = {
    sre.AT_BEGINNING_STRING: r"\A", sre.AT_BEGINNING: r"^", sre.AT_END: r"$", sre.AT_END_STRING: r"\Z",
    sre.AT_BOUNDARY: r"\b", sre.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip


def shape_of(line: bytes) -> bytes:
    """What a line has in common with all in which only digits differ, and those of addresses: as long as the line.

    An address is told from other digits before an x by a byte that no ASCII line holds.
    """
    if b"0x" in line:
        line = _ADDRESS.sub(lambda found: b"\xfe" + found[0][1:].translate(_TO_ZERO), line)
    return line.translate(_ONE_DIGIT)


def widened(shape: bytes) -> bytes:
    """What a line of this shape has in common with all in which digits of hexadecimal words differ, too: as long as it is.

    Such a word is told from a decimal number in the same way.
    """
    return _WORD.sub(lambda found: b"\xff" * len(found[0]), shape)


def looked_at(expressions: Iterable[Expression], text: str, known: int = 0, starts: Iterable[int] | None = None) -> int:
    """The places of the digits that some pattern looks at in an ASCII text, as bits, with those that are known to be.

    All texts of its shape that have the same digits there are one to the patterns. `starts`: where a match may begin, if
    not anywhere.
    """
    seen, lower = _Text(text, known), _Text(text.lower(), known)
    ways = _Ways(_bits(starts if starts is not None else range(len(text) + 1)), 0)
    for one in expressions:
        if not (lower if one.needs.ignore_case else seen).may_hold(one.needs):
            continue
        come, _ = _follow(one.pattern, seen, ways)
        if come.perhaps:
            known |= _looked_at(one.pattern, text, known, ways)
            seen, lower = _Text(text, known), _Text(text.lower(), known)
    return known


def _looked_at(pattern: str, text: str, known: int, ways: _Ways) -> int:
    """The places, besides those that are known, of digits that a pattern looks at: of those that it asks for, the ones
    without which it is in doubt.
    """
    looked = steps = 0
    while (seen := _Text(text, known | looked)).open:
        come, look = _follow(pattern, seen, ways)
        if not come.perhaps:
            break
        looked |= look.unknown or look.asked or seen.open
        steps = look.steps
    for place in places_of(looked if steps * looked.bit_count() <= _MAX_STEPS else 0):
        less = looked & ~(1 << place)
        if not _follow(pattern, _Text(text, known | less), ways)[0].perhaps:
            looked = less
    return looked


def held(literals: Iterable[tuple[str, bool]], line: str, known: int = 0) -> int:
    """The same of literals, and whether they ignore case: of which is only asked whether a line holds them."""
    texts: dict[bool, _Text] = {}
    for literal, ignore_case in literals:
        while True:
            if ignore_case not in texts:
                texts[ignore_case] = _Text(line.lower() if ignore_case else line, known)
            come = texts[ignore_case].spelling(literal)
            if come.surely or not come.perhaps:
                break
            known |= come.asked
            texts.clear()
    return known


def goes_on(pattern: str, text: str, known: int, stop: int) -> bool:
    """Whether a match that begins in the first `stop` characters of an ASCII text may read, or look, on behind its end,
    whatever its open digits are.
    """
    look = _Look(_Text(text, known), refers=bool(_REFERS.search(pattern)))
    try:
        tree = _tree(pattern)
        look.sequence(list(tree), tree.state.flags, _Ways(_bits(range(stop + 1)), 0))
    except (_Unclear, Unreadable):
        return True
    return bool(look.reached >> len(text))


def read_from_start(pattern: str, text: str, known: int = 0) -> int:
    """The same of a pattern that reads a text from its beginning, whatever it comes to: all digits that it asks for."""
    while asked := _follow(pattern, _Text(text, known), _Ways(1, 0))[1].asked:
        known |= asked
    return known


def _follow(pattern: str, text: _Text, ways: _Ways) -> tuple[_Ways, _Look]:
    """Where the ways of a pattern end; in doubt where that is unclear."""
    look = _Look(text, refers=bool(_REFERS.search(pattern)))
    try:
        tree = _tree(pattern)
        return look.sequence(list(tree), tree.state.flags, ways), look
    except (_Unclear, Unreadable):
        look.asked = text.open
        return (ways.in_doubt() if text.open else ways), look


@lru_cache(maxsize=4096)
def _tree(pattern: str) -> Any:
    return parse(pattern)


class _Unclear(Exception):
    """A pattern has a node that is not followed, or takes too long."""


class _Ways(NamedTuple):
    """Where ways have come to: those that come there whatever the open digits are, and those that perhaps do."""

    surely: int
    perhaps: int

    def __or__(self, other: _Ways) -> _Ways:
        return _Ways(self.surely | other.surely, self.perhaps | other.perhaps)

    def __bool__(self) -> bool:
        return bool(self.surely or self.perhaps)

    def in_doubt(self) -> _Ways:
        return _Ways(0, self.surely | self.perhaps)


class _Spelling(NamedTuple):
    """Where a literal ends: surely, and perhaps; the open digits that it asks for."""

    surely: int
    perhaps: int
    asked: int


class _Text:
    """A text, and at which places which of its characters are. Of the digits in `open` only their kind is known."""

    def __init__(self, text: str, known: int) -> None:
        self.text = text
        raw = text.encode()
        addresses = [found.span() for found in _ADDRESS.finditer(raw)]
        hexadecimal = _bits(at for start, stop in addresses for at in range(start + 2, stop) if text[at] != "_")
        hexadecimal |= _bits(at for found in _WORD.finditer(raw) for at in range(*found.span()))
        self._hexadecimal = hexadecimal & ~known
        firm = hexadecimal | _bits(start for start, _ in addresses)  # the 0 of 0x
        digits = _bits(at for at, character in enumerate(text) if character in _DECIMAL)
        self._decimal = digits & ~known & ~firm
        self.open = self._decimal | self._hexadecimal
        self._places: dict[str, int] = {}
        for at, character in enumerate(text):
            if not self.open >> at & 1:
                self._places[character] = self._places.get(character, 0) | 1 << at
        self._accepted: dict[Class, tuple[int, int]] = {}
        self._at: dict[Any, int] = {}

    def accepted(self, some: Class) -> tuple[int, int]:
        """The places whose character is one of some: surely, and perhaps."""
        if some not in self._accepted:
            surely = perhaps = 0
            for character, places in self._places.items():
                if character in some:
                    surely |= places
            for places, digits in ((self._decimal, _DECIMAL), (self._hexadecimal, _HEXADECIMAL)):
                if digits <= some:
                    surely |= places
                elif digits & some:
                    perhaps |= places
            self._accepted[some] = surely, perhaps
        return self._accepted[some]

    def may_hold(self, needs: Needs) -> bool:
        """Whether it holds one literal of each set, were its open digits others."""
        return all(
            any(literal in self.text or self._may_hold(literal) for literal in literals) for literals in needs.sets
        )

    def _may_hold(self, literal: str) -> bool:
        come = self.spelling(literal)
        return bool(come.surely or come.perhaps)

    def spelling(self, literal: str) -> _Spelling:
        """Follow a literal."""
        surely, perhaps, asked = -1, 0, 0
        for character in literal:
            sure, open_ = self.accepted(frozenset(character))
            asked |= (surely | perhaps) & open_
            perhaps = (surely & open_ | perhaps & (sure | open_)) << 1
            surely = (surely & sure) << 1
        return _Spelling(surely, perhaps, asked)

    def at(self, where: Any) -> int:
        """The places that are a line's beginning, a word's boundary or the like, which no digit changes."""
        if where not in self._at:
            if where not in _AT:
                raise _Unclear
            self._at[where] = _bits(found.start() for found in re.finditer(_AT[where], self.text, re.MULTILINE))
        return self._at[where]


@dataclass(slots=True)
class _Look:
    """One pattern on its way through one text. `asked`: the open digits that some way asked more of than to be digits."""

    text: _Text
    asked: int = 0
    unknown: int = 0  # those in what a group holds that is asked for again
    reached: int = 0  # the places behind what any way has read
    steps: int = 0
    refers: bool = False  # the pattern asks again for what a group held
    spellings: dict[int, set[str] | None] = field(default_factory=dict)

    def sequence(self, nodes: Sequence[Any], flags: int, ways: _Ways) -> _Ways:
        for op, arg in nodes:
            if not ways:
                break
            ways = self._step(op, arg, flags, ways)
        return ways

    def _step(self, op: Any, arg: Any, flags: int, ways: _Ways) -> _Ways:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return self._character(characters(op, arg, flags), ways)
        if op is sre.AT:
            there = self.text.at(arg)
            return _Ways(ways.surely & there, ways.perhaps & there)
        if op is sre.BRANCH:
            come = _Ways(0, 0)
            for branch in arg[1]:
                come |= self.sequence(list(branch), flags, ways)
            return come
        if op is sre.SUBPATTERN:
            group, add, remove, body = arg
            flags = (flags | add) & ~remove
            if group is not None and self.refers:
                self._spell(group, list(body), flags, ways)
            return self.sequence(list(body), flags, ways)
        if op in (sre.POSSESSIVE_REPEAT, sre.ATOMIC_GROUP):
            return self._kept(op, arg, flags, ways)
        if op in REPEATS:
            return self._repeated(arg, flags, ways)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._asserted(arg, flags, ways)
        if op is sre.GROUPREF and not flags & re.IGNORECASE:
            return self._spelt(arg, ways)
        raise _Unclear

    def _character(self, some: Class, ways: _Ways) -> _Ways:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise _Unclear
        surely, perhaps = self.text.accepted(some)
        self.asked |= (ways.surely | ways.perhaps) & perhaps
        doubtful = ways.surely & perhaps | ways.perhaps & (surely | perhaps)
        come = _Ways((ways.surely & surely) << 1, doubtful << 1)
        self.reached |= come.surely | come.perhaps
        return come

    def _repeated(self, arg: Any, flags: int, ways: _Ways) -> _Ways:
        least, most, body = int(arg[0]), arg[1], list(arg[2])
        for _ in range(least):
            if not ways:
                return ways
            ways = self.sequence(body, flags, ways)
        come, count = ways, least
        while ways and (most is sre.MAXREPEAT or count < most):
            further = self.sequence(body, flags, ways)
            ways = _Ways(further.surely & ~come.surely, further.perhaps & ~come.perhaps)
            come |= ways
            count += 1
        return come

    def _kept(self, op: Any, arg: Any, flags: int, ways: _Ways) -> _Ways:
        """What is matched once and for all: a way that only perhaps comes through may take the place of one that does."""
        before, self.asked = self.asked, 0
        come = (
            self._repeated(arg, flags, ways) if op is sre.POSSESSIVE_REPEAT else self.sequence(list(arg), flags, ways)
        )
        doubt, self.asked = self.asked, before | self.asked
        return come.in_doubt() if doubt else come

    def _asserted(self, arg: Any, flags: int, ways: _Ways) -> _Ways:
        """A look ahead or behind lets every way through; one that it may stop is in doubt."""
        direction, body = arg
        least, most = (0, 0) if direction > 0 else body.getwidth()
        doubtful = 0
        if self._asks(list(body), flags, _shifted(ways.surely, least, most)):
            for place in places_of(ways.surely):
                if asked := self._asks(list(body), flags, _shifted(1 << place, least, most)):
                    doubtful |= 1 << place
                    self.asked |= asked
        if ways.perhaps:
            self._asks(list(body), flags, _shifted(ways.perhaps, least, most))  # for what it reaches
        return _Ways(ways.surely & ~doubtful, ways.perhaps | doubtful)

    def _asks(self, body: Sequence[Any], flags: int, starts: int) -> int:
        before, self.asked = self.asked, 0
        self.sequence(body, flags, _Ways(starts, 0))
        asks, self.asked = self.asked, before
        return asks

    def _spell(self, group: int, body: Sequence[Any], flags: int, ways: _Ways) -> None:
        """Note what a group may hold; None where that is not known."""
        starts, known = ways.surely | ways.perhaps, self.spellings.setdefault(group, set())
        for start in places_of(starts) if known is not None and starts.bit_count() <= _MAX_SPELLINGS else ():
            come = self.sequence(body, flags, _Ways(1 << start, 0))
            for stop in places_of(come.surely | come.perhaps):
                if known is not None:
                    known.add(self.text.text[start:stop])
                if unknown := self.text.open & _bits(range(start, stop)):
                    known = None
                    self.unknown |= unknown
        if known is None or starts.bit_count() > _MAX_SPELLINGS or len(known) > _MAX_SPELLINGS:
            self.spellings[group] = None

    def _spelt(self, group: int, ways: _Ways) -> _Ways:
        """What a group held comes again."""
        spellings = self.spellings.get(group, set())
        if spellings is None:
            self.asked |= self.text.open
            return _Ways(0, _bits(range(len(self.text.text) + 1)))
        come = _Ways(0, 0)
        for spelling in spellings:
            further = ways
            for character in spelling:
                further = self._character(frozenset(character), further)
            come |= further
        return come


def _bits(places: Iterable[int]) -> int:
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits


def places_of(bits: int) -> Iterator[int]:
    """The places that bits stand for, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _shifted(places: int, least: int, most: int) -> int:
    """The places that lie from `least` to `most` before others."""
    bits = 0
    for distance in range(least, min(most, places.bit_length()) + 1):
        bits |= places >> distance
    return bits
