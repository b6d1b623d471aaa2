"""A YAML reader that keeps the location of every key, for errors with `file:line:col`.

Only YAML 1.2's core scalars: `on`, `NO`, `010` and `12:30` stay text. Duplicate keys, tags and aliases are rejected; with
aliases, ten lines could expand to gigabytes.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from exporter.core.text.problems import MAX_CHARS, Document, InvalidInput, Loc, Problem, key_path

MAX_DEPTH = 64  # deeper than any condition that a person writes

# Leading zeros and over 18 digits are text: no setting has them, and int() refuses 4,301 digits.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z")
_CONSTANTS: dict[str, bool | None] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
}  # fmt: skip
_ADVICE = {  # libyaml's message: the most likely fix
    "found character that cannot start any token": "; indent with spaces, not tabs, and quote text that begins with @, ` or %",
    "found unknown escape character": "; write patterns in single quotes, which keep \\ as it is",
    "mapping values are not allowed in this context": "; indent as the key above, and quote a text that holds ': '",
    "did not find expected key": "; indent as the key above, and close what is quoted",
    "did not find expected ',' or ']'": "; close the list with ]",
    "did not find expected ',' or '}'": "; close the mapping with }",
    "found unexpected end of stream": "; close the quoted text",
}


def parse(text: str, file: str) -> Document:
    """Parse one YAML document. Raises InvalidInput with all problems."""
    document, problems = read(text, file)
    if problems:
        raise InvalidInput(problems)
    return document


def read(text: str, file: str) -> tuple[Document, list[Problem]]:
    """One YAML document, and the problems of its parts, which are in `refused`. Raises InvalidInput if it is not YAML."""
    if len(text) > MAX_CHARS:
        raise InvalidInput([Problem(file, 1, 1, "", f"over {MAX_CHARS} characters; split it into several files")])
    try:
        reader = _Reader(file, yaml.parse(text, Loader=yaml.CSafeLoader))
        data = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, col = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = error.problem or error.context or ""
        raise InvalidInput([Problem(file, line, col, "", f"not YAML: {message}{_ADVICE.get(message, '')}")]) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise InvalidInput([Problem(file, 1, 1, "", f"not YAML: {' '.join(str(error).split())}")]) from None
    return Document(file, data, reader.locations, frozenset(reader.refused)), reader.problems


class _Reader:
    """Collects data, locations and problems from parser events.

    libyaml composes nodes by recursion in C: 100,000 opening brackets would crash the process. Events have no recursion.
    """

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.file = file
        self.locations: dict[Loc, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.refused: set[Loc] = set()
        self._events = events

    def document(self) -> Any:
        """The data of the document, or None."""
        starts = (event for event in self._events if isinstance(event, yaml.DocumentStartEvent))
        data = None
        if next(starts, None):
            data = self._value(next(self._events), ())
        if another := next(starts, None):
            line, col = _location(another)
            message = "a second document; split it into several files"
            self.problems.append(Problem(self.file, line, col, "", message))
        return data

    def _value(self, event: Any, loc: Loc) -> Any:
        self.locations.setdefault(loc, _location(event))
        if isinstance(event, yaml.AliasEvent):
            return self._refuse(event, loc, "aliases (*name) are not allowed here; write the value out")
        if event.tag is not None:
            self._refuse(event, loc, "tags (!name) are not allowed here; remove it, and quote what is to be text")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if len(loc) > MAX_DEPTH:  # stop here: libyaml's time is quadratic in the depth
            self._refuse(event, loc, f"nested deeper than {MAX_DEPTH} levels; flatten it")
            raise InvalidInput(self.problems)
        return self._mapping(loc) if isinstance(event, yaml.MappingStartEvent) else self._sequence(loc)

    def _sequence(self, loc: Loc) -> list[Any]:
        out: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            out.append(self._value(event, (*loc, len(out))))
        return out

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, loc, "a key must be plain text")
                self._value(event, (*loc, "?"))
                self._value(next(self._events), (*loc, "?"))
                continue
            key = str(event.value)
            here = (*loc, key)
            if key in out:
                line, _ = self.locations[here]
                self._refuse(event, here, f"given twice (first in line {line}); keep one")
            else:
                self.locations[here] = _location(event)
            out[key] = self._value(next(self._events), here)
        return out

    def _refuse(self, event: Any, loc: Loc, message: str) -> None:
        line, col = _location(event)
        self.refused.add(loc)
        self.problems.append(Problem(self.file, line, col, key_path(loc), message))


def _location(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = str(event.value)
    if event.style:  # quoted or block: text, whatever it looks like
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
