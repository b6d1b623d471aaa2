"""Version ranges, and versions as fleets report them: dotted numbers of any length, with suffixes.

A version shorter than the bound can be undetermined. A wheel that reports ROCm "6.2" may be 6.2.0 or 6.2.4: so
"6.2 <= 6.2.0" is undetermined, while "6.2 >= 6.2" holds for every patch release.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from exporter.core.model import Truth

# An epoch ("1:6.2") is the packager's, not part of the version. int() refuses very long numbers; none has over 18 digits.
_NUMBERS = re.compile(r"\s*v?(?:\d+:)?([0-9]{1,18}(?:\.[0-9]{1,18})*)(?![0-9])")
_CONSTRAINT = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*([0-9]{1,18}(?:\.[0-9]{1,18})*)\s*\Z")
_ORDERS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ANY_LATER = 1 << 62  # larger than every real part


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Comparisons that must all hold: `>=3.7, <3.8`. For alternatives, use an `any:` of several ranges."""

    text: str
    bounds: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parse `">=6.2, <7.2.1"`. Raises ValueError with a valid example."""
        bounds = []
        for part in text.split(","):
            match = _CONSTRAINT.match(part)
            if not match:
                raise ValueError(f"invalid version bound {part.strip()!r}; use for example '>=6.2, <7.2.1'")
            bounds.append((match[1], _parts(match[2])))
        return cls(text, tuple(bounds))

    def holds_for(self, version: str) -> Truth:
        """Whether a version is in the range; UNDETERMINED if it is too short or not a version."""
        match = _NUMBERS.match(version)
        if not match:
            return Truth.UNDETERMINED
        value = _parts(match[1])
        return Truth.all_of(_compare(value, sign, bound) for sign, bound in self.bounds)


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _compare(value: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> Truth:
    if sign in ("==", "!="):
        return _equals(value, bound) if sign == "==" else _equals(value, bound).negated
    size = max(len(value), len(bound))
    padded = bound + (0,) * (size - len(bound))
    compare = _ORDERS[sign]
    low = compare(value + (0,) * (size - len(value)), padded)
    high = compare(value + (_ANY_LATER,) * (size - len(value)), padded)
    if low != high:
        return Truth.UNDETERMINED
    return Truth.HELD if low else Truth.FAILED


def _equals(value: tuple[int, ...], bound: tuple[int, ...]) -> Truth:
    """Compare the parts that both have: "6.3.0-39" is ==6.3, and "6.3" may be ==6.3.1."""
    if any(a != b for a, b in zip(value, bound, strict=False)):
        return Truth.FAILED
    return Truth.HELD if len(value) >= len(bound) else Truth.UNDETERMINED
