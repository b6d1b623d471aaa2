"""Patterns that can take exponential time: loops that can read one text in two ways.

`(?:\\w+ ?)+x` reads "aa" as one word or as two; where no x follows, a backtracking engine tries all 2^n ways. Exact for
what is regular: a loop is exponential if, and only if, its automaton has two paths of one text from a position to a
position (Weber and Seidl 1991). A look-around counts as empty, an atomic match as read in one way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from exporter.core.patterns.syntax import REPEATS, inside, parse, sre
from exporter.core.values import dataclass

MANY = 8  # a repeat counts as a loop above this, and as so many copies below: 2^8 ways are soon tried
MAX_POSITIONS = 256  # of a loop that is looked at; the largest of the built-in packs has a quarter of that
CHARACTERS = (*map(chr, range(128)), *"é“\u2003٣")  # a letter, a sign, a space and a digit for all beyond ASCII
_BEYOND = frozenset(CHARACTERS[128:])
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_SPACE: r"\S", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip

_OF_CHARACTERS = int(re.IGNORECASE | re.DOTALL)  # as a number: flags themselves take 2 µs

Class = frozenset[str]


def ambiguous_loop(pattern: str) -> str | None:
    """A text that some loop of a pattern can read in two ways: "aa" for `(?:a+)+`. None if no loop can."""
    parsed = parse(pattern)
    for body, flags in _loops(list(parsed), parsed.state.flags):
        loop = Loop()
        whole = loop.sequence(body, flags)
        loop.join(whole.last, whole.first)
        if len(loop.classes) <= MAX_POSITIONS and (text := loop.ambiguous_text()):
            return text
    return None


def _loops(nodes: Sequence[Any], flags: int) -> Iterator[tuple[Any, int]]:
    """The body of each outermost loop, and the flags there. Loops within are looked at with it."""
    for op, arg in nodes:
        if op in REPEATS and arg[1] > MANY and op is not sre.POSSESSIVE_REPEAT:
            yield list(arg[2]), flags
        elif op is not sre.ATOMIC_GROUP:
            for sequence in inside(op, arg):
                yield from _loops(list(sequence), flags_within(op, arg, flags))


def flags_within(op: Any, arg: Any, flags: int) -> int:
    return (flags | arg[1]) & ~arg[2] if op is sre.SUBPATTERN else flags


@dataclass(frozen=True, slots=True)
class _PatternPart:
    """A part of a loop: the positions that it can begin and end with, and whether it can be empty."""

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    empty: bool = True

    def optional(self) -> _PatternPart:
        return _PatternPart(self.first, self.last, empty=True)


class Loop:
    """The positions of a loop's body (Glushkov's automaton): what each reads, and which may follow it, each as often as
    there are ways to come there.
    """

    def __init__(self) -> None:
        self.classes: list[Class] = []
        self.follow: list[list[int]] = []

    def sequence(self, nodes: Sequence[Any], flags: int, *, atomic: bool = False) -> _PatternPart:
        whole = _PatternPart()
        for op, arg in nodes:
            whole = self._then(whole, self._part(op, arg, flags, atomic))
        return whole

    def join(self, last: Sequence[int], first: Sequence[int]) -> None:
        for position in last:
            self.follow[position].extend(first)

    def ambiguous_text(self) -> str | None:
        """The shortest text of two paths that part and meet again. All positions lie on one cycle, the loop itself."""
        queue: list[tuple[int, int, str]] = []
        seen: set[tuple[int, int]] = set()
        for position, following in enumerate(self.follow):
            start = sample(self.classes[position])
            for index, a in enumerate(following):
                for b in following[index + 1 :]:
                    if common := self.classes[a] & self.classes[b]:
                        if a == b:
                            return start + sample(common)
                        if (a, b) not in seen:
                            seen.add((a, b))
                            queue.append((a, b, start + sample(common)))
        for a, b, text in queue:
            for c in self.follow[a]:
                for d in self.follow[b]:
                    if common := self.classes[c] & self.classes[d]:
                        if c == d:
                            return text + sample(common)
                        if (c, d) not in seen:
                            seen.add((c, d))
                            queue.append((c, d, text + sample(common)))
        return None

    def _then(self, left: _PatternPart, right: _PatternPart) -> _PatternPart:
        self.join(left.last, right.first)
        return _PatternPart(
            left.first + right.first if left.empty else left.first,
            right.last + left.last if right.empty else right.last,
            left.empty and right.empty,
        )

    def _part(self, op: Any, arg: Any, flags: int, atomic: bool) -> _PatternPart:
        if op in REPEATS:
            return self._repeated(arg, flags, atomic=atomic or op is sre.POSSESSIVE_REPEAT)
        if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            (body,) = inside(op, arg)
            return self.sequence(list(body), flags_within(op, arg, flags), atomic=atomic or op is sre.ATOMIC_GROUP)
        if op in (sre.BRANCH, sre.GROUPREF_EXISTS):
            parts = [self.sequence(list(branch), flags, atomic=atomic) for branch in inside(op, arg)]
            first = tuple(position for part in parts for position in part.first)
            last = tuple(position for part in parts for position in part.last)
            return _PatternPart(first, last, any(part.empty for part in parts))
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            return _PatternPart()
        self.classes.append(characters(op, arg, flags))
        self.follow.append([])
        return _PatternPart((len(self.classes) - 1,), (len(self.classes) - 1,), empty=False)

    def _repeated(self, arg: Any, flags: int, *, atomic: bool) -> _PatternPart:
        least, most, body = int(arg[0]), arg[1], list(arg[2])
        if atomic or (most > MANY and least < most):
            part = self.sequence(body, flags, atomic=atomic)
            if not atomic:
                self.join(part.last, part.first)
            return part if least else part.optional()
        least, most = min(least, MANY), min(int(most), MANY)
        may_come = _PatternPart()
        for _ in range(most - least):  # x{0,2} is (?:x(?:x)?)?, which reads each text in one way
            may_come = self._then(self.sequence(body, flags), may_come).optional()
        must_come = _PatternPart()
        for _ in range(least):
            must_come = self._then(must_come, self.sequence(body, flags))
        return self._then(must_come, may_come)


def characters(op: Any, arg: Any, flags: int) -> Class:
    """The characters that a node of one character reads."""
    return _characters(op, tuple(arg) if op is sre.IN else arg, flags & _OF_CHARACTERS)


@lru_cache(maxsize=4096)  # the same few classes stand everywhere
def _characters(op: Any, arg: Any, flags: int) -> Class:
    if op is sre.IN:
        negated = (sre.NEGATE, None) in arg
        members = frozenset[str]().union(
            *(characters(kind, value, flags) for kind, value in arg if kind is not sre.NEGATE)
        )
        return frozenset(CHARACTERS) - members | _other_than(arg) if negated else members
    if op is sre.NOT_LITERAL:
        return frozenset(CHARACTERS) - characters(sre.LITERAL, arg, flags) | _BEYOND
    if op is sre.CATEGORY:
        return _of_category(arg)
    if op is sre.LITERAL:
        return _either_case(frozenset([chr(arg)]) if arg < 128 else _BEYOND, flags)
    if op is sre.RANGE:
        low, high = arg
        beyond = _BEYOND if high > 127 else frozenset[str]()
        return _either_case(frozenset(c for c in CHARACTERS if low <= ord(c) <= high) | beyond, flags)
    newline = frozenset() if flags & re.DOTALL else frozenset("\n")
    return frozenset(CHARACTERS) - newline  # any character, or what a group has read before


def _other_than(members: Any) -> Class:
    """What a negated class reads beyond ASCII: all but its categories, for it names single characters of many."""
    excluded = frozenset[str]().union(*(_of_category(value) for kind, value in members if kind is sre.CATEGORY))
    return _BEYOND - excluded


@lru_cache
def _of_category(category: Any) -> Class:
    return frozenset(c for c in CHARACTERS if re.match(_CATEGORIES[category], c))


def _either_case(characters: Class, flags: int) -> Class:
    if not flags & re.IGNORECASE:
        return characters
    equals = _BEYOND if characters & frozenset("KSks") else frozenset[str]()  # the Kelvin sign is a k, the long s an s
    return characters | {c.swapcase() for c in characters if c.isascii()} | equals


def sample(characters: Class) -> str:
    """One of some characters, the one that reads best."""
    return min(characters, key=lambda c: (not c.islower(), not c.isalnum(), not c.isprintable(), c), default="")
