"""Dataclasses as plain data and JSON. Stored JSON may be damaged: each value that is read is checked by its type."""

import json
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], text: str) -> T:
    """A value of a dataclass. Raises ValueError where the text is not JSON of its fields."""
    try:
        value: T = _read(kind, json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def to_json(value: Any) -> str:
    """A dataclass as JSON, without the fields that are as by default."""
    return json.dumps(to_data(value), ensure_ascii=False, separators=(",", ":"))


def to_data(value: Any) -> Any:
    """A dataclass as plain data, without the fields that are as by default; the field `in_` is the key `in`."""
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    if not is_dataclass(value):
        return value
    given: dict[str, Any] = {}
    for field in fields(value):
        item = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if item != default:
            given[field.name.rstrip("_")] = to_data(item)
    return given


def _read(kind: Any, data: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # with None only
        return (
            None if data is None else _read(next(argument for argument in arguments if argument is not NoneType), data)
        )
    if origin is Literal and isinstance(data, str) and data in arguments:
        return data
    if origin is tuple and isinstance(data, list):  # of any length
        return tuple(_read(arguments[0], item) for item in data)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(data, dict):
        types = _types(kind)
        try:
            return kind(**{name: _read(types[name], item) for name, item in data.items() if name in types})
        except TypeError as error:  # a field is missing
            raise ValueError(str(error)) from None
    if type(data) is kind:
        return data
    raise ValueError(f"{data!r:.100} is no {kind}")


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
