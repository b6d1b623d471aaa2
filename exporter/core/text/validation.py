"""Validation errors of pydantic as problems with our messages and locations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from exporter.core.text.problems import Document, Loc, LocatedError, Problem


def validation_problems(document: Document, error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The problems behind a validation error, in the order of the text. model: what the document was validated as.

    If a word or a mapping is allowed and the user wrote a mapping, only errors inside the mapping are reported.
    """
    found = [(_loc(e, document), e) for e in error.errors(include_url=False)]
    above = {loc[:depth] for loc, _ in found for depth in range(len(loc))}
    problems = [
        document.problem(loc, _unknown_key(model, loc) if e["type"] == "extra_forbidden" else _message(e))
        for loc, e in found
        if e["type"] != "literal_error" or loc not in above
    ]
    return sorted(problems, key=lambda p: (p.line, p.col))


def _loc(error: Any, document: Document) -> Loc:
    """The location of an error, without the union branches in pydantic's locations."""
    inner = error.get("ctx", {}).get("error")
    parts = (*error["loc"], *inner.loc) if isinstance(inner, LocatedError) else tuple(error["loc"])
    loc: Loc = ()
    for part in parts:
        if (*loc, part) in document.places or (error["type"] == "missing" and part is parts[-1]):
            loc = (*loc, part)
    return loc


def _unknown_key(model: type[BaseModel], loc: Loc) -> str:
    """What to do about a key that does not exist at its place."""
    places = [model]
    for part in loc[:-1]:
        if isinstance(part, str):
            places = [inner for place in places for inner in _models_in(_fields(place).get(part))]
    near = get_close_matches(str(loc[-1]), {key for place in places for key in _fields(place)}, n=1)
    return (
        f"no such key here; did you mean {near[0]}?" if near else "no such key here; check its spelling, or remove it"
    )


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The types of a model's keys, as they are written."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models of a type: of a list its items', of a union all."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _message(error: Any) -> str:
    """What is wrong, then what to do."""
    kind, value, message = error["type"], error.get("input"), str(error["msg"])
    if kind == "missing":
        return "missing; add it"
    if kind == "union_tag_invalid":
        return f"invalid value {error['ctx']['tag']!r}; use one of {error['ctx']['expected_tags']}"
    if kind == "model_type":
        return (
            "has keys of its own; write them below it" if error["loc"] else "must map keys to values; write KEY: VALUE"
        )
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "list_type" and isinstance(value, str):
        return f"must be a list; write [{json.dumps(value, ensure_ascii=False)}]"
    if kind == "dict_type":
        return "must map names to values; write NAME: VALUE, a line each"
    if kind in {"bool_type", "int_type"} and isinstance(value, str):
        return f"must be {'true or false' if kind == 'bool_type' else 'a whole number'}, not {value!r}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"must be text; write '{str(value).lower() if isinstance(value, bool) else value}' in quotes"
    if kind == "string_type" and value is None:
        return "has no value; write one, or remove the key"
    shown = f" (got {value!r})" if isinstance(value, str | int | float | bool) and len(str(value)) < 80 else ""
    return message[0].lower() + message[1:] + shown
