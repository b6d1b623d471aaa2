"""Counts with their noun, and lists."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str = "") -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
