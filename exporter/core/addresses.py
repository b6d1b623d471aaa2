"""Which texts differ in nothing but addresses that no pattern looks into: what one shows, and where, the others show too.

A flood of page faults has another `0x7f3a5c000000` in each line. Unlike digits, letters cannot be exchanged once for all:
some pattern looks for an `a` wherever it may begin. So a pattern is followed through one text with all its ways at once,
as sets of places in the bits of integers: a way that asks more of an address than to be hexadecimal may come through or
not, and from there on all is perhaps. Where no such way comes to the pattern's end, the pattern sees no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from exporter.core.backtracking import Class, characters
from exporter.core.expression import Expression
from exporter.core.gates import Needs
from exporter.core.patterns import OF_REGEX_ALONE, REPEATS, Unreadable, parse, sre

_ADDRESS = re.compile(rb"0x(?<!\w0x)[0-9a-f]+(?:_[0-9a-f]+)*\b")  # NVIDIA's driver writes 0x7f3a_5c000000
_DIGITS = frozenset("0123456789abcdef")
_TO_ZERO = bytes.maketrans(b"123456789abcdef", b"0" * 15)
_REFERS = re.compile(r"\(\?P=|\\[1-9]")
_MAX_SPELLINGS = 32  # of what a group holds that is asked for again

_AT = {
    sre.AT_BEGINNING_STRING: r"\A", sre.AT_BEGINNING: r"^", sre.AT_END: r"$", sre.AT_END_STRING: r"\Z",
    sre.AT_BOUNDARY: r"\b", sre.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip


def without_addresses(line: bytes) -> bytes:
    """A line with the digits of its addresses all 0, as long as before."""
    return _ADDRESS.sub(lambda found: found[0].translate(_TO_ZERO), line) if b"0x" in line else line


def first_address(line: bytes) -> int:
    """Where the first address of a line begins; its length if it has none."""
    found = _ADDRESS.search(line)
    return found.start() if found else len(line)


def look_into(expressions: Iterable[Expression], text: str, starts: Iterable[int] | None = None) -> bool:
    """Whether one of some patterns may find something else in a text, ASCII of one line, were its addresses others.

    `starts`: where a match may begin, if not anywhere.
    """
    seen, lower = _Text(text), _Text(text.lower())
    ways = _Ways(_bits(starts if starts is not None else range(len(text) + 1)), 0)
    return any(
        _follow(one.pattern, seen, ways)[0].perhaps
        for one in expressions
        if (lower if one.needs.ignore_case else seen).may_hold(one.needs)
    )


def decide(pattern: str, text: str) -> bool:
    """Whether the addresses may decide how far a pattern comes from the beginning of a text."""
    return _follow(pattern, _Text(text), _Ways(1, 0))[1]


def _follow(pattern: str, text: _Text, ways: _Ways) -> tuple[_Ways, bool]:
    """Where the ways of a pattern end, and whether any asked for more of an address; in doubt where that is unclear."""
    look = _Look(text, refers=bool(_REFERS.search(pattern)))
    try:
        tree = _tree(pattern)
        return look.sequence(list(tree), tree.state.flags, ways), look.asked
    except (_Unclear, Unreadable):
        return ways.in_doubt(), True


@lru_cache(maxsize=4096)
def _tree(pattern: str) -> Any:
    if OF_REGEX_ALONE.search(pattern):
        raise Unreadable
    return parse(pattern)


class _Unclear(Exception):
    """A pattern has a node that is not followed."""


class _Ways(NamedTuple):
    """Where ways have come to: those that come there whatever the addresses are, and those that perhaps do."""

    surely: int
    perhaps: int

    def __or__(self, other: _Ways) -> _Ways:
        return _Ways(self.surely | other.surely, self.perhaps | other.perhaps)

    def __bool__(self) -> bool:
        return bool(self.surely or self.perhaps)

    def in_doubt(self) -> _Ways:
        return _Ways(0, self.surely | self.perhaps)


class _Text:
    """A text, and at which places which of its characters are."""

    def __init__(self, text: str) -> None:
        self.text = text
        places = [
            at
            for found in _ADDRESS.finditer(text.encode())
            for at in range(found.start() + 2, found.end())
            if text[at] != "_"
        ]
        self.blurred = _bits(places)
        self._places: dict[str, int] = {}
        for at, character in enumerate(text):
            if not self.blurred >> at & 1:
                self._places[character] = self._places.get(character, 0) | 1 << at
        self._accepted: dict[Class, tuple[int, int]] = {}
        self._at: dict[Any, int] = {}

    def accepted(self, some: Class) -> tuple[int, int]:
        """The places whose character is one of some: surely, and perhaps."""
        if some not in self._accepted:
            surely = 0
            for character, places in self._places.items():
                if character in some:
                    surely |= places
            alike = some & _DIGITS
            if alike == _DIGITS:
                surely |= self.blurred
            self._accepted[some] = surely, self.blurred if alike and alike != _DIGITS else 0
        return self._accepted[some]

    def may_hold(self, needs: Needs) -> bool:
        """Whether it holds one literal of each set, were its addresses others."""
        return all(
            any(literal in self.text or self._may_hold(literal) for literal in literals) for literals in needs.sets
        )

    def _may_hold(self, literal: str) -> bool:
        places = -1
        for character in literal:
            places = (places & sum(self.accepted(frozenset(character)))) << 1
        return bool(places)

    def places_of(self, where: Any) -> int:
        """The places that are a line's beginning, a word's boundary or the like, which no address changes."""
        if where not in self._at:
            if where not in _AT:
                raise _Unclear
            self._at[where] = _bits(found.start() for found in re.finditer(_AT[where], self.text, re.MULTILINE))
        return self._at[where]


@dataclass(slots=True)
class _Look:
    """One pattern on its way through one text. `asked`: some way that surely came there asked for more of an address."""

    text: _Text
    asked: bool = False
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
            there = self.text.places_of(arg)
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
        surely, perhaps = self.text.accepted(some)
        self.asked = self.asked or bool(ways.surely & perhaps)
        doubtful = ways.surely & perhaps | ways.perhaps & (surely | perhaps)
        return _Ways((ways.surely & surely) << 1, doubtful << 1)

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
        before, self.asked = self.asked, False
        come = (
            self._repeated(arg, flags, ways) if op is sre.POSSESSIVE_REPEAT else self.sequence(list(arg), flags, ways)
        )
        doubt, self.asked = self.asked, before or self.asked
        return come.in_doubt() if doubt else come

    def _asserted(self, arg: Any, flags: int, ways: _Ways) -> _Ways:
        """A look ahead or behind lets every way through; one that it may stop is in doubt."""
        direction, body = arg
        least, most = (0, 0) if direction > 0 else body.getwidth()
        doubtful = 0
        if self._asks(list(body), flags, _shifted(ways.surely, least, most)):
            for place in _places(ways.surely):
                if self._asks(list(body), flags, _shifted(1 << place, least, most)):
                    doubtful |= 1 << place
        self.asked = self.asked or bool(doubtful)
        return _Ways(ways.surely & ~doubtful, ways.perhaps | doubtful)

    def _asks(self, body: Sequence[Any], flags: int, starts: int) -> bool:
        before, self.asked = self.asked, False
        self.sequence(body, flags, _Ways(starts, 0))
        asks, self.asked = self.asked, before
        return asks

    def _spell(self, group: int, body: Sequence[Any], flags: int, ways: _Ways) -> None:
        """Note what a group may hold; None where that is not known."""
        starts, known = ways.surely | ways.perhaps, self.spellings.setdefault(group, set())
        for start in _places(starts) if known is not None and starts.bit_count() <= _MAX_SPELLINGS else ():
            come = self.sequence(body, flags, _Ways(1 << start, 0))
            for stop in _places(come.surely | come.perhaps):
                if known is not None:
                    known.add(self.text.text[start:stop])
                if self.text.blurred & _bits(range(start, stop)):
                    known = None
        if known is None or starts.bit_count() > _MAX_SPELLINGS or len(known) > _MAX_SPELLINGS:
            self.spellings[group] = None

    def _spelt(self, group: int, ways: _Ways) -> _Ways:
        """What a group held comes again."""
        spellings = self.spellings.get(group, set())
        if spellings is None:
            self.asked = True
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


def _places(bits: int) -> Iterator[int]:
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
