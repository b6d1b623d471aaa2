"""Which digits patterns tell apart. To those that they do not, `step 17` and `step 23` are one line: what one shows, and
where, the other shows too.

A pattern looks at a character by comparing it or by asking for its class. Digits that every comparison and every class of
every pattern treats alike can be exchanged without any of them noticing; but a back-reference compares text with text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from string import digits as DIGITS  # noqa: N812 (a constant by its nature)
from typing import Any

from exporter.core.patterns import OF_REGEX_ALONE, Unreadable, parse, sre

_ALL = frozenset(DIGITS)
_Sequence = type(parse("x"))
_Operation = type(sre.LITERAL)  # an int to every number beside it
_COMPARE_TEXTS = (sre.GROUPREF, sre.GROUPREF_EXISTS)


def exchangeable(patterns: Iterable[str]) -> bytes | None:
    """A table for `bytes.translate` under which two texts of ASCII become one only if no pattern tells them apart.

    None if some pattern tells texts apart by more than single characters, or is in the syntax of `regex` alone.
    """
    apart: set[frozenset[str]] = set()
    for pattern in patterns:
        told = _told_apart(pattern)
        if told is None:
            return None
        apart |= told
    alike: dict[tuple[bool, ...], str] = {}
    ordered = sorted(apart, key=sorted)
    like = "".join(alike.setdefault(tuple(digit in test for test in ordered), digit) for digit in DIGITS)
    return bytes.maketrans(DIGITS.encode(), like.encode())


@lru_cache(maxsize=4096)  # a catalogue's patterns: each is of many sets of patterns
def _told_apart(pattern: str) -> frozenset[frozenset[str]] | None:
    if OF_REGEX_ALONE.search(pattern):
        return None
    try:
        return frozenset(_tests(parse(pattern)))
    except (Unreadable, _NotByCharactersError):
        return None


class _NotByCharactersError(ValueError):
    pass


def _tests(node: Any) -> Iterable[frozenset[str]]:
    """The digits that each comparison and each class in a parsed pattern, or a part of one, accepts: some, not all."""
    if isinstance(node, list | _Sequence):
        for part in node:
            yield from _tests(part)
    if not isinstance(node, tuple):
        return
    operation, *arguments = node
    if operation in _COMPARE_TEXTS and isinstance(operation, _Operation):
        raise _NotByCharactersError
    if isinstance(operation, _Operation) and operation in (sre.LITERAL, sre.NOT_LITERAL):
        yield from _some({chr(arguments[0])})
    elif isinstance(operation, _Operation) and operation is sre.RANGE:
        first, last = arguments[0]
        yield from _some({digit for digit in DIGITS if first <= ord(digit) <= last})
    else:  # any other operation, or the arguments of one: what is in them
        for part in arguments if isinstance(operation, int) else node:
            yield from _tests(part)


def _some(accepted: set[str]) -> Iterable[frozenset[str]]:
    told = _ALL & accepted
    if told and told != _ALL:
        yield told
