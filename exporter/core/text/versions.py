"""Versions as fleets report them: dotted numbers of unlike length, with suffixes. Compared, never guessed.

A version that stops short of the bound that it is compared with leaves the answer open: a wheel that says ROCm "6.2"
may be 6.2.0 or 6.2.4, so "6.2 <= 6.2.0" is undetermined, while "6.2 >= 6.2" holds for every patch.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from exporter.core.model import Truth

# An epoch ("1:6.2") is a packager's, not a version's. Over 18 digits no part of a version has, and int() has its limit.
_NUMBERS = re.compile(r"\s*v?(?:\d+:)?([0-9]{1,18}(?:\.[0-9]{1,18})*)(?![0-9])")
_CONSTRAINT = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*([0-9]{1,18}(?:\.[0-9]{1,18})*)\s*\Z")
_ORDERS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FLIPPED = {Truth.HELD: Truth.FAILED, Truth.FAILED: Truth.HELD, Truth.UNDETERMINED: Truth.UNDETERMINED}
_BEYOND = 1 << 62  # stands for "any later part": larger than every real one


@dataclass(frozen=True, slots=True)
class VersionRange:
    """All of several comparisons: `>=3.7, <3.8`. Alternatives are an `any:` of several ranges."""

    text: str
    bounds: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read `">=6.2, <7.2.1"`. Raises ValueError with what to write instead."""
        bounds = []
        for part in text.split(","):
            found = _CONSTRAINT.match(part)
            if not found:
                raise ValueError(f"{part.strip()!r} is no version bound; write for example '>=6.2, <7.2.1'")
            bounds.append((found[1], _parts(found[2])))
        return cls(text, tuple(bounds))

    def holds_for(self, version: str) -> Truth:
        """HELD, FAILED, or UNDETERMINED when the reported version is too short to tell, or no version at all."""
        found = _NUMBERS.match(version)
        if not found:
            return Truth.UNDETERMINED
        value = _parts(found[1])
        truths = {_compare(value, sign, bound) for sign, bound in self.bounds}
        if Truth.FAILED in truths:
            return Truth.FAILED
        return Truth.UNDETERMINED if Truth.UNDETERMINED in truths else Truth.HELD


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _compare(value: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> Truth:
    if sign in ("==", "!="):
        return _equals(value, bound) if sign == "==" else _FLIPPED[_equals(value, bound)]
    size = max(len(value), len(bound))
    padded = bound + (0,) * (size - len(bound))
    compare = _ORDERS[sign]
    low = compare(value + (0,) * (size - len(value)), padded)
    high = compare(value + (_BEYOND,) * (size - len(value)), padded)
    if low != high:
        return Truth.UNDETERMINED
    return Truth.HELD if low else Truth.FAILED


def _equals(value: tuple[int, ...], bound: tuple[int, ...]) -> Truth:
    """Of "6.3.0-39" reported and "==6.3" asked, the asked parts decide; of "6.3" and "==6.3.1", those that are there."""
    if any(a != b for a, b in zip(value, bound, strict=False)):
        return Truth.FAILED
    return Truth.HELD if len(value) >= len(bound) else Truth.UNDETERMINED
