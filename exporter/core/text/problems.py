"""Problems in a user's file, with their locations. Other modules find them."""

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.core.text.phrases import printable
from exporter.core.values import dataclass, field

Loc = tuple[str | int, ...]
MAX_CHARS = 4 * 1024 * 1024  # of a user's file: the largest known pack has 0.3 MB


class LocatedError(ValueError):
    """An error of a model's own check, at a location inside the model."""

    def __init__(self, loc: Loc, message: str) -> None:
        self.loc = loc
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a user's file; `str()` is the message."""

    file: str
    line: int
    col: int
    key: str
    message: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return printable(f"{self.file}:{self.line}:{self.col}:{key} {self.message}")


class InvalidInput(Exception):
    """A user's file or flag is invalid; holds all problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)  # as pickle passes them

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one YAML document and the (line, column) of each key and item, from 1.

    `refused`: locations whose data is not what was written. `moved`: where items of lists are in the text, if the user of a
    document dropped others before them.
    """

    file: str
    data: Any
    locations: Mapping[Loc, tuple[int, int]]
    refused: frozenset[Loc] = frozenset()
    moved: Mapping[Loc, Loc] = field(default_factory=dict)

    def problem(self, loc: Loc, message: str) -> Problem:
        """A problem at `loc`, or at its nearest parent in the text."""
        loc = (*self.moved.get(loc[:2], loc[:2]), *loc[2:])
        at = loc
        while at and at not in self.locations:
            at = at[:-1]
        line, col = self.locations.get(at, (1, 1))
        return Problem(self.file, line, col, key_path(loc), message)

    def is_refused(self, loc: Loc) -> bool:
        """Whether a location is at or below a refused one."""
        return any(loc[: len(refused)] == refused for refused in self.refused)


def key_path(loc: Loc) -> str:
    """`("signatures", 0, "id")` as `signatures[0].id`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
