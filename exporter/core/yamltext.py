"""YAML text to plain data, with the place of every key: what turns a schema error into `file:line:col`.

YAML 1.2's core scalars only (`on`, `NO`, `010`, `12:30` stay text: 1.1 made booleans and 750 of them), no duplicate
keys, no aliases (a pack of ten lines could expand to gigabytes), no tags. Knows no file system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

Loc = tuple[str | int, ...]
MAX_CHARS = 4 * 1024 * 1024  # the largest pack of a peer (an XID catalogue) is 0.3 MB
MAX_DEPTH = 64  # deeper than any condition that a person writes

_QUOTED = ("'", '"', "|", ">")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_CONSTANTS: dict[str, bool | None] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
}  # fmt: skip


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
        return f"{self.file}:{self.line}:{self.col}:{key} {self.what}"


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


def parse(text: str, file: str) -> Document:
    """Parse one YAML document. Raises InvalidInput with each place that YAML itself or these rules refuse."""
    if len(text) > MAX_CHARS:
        raise InvalidInput([Problem(file, 1, 1, "", f"over {MAX_CHARS} characters; split it into several files")])
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, col = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise InvalidInput([Problem(file, line, col, "", f"not YAML: {error.problem or error.context}")]) from None
    except yaml.YAMLError as error:
        raise InvalidInput([Problem(file, 1, 1, "", f"not YAML: {' '.join(str(error).split())}")]) from None
    except RecursionError:
        raise InvalidInput([Problem(file, 1, 1, "", f"nested deeper than {MAX_DEPTH} levels; flatten it")]) from None
    reader = _Reader(file)
    data = None if root is None else reader.value(root, ())
    if reader.problems:
        raise InvalidInput(reader.problems)
    return Document(file, data, reader.places)


class _Reader:
    """Walks composed nodes once, collecting data, places and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Loc, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        self.places.setdefault(loc, _place(node))
        if id(node) in self._seen:
            return self._refuse(node, loc, "aliases (*name) are not allowed here; write the value out")
        self._seen.add(id(node))
        if len(loc) > MAX_DEPTH:
            return self._refuse(node, loc, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, loc, "a key must be plain text")
                continue
            key = str(key_node.value)
            here = (*loc, key)
            if key in out:
                line, _ = self.places[here]
                self._refuse(key_node, here, f"given twice (first in line {line}); keep one")
                continue
            self.places[here] = _place(key_node)
            out[key] = self.value(value_node, here)
        return out

    def _refuse(self, node: yaml.Node, loc: Loc, what: str) -> None:
        line, col = _place(node)
        self.problems.append(Problem(self.file, line, col, key_path(loc), what))


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: yaml.Node) -> Any:
    text = str(node.value)
    if node.style in _QUOTED:  # type: ignore[attr-defined]  # quoted or block: text, whatever it looks like
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
