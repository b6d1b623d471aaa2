"""A text whose runs of digits are open: of any length, of any characters of their kind. Where patterns come to in it.

Knows no patterns: `digit_sensitivity` follows them through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from exporter.core.patterns.masks import LONGEST_RUN, RUN, SHORT_RUN, Looked
from exporter.core.patterns.regex_safety import Class
from exporter.core.patterns.syntax import sre

DECIMAL, HEXADECIMAL = frozenset("0123456789"), frozenset("0123456789abcdef")

_AT = {
    sre.AT_BEGINNING_STRING: r"\A", sre.AT_BEGINNING: r"^", sre.AT_END: r"$", sre.AT_END_STRING: r"\Z",
    sre.AT_BOUNDARY: r"\b", sre.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip


class Ways(NamedTuple):
    """Where ways have come to: those that come there whatever the open runs are, and those that perhaps do.

    `later` and `early` are places within runs. Of a `later` one the run's start, of an `early` one its end is a place that
    is as far and tried first.
    """

    surely: int
    perhaps: int = 0
    later: int = 0
    early: int = 0

    def __or__(self, other: Ways) -> Ways:
        return Ways(
            self.surely | other.surely,
            self.perhaps | other.perhaps,
            self.later | other.later,
            self.early | other.early,
        )

    def __bool__(self) -> bool:
        return bool(self.surely or self.perhaps or self.later or self.early)

    @property
    def places(self) -> int:
        return self.surely | self.perhaps | self.later | self.early

    def in_doubt(self) -> Ways:
        return Ways(0, self.places)


class OpenText:
    """A text as a row of places. Of an open run only its kind is known, and it has four: its start, behind one character,
    further within, its end. Of a sized run each character has its place.
    """

    def __init__(self, text: str, looked: Looked, *, lower: bool = False) -> None:
        self.text = text.lower() if lower else text
        self._run_at: dict[int, int] = {}  # by the places of open and sized runs
        self._boundary: list[int] = []  # by the positions in the text; within an open run -1
        self._places: dict[str, int] = {}
        self._sized = {DECIMAL: 0, HEXADECIMAL: 0}
        self._starts = {DECIMAL: 0, HEXADECIMAL: 0}
        self.least, self.most = [0], [0]  # characters before a place
        at = 0
        for number, found in enumerate(RUN.finditer(text.encode())):
            start = found.start() + found[0].startswith(b"x")
            self._fixed(self.text[at:start])
            at = found.end()
            kind = DECIMAL if found[0].isdigit() else HEXADECIMAL
            if number in looked.kept:
                self._fixed(self.text[start:at])
            elif number in looked.sized:
                self._sized_run(number, kind, at - start)
            else:
                self._open_run(number, kind, at - start, start - found.start())
        self._fixed(self.text[at:])
        self.size = len(self.least) - 1
        self._boundary.append(self.size)
        self.starts = self._starts[DECIMAL] | self._starts[HEXADECIMAL]
        self.inside = self.starts << 2
        self.within = self.starts << 1 | self.inside
        self.open = self.starts | self._sized[DECIMAL] | self._sized[HEXADECIMAL]
        self._accepted: dict[Class, Accepted] = {}
        self._at: dict[Any, int] = {}

    def _fixed(self, text: str) -> None:
        for character in text:
            place = len(self.least) - 1
            self._boundary.append(place)
            self._places[character] = self._places.get(character, 0) | 1 << place
            self._step(1, 1)

    def _sized_run(self, number: int, kind: Class, length: int) -> None:
        for _ in range(length):
            place = len(self.least) - 1
            self._boundary.append(place)
            self._run_at[place] = number
            self._sized[kind] |= 1 << place
            self._step(1, 1)

    def _open_run(self, number: int, kind: Class, length: int, before: int) -> None:
        place = len(self.least) - 1
        self._boundary += [place] + [-1] * (length - 1)
        self._run_at[place] = number
        self._starts[kind] |= 1 << place
        short = SHORT_RUN - before
        least, most = (1, short) if length <= short else (short + 1, LONGEST_RUN - before)
        self._step(1, 1)
        self._step(0, most - 2)
        self._step(least - 1, 1)

    def _step(self, least: int, most: int) -> None:
        self.least.append(self.least[-1] + least)
        self.most.append(self.most[-1] + most)

    def place(self, position: int) -> int:
        """The place of a position in the text; -1 within an open run."""
        return self._boundary[position]

    def spelt(self, start: int, stop: int) -> str | None:
        """The characters between two places; None if there is an open run."""
        if range_of(start, stop - 1) & (self.open | self.within):
            return None
        return self.text[self._boundary.index(start) : self._boundary.index(stop)]

    def anywhere(self, stop: int | None = None) -> Ways:
        """The ways that begin at any place, up to a position in the text."""
        last = self.size if stop is None else self._boundary[stop]
        places = range_of(0, last)
        return Ways(places & ~self.within, later=places & self.inside)

    def closer(self, looked: Looked, asked: int) -> Looked:
        """What is looked at if some runs, which have these places, are looked at more closely."""
        sized = {self._run_at[place] for place in places_of(asked & self.starts)}
        kept = {self._run_at[place] for place in places_of(asked & self.open & ~self.starts)}
        if not sized | kept:
            kept = set(self._run_at.values())
        return looked | Looked(frozenset(sized), frozenset(kept))

    def accepted(self, some: Class) -> Accepted:
        """What a class of characters reads."""
        if some not in self._accepted:
            surely = perhaps = full = partly = 0
            for character, places in self._places.items():
                if character in some:
                    surely |= places
            for kind in (DECIMAL, HEXADECIMAL):
                if kind <= some:
                    surely |= self._sized[kind]
                    full |= self._starts[kind]
                elif kind & some:
                    perhaps |= self._sized[kind]
                    partly |= self._starts[kind]
            self._accepted[some] = Accepted(self, surely, perhaps, full, partly)
        return self._accepted[some]

    def at(self, where: Any) -> int:
        """The places that are a line's beginning, a word's boundary or the like, which no run changes."""
        if where not in self._at:
            if where not in _AT:
                raise Unclear
            found = (self._boundary[one.start()] for one in re.finditer(_AT[where], self.text, re.MULTILINE))
            self._at[where] = bits_of(place for place in found if place >= 0)
        return self._at[where]


class Unclear(Exception):
    """A pattern has a node that is not followed, or takes too long."""


class Accepted:
    """What a class of characters reads of a text: which characters surely and perhaps, which open runs fully and partly."""

    def __init__(self, text: OpenText, surely: int, perhaps: int, full: int, partly: int) -> None:
        self.surely, self.perhaps, self.full, self.partly = surely, perhaps, full, partly
        self._text = text

    @cached_property
    def ends(self) -> list[int]:
        """By the places, how far a loop surely reads."""
        return self._ends(self.surely | self.full)

    @cached_property
    def may_end(self) -> list[int]:
        """By the places, how far a loop perhaps reads."""
        if not self.perhaps | self.partly:
            return self.ends
        return self._ends(self.surely | self.full | self.perhaps | self.partly)

    def _ends(self, read: int) -> list[int]:
        text, size = self._text, self._text.size
        read |= (read & text.starts) << 1 | (read & text.starts) << 2
        ends = [size] * (size + 1)
        end = size
        for place in range(size - 1, -1, -1):
            if not read >> place & 1:
                end = place
            ends[place] = end
        return ends


def bits_of(places: Iterable[int]) -> int:
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits


def range_of(first: int, last: int) -> int:
    """The places from the first to the last."""
    return (1 << last + 1) - (1 << first) if first <= last else 0


def places_of(bits: int) -> Iterator[int]:
    """The places that bits stand for, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
