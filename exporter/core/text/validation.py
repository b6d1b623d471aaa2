"""Validation errors of pydantic as problems with our messages and locations."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from exporter.core.text.problems import Document, InvalidInput, Loc, LocatedError, Problem
from exporter.core.text.validation_messages import message, or_list
from exporter.core.text.yaml_text import read

UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # of a model, of a dataclass
FOLLOWS_FROM_INNER = ("literal_error", "too_short")  # where a part has an error: another branch; a tuple without it

Model = TypeVar("Model", bound=BaseModel)


def read_as(model: type[Model], text: str, file: str) -> Model:
    """A YAML text as a model; an empty one has the defaults. Raises InvalidInput with every problem."""
    document, problems = read(text, file)
    try:
        value = model.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        problems += validation_problems(document, error, model)
    if problems:
        raise InvalidInput(sorted(problems, key=lambda p: (p.line, p.col)))
    return value


def validation_problems(document: Document, error: ValidationError, model: type[Any]) -> list[Problem]:
    """The problems behind a validation error, in the order of the text. model: what the document was validated as.

    If a word or a mapping is allowed and the user wrote a mapping, only errors inside the mapping are reported.
    """
    return [problem for _, problem in located_problems(document, error, model)]


def located_problems(document: Document, error: ValidationError, model: type[Any]) -> list[tuple[Loc, Problem]]:
    """As `validation_problems`, each with its location."""
    every = [(_loc(e, document), e) for e in error.errors(include_url=False)]
    errors = [(loc, e) for loc, e in every if not document.is_refused(loc)]
    above = {loc[:depth] for loc, _ in errors for depth in range(len(loc))}
    unknown = {loc: _keys_at(model, loc, document.data) for loc, e in errors if e["type"] in UNKNOWN_KEY}
    missing = {loc for loc, e in errors if e["type"] == "missing"}
    meant = missing & {(*loc[:-1], near) for loc, keys in unknown.items() for near in _near(loc, keys.here)}
    problems = [
        (loc, document.problem(loc, _unknown_key(loc, unknown[loc], meant) if loc in unknown else message(e)))
        for loc, e in errors
        if (e["type"] not in FOLLOWS_FROM_INNER or loc not in above) and (e["type"] != "missing" or loc not in meant)
    ]
    return sorted(problems, key=lambda located: (located[1].line, located[1].col))


def _loc(error: Any, document: Document) -> Loc:
    """The location of an error, without the union branches in pydantic's locations."""
    inner = error.get("ctx", {}).get("error")
    parts = (*error["loc"], *inner.loc) if isinstance(inner, LocatedError) else tuple(error["loc"])
    loc: Loc = ()
    for part in parts:
        if (*loc, part) in document.locations or (error["type"] == "missing" and part is parts[-1]):
            loc = (*loc, part)
    return loc


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys that a mapping may have, and those of other kinds in its place, with their kinds."""

    here: frozenset[str]
    elsewhere: Mapping[str, tuple[str, ...]]


def _keys_at(model: type[Any], loc: Loc, data: Any) -> _Keys:
    """The keys beside the last one of a location."""
    parents = [model]
    for part in loc[:-1]:
        data = data[part]
        if isinstance(part, str):
            parents = [inner for parent in parents for inner in models_in(keys_of(parent).get(part))]
    given = {parent: [kind for kind in _kinds_of(parent) if kind == data.get("kind")] for parent in parents}
    own = [parent for parent in parents if given[parent]] or parents
    others = [parent for parent in parents if parent not in own]
    elsewhere = {
        key: tuple(k for o in others if key in keys_of(o) for k in _kinds_of(o)) for o in others for key in keys_of(o)
    }
    return _Keys(frozenset(key for parent in own for key in keys_of(parent)), elsewhere)


def _kinds_of(model: type[Any]) -> tuple[str, ...]:
    """The values of `kind` that select a model of a union."""
    kind = keys_of(model).get("kind")
    return get_args(kind) if get_origin(kind) is Literal else ()


def _near(loc: Loc, keys: Iterable[str]) -> list[str]:
    return get_close_matches(str(loc[-1]), sorted(keys), n=1)


def _unknown_key(loc: Loc, keys: _Keys, meant: Set[Loc]) -> str:
    """What to do about a key that does not exist at its place. meant: missing keys that unknown ones probably are."""
    near = _near(loc, keys.here)
    kinds = keys.elsewhere.get(str(loc[-1]))
    if kinds and not (near and (*loc[:-1], near[0]) in meant):
        return f"no such key here; only kind {or_list(kinds)} has it"
    return (
        f"no such key here; did you mean {near[0]}?" if near else f"no such key here; use {or_list(sorted(keys.here))}"
    )


def keys_of(model: type[Any]) -> dict[str, Any]:
    """The types of a model's keys, as they are written."""
    if issubclass(model, BaseModel):
        return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    types = get_type_hints(model, include_extras=True)
    return {_alias(types[field.name]) or field.name: types[field.name] for field in fields(model)}


def _alias(annotation: Any) -> str | None:
    parts = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return next((part.alias for part in parts if isinstance(part, FieldInfo)), None)


def models_in(annotation: Any) -> Iterator[type[Any]]:
    """The models and dataclasses of a type: of a list its items', of a union all."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)
