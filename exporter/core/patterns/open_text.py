"""A text whose runs of digits are open: an automaton that accepts all texts of a mask.

A state is a position between characters, a frontier a set of states as the bits of an integer: where the paths of a search
have come to.

Knows no patterns: `pattern_walk` follows them through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from exporter.core.patterns.masks import LONGEST_RUN, RUN, SHORT_RUN, SensitiveRuns
from exporter.core.patterns.regex_safety import Class
from exporter.core.patterns.syntax import sre

DECIMAL, HEXADECIMAL = frozenset("0123456789"), frozenset("0123456789abcdef")

_ANCHORS = {
    sre.AT_BEGINNING_STRING: r"\A", sre.AT_BEGINNING: r"^", sre.AT_END: r"$", sre.AT_END_STRING: r"\Z",
    sre.AT_BOUNDARY: r"\b", sre.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip


class Frontier(NamedTuple):
    """The states that the paths of a search have reached.

    `certain`: reached whatever the open runs are. `possible`: reached for some runs. The other two are certain states inside
    a run, of paths that are tried only after another: `after_start` after the path at the run's start (a lazy loop),
    `before_end` after the path at its end (a greedy loop).
    """

    certain: int
    possible: int = 0
    after_start: int = 0
    before_end: int = 0

    def __or__(self, other: Frontier) -> Frontier:
        return Frontier(
            self.certain | other.certain,
            self.possible | other.possible,
            self.after_start | other.after_start,
            self.before_end | other.before_end,
        )

    def __bool__(self) -> bool:
        return bool(self.certain or self.possible or self.after_start or self.before_end)

    @property
    def states(self) -> int:
        return self.certain | self.possible | self.after_start | self.before_end

    def as_possible(self) -> Frontier:
        return Frontier(0, self.states)


class OpenText:
    """A text as a row of states. An open run has four: its start, after one character, further inside, its end.

    A run of which the length is sensitive has a state for each character, which may be any of its kind.
    """

    def __init__(self, text: str, sensitive: SensitiveRuns, *, lower: bool = False) -> None:
        self.text = text.lower() if lower else text
        self._run_at: dict[int, int] = {}  # by the states before their characters
        self._boundary: list[int] = []  # the states of positions in the text; -1 inside an open run
        self._states_of: dict[str, int] = {}
        self._sized = {DECIMAL: 0, HEXADECIMAL: 0}
        self._starts = {DECIMAL: 0, HEXADECIMAL: 0}
        self.least, self.most = [0], [0]  # characters before each state
        at = self.runs = 0
        for number, match in enumerate(RUN.finditer(text.encode())):
            start = match.start() + match[0].startswith(b"x")
            self._fixed(self.text[at:start])
            at, self.runs = match.end(), number + 1
            kind = DECIMAL if match[0].isdigit() else HEXADECIMAL
            if number in sensitive.characters:
                self._fixed(self.text[start:at])
            elif number in sensitive.lengths:
                self._sized_run(number, kind, at - start)
            else:
                self._open_run(number, kind, at - start, start - match.start())
        self._fixed(self.text[at:])
        self.size = len(self.least) - 1
        self._boundary.append(self.size)
        self.starts = self._starts[DECIMAL] | self._starts[HEXADECIMAL]
        self.inside = self.starts << 2
        self.within = self.starts << 1 | self.inside
        self.open = self.starts | self._sized[DECIMAL] | self._sized[HEXADECIMAL]
        self._accepted: dict[Class, Accepted] = {}
        self._anchors: dict[Any, int] = {}

    def _fixed(self, text: str) -> None:
        for character in text:
            state = len(self.least) - 1
            self._boundary.append(state)
            self._states_of[character] = self._states_of.get(character, 0) | 1 << state
            self._step(1, 1)

    def _sized_run(self, number: int, kind: Class, length: int) -> None:
        for _ in range(length):
            state = len(self.least) - 1
            self._boundary.append(state)
            self._run_at[state] = number
            self._sized[kind] |= 1 << state
            self._step(1, 1)

    def _open_run(self, number: int, kind: Class, length: int, before: int) -> None:
        state = len(self.least) - 1
        self._boundary += [state] + [-1] * (length - 1)
        self._run_at[state] = number
        self._starts[kind] |= 1 << state
        short = SHORT_RUN - before
        least, most = (1, short) if length <= short else (short + 1, LONGEST_RUN - before)
        self._step(1, 1)
        self._step(0, most - 2)
        self._step(least - 1, 1)

    def _step(self, least: int, most: int) -> None:
        self.least.append(self.least[-1] + least)
        self.most.append(self.most[-1] + most)

    def state(self, position: int) -> int:
        """The state of a position in the text; -1 inside an open run."""
        return self._boundary[position]

    def literal_between(self, start: int, stop: int) -> str | None:
        """The characters between two states; None if there is an open run."""
        if range_of(start, stop - 1) & (self.open | self.within):
            return None
        return self.text[self._boundary.index(start) : self._boundary.index(stop)]

    def all_starts(self, stop: int | None = None) -> Frontier:
        """The frontier of a search that may begin anywhere, up to a position in the text."""
        last = self.size if stop is None else self._boundary[stop]
        states = range_of(0, last)
        return Frontier(states & ~self.within, after_start=states & self.inside)

    def refine(self, sensitive: SensitiveRuns, tested: int) -> SensitiveRuns:
        """The sensitive runs with the tested ones: of open runs the length, of others the characters."""
        lengths = {self._run_at[state] for state in states_in(tested & self.starts)}
        characters = {self._run_at[state] for state in states_in(tested & self.open & ~self.starts)}
        if not lengths | characters:
            characters = set(self._run_at.values())
        return sensitive | SensitiveRuns(frozenset(lengths), frozenset(characters))

    def accepted(self, characters_read: Class) -> Accepted:
        """What a class of characters reads, cached."""
        if characters_read not in self._accepted:
            certain = possible = full = partial = 0
            for character, states in self._states_of.items():
                if character in characters_read:
                    certain |= states
            for kind in (DECIMAL, HEXADECIMAL):
                if kind <= characters_read:
                    certain |= self._sized[kind]
                    full |= self._starts[kind]
                elif kind & characters_read:
                    possible |= self._sized[kind]
                    partial |= self._starts[kind]
            self._accepted[characters_read] = Accepted(self, certain, possible, full, partial)
        return self._accepted[characters_read]

    def anchor_states(self, anchor: Any) -> int:
        """The states at which an anchor such as ^ or \\b holds, outside open runs."""
        if anchor not in self._anchors:
            if anchor not in _ANCHORS:
                raise Unclear
            match = (self._boundary[one.start()] for one in re.finditer(_ANCHORS[anchor], self.text, re.MULTILINE))
            self._anchors[anchor] = bits_of(state for state in match if state >= 0)
        return self._anchors[anchor]


class Unclear(Exception):
    """A pattern has a node that is not simulated, or takes too many steps."""


class Accepted:
    """What a class of characters reads of a text: `certain` and `possible` characters, `full` and `partial` open runs."""

    def __init__(self, text: OpenText, certain: int, possible: int, full: int, partial: int) -> None:
        self.certain, self.possible, self.full, self.partial = certain, possible, full, partial
        self._text = text

    @cached_property
    def ends(self) -> list[int]:
        """For each state, how far a loop certainly reads."""
        return self._ends(self.certain | self.full)

    @cached_property
    def possible_ends(self) -> list[int]:
        """For each state, how far a loop possibly reads."""
        if not self.possible | self.partial:
            return self.ends
        return self._ends(self.certain | self.full | self.possible | self.partial)

    def _ends(self, read: int) -> list[int]:
        text, size = self._text, self._text.size
        read |= (read & text.starts) << 1 | (read & text.starts) << 2
        ends = [size] * (size + 1)
        end = size
        for state in range(size - 1, -1, -1):
            if not read >> state & 1:
                end = state
            ends[state] = end
        return ends


def bits_of(states: Iterable[int]) -> int:
    bits = 0
    for state in states:
        bits |= 1 << state
    return bits


def range_of(first: int, last: int) -> int:
    """The bits from the first to the last."""
    return (1 << last + 1) - (1 << first) if first <= last else 0


def states_in(bits: int) -> Iterator[int]:
    """The states that bits stand for, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
