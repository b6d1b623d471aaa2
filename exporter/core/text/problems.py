"""What is wrong with a user's file, and where: the errors that a user reads, and nothing that finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.core.text.printable import printable

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a user's file. `str()` is the line that the user reads."""

    file: str
    line: int
    col: int
    key: str
    what: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return printable(f"{self.file}:{self.line}:{self.col}:{key} {self.what}")


class InvalidInput(Exception):
    """A user's file or flag is wrong. Carries every problem found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data of one YAML document and the (line, column) of each of its keys and items, from 1."""

    file: str
    data: Any
    places: Mapping[Loc, tuple[int, int]]

    def problem(self, loc: Loc, what: str) -> Problem:
        """A problem at `loc`, or at the nearest place above it that the text has."""
        at = loc
        while at and at not in self.places:
            at = at[:-1]
        line, col = self.places.get(at, (1, 1))
        return Problem(self.file, line, col, key_path(loc), what)


def key_path(loc: Loc) -> str:
    """`("signatures", 0, "id")` as people write it: `signatures[0].id`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
