"""Counts with their noun."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
