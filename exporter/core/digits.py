"""Which digits patterns tell apart. To those that they do not, `step 17` and `step 23` are one line: what one shows, and
where, the other shows too.

A pattern looks at a character by comparing it or by asking for its class. Digits that every comparison and every class of
every pattern treats alike can be exchanged without any of them noticing; but a back-reference compares text with text.
And a pattern that asks for `: 79` looks at no third digit of a number: from some depth on, all digits are alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from string import digits as DIGITS  # noqa: N812 (a constant by its nature)
from typing import Any

from exporter.core.patterns import OF_REGEX_ALONE, REPEATS, Unreadable, inside, parse, sre

_ALL = frozenset(DIGITS)
_ANYWHERE = 100  # the depth of a digit of which it is not known how many stand before it
_FEW = 8  # repeats that are followed one by one
_WITH_DIGITS = {sre.CATEGORY_DIGIT, sre.CATEGORY_WORD, sre.CATEGORY_NOT_SPACE}

Test = tuple[frozenset[str], int]  # the digits that a comparison or a class accepts: some, not all; their depth


# text.translate(ONE_DIGIT) is the shape of a text: what it has in common with all in which only digits differ.
ONE_DIGIT = bytes.maketrans(DIGITS.encode(), b"0" * 10)


@dataclass(frozen=True, slots=True)
class Alike:
    """Which digits of ASCII texts no pattern of some tells apart: those that `table` makes one, and in a run of digits
    those behind the first `deepest`; all are looked at where that is None.
    """

    table: bytes
    deepest: int | None

    def looked_at(self, shape: bytes) -> Callable[[bytes], Hashable]:
        """What patterns see of the digits of a text of this shape, once `table` has made them one."""
        behind_few = b"" if self.deepest is None else b"(?<!" + b"0" * self.deepest + b")"
        places = [found.start() for found in re.finditer(behind_few + b"0", shape)]
        return itemgetter(*places) if places else _nothing


def _nothing(_text: bytes) -> None:
    return None


def exchangeable(patterns: Iterable[str]) -> Alike | None:
    """What texts have in common that no pattern tells apart.

    None if some pattern tells texts apart by more than single characters, or is in the syntax of `regex` alone.
    """
    tests: set[Test] = set()
    for pattern in patterns:
        told = _told_apart(pattern)
        if told is None:
            return None
        tests |= told
    ordered = sorted({accepted for accepted, _ in tests}, key=sorted)
    alike: dict[tuple[bool, ...], str] = {}
    like = "".join(alike.setdefault(tuple(digit in test for test in ordered), digit) for digit in DIGITS)
    deepest = max((depth for _, depth in tests), default=0)
    return Alike(bytes.maketrans(DIGITS.encode(), like.encode()), None if deepest >= _ANYWHERE else deepest)


@lru_cache(maxsize=4096)  # a catalogue's patterns: each is of many sets of patterns
def _told_apart(pattern: str) -> frozenset[Test] | None:
    if OF_REGEX_ALONE.search(pattern):
        return None
    tests: set[Test] = set()
    try:
        _walk(list(parse(pattern)), _ANYWHERE, tests)
    except (Unreadable, _NotByCharactersError):
        return None
    return frozenset(tests)


class _NotByCharactersError(ValueError):
    pass


def _walk(nodes: Sequence[Any], before: int, tests: set[Test]) -> int:
    """Collect the tests of a sequence. `before` and what is returned: how many digits may stand in one run before it, and
    at its end.
    """
    for op, arg in nodes:
        before = min(_ANYWHERE, _step(op, arg, before, tests))
    return before


def _step(op: Any, arg: Any, before: int, tests: set[Test]) -> int:
    if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
        accepted = _accepted(op, arg)
        if accepted and accepted != _ALL:
            tests.add((accepted, min(_ANYWHERE, before + 1)))
        return before + 1 if accepted else 0
    if op is sre.AT:  # a digit behind a word's boundary has none before it
        return 0 if arg in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING, sre.AT_BOUNDARY) else before
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        direction, nodes = arg
        _walk(list(nodes), before if direction > 0 else _ANYWHERE, tests)
        return before
    if op in REPEATS:
        return _repeated(arg, before, tests)
    if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP, sre.BRANCH):
        return max(_walk(list(sequence), before, tests) for sequence in inside(op, arg))
    raise _NotByCharactersError


def _repeated(arg: Any, before: int, tests: set[Test]) -> int:
    least, most, nodes = arg
    longest = before if least == 0 else 0
    for _ in range(int(most) if most is not sre.MAXREPEAT and most <= _FEW else 2):
        after = _walk(list(nodes), before, tests)
        longest, grows = max(longest, after), after > before
        before = max(before, after)
    if grows and (most is sre.MAXREPEAT or most > _FEW):
        longest = _walk(list(nodes), _ANYWHERE, tests)
    return longest


def _accepted(op: Any, arg: Any) -> frozenset[str]:
    """The digits among the characters that a node accepts."""
    if op is sre.ANY:
        return _ALL
    if op is not sre.IN:
        found = _ALL & {chr(arg)}
        return found if op is sre.LITERAL else _ALL - found
    found = frozenset[str]()
    for kind, value in arg:
        if kind is sre.LITERAL:
            found |= _ALL & {chr(value)}
        elif kind is sre.RANGE:
            found |= {digit for digit in DIGITS if value[0] <= ord(digit) <= value[1]}
        elif kind is sre.CATEGORY and value in _WITH_DIGITS:
            found = _ALL
    return _ALL - found if arg[0][0] is sre.NEGATE else found
