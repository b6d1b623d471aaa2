"""What a validation error of pydantic means to the author of a YAML file: what was expected, and what to do."""

import json
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from exporter.core.text.phrases import listed

MAX_SHOWN_CHARS = 80
_FORM = re.compile(r"\^\[(?P<first>[^]]+)\](?:\[(?P<rest>[^]]+)\])?\{(?P<least>\d+),(?P<most>\d+)\}\$")
_WORDS = {  # forms that are not an identifier
    "^https?://": "must begin with https:// or http://",
    r"^\d{4}-\d\d-\d\d$": "must be a date such as 2026-11-26",
}


def message(error: Any) -> str:
    """What is wrong, then what to do."""
    kind, value = error["type"], error.get("input")
    if kind == "missing":
        return "missing; add it"
    if value is None and kind not in ("model_type", "dataclass_type"):
        return "has no value; write one, or remove the key"
    if kind in _MESSAGES:
        return _MESSAGES[kind](value, error.get("ctx", {}), error)
    text = str(error["msg"])
    return f"{text[0].lower()}{text[1:]}, not {shown(value)}"


def shown(value: Any) -> str:
    """A value as its author knows it, for a message."""
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN_CHARS else value[: MAX_SHOWN_CHARS - 1] + "…")
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else json.dumps(value)


def or_list(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return listed(words, "or")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """`; did you mean NAME?` with the nearest known name; "" if none is near."""
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _must_be(expected: str) -> Callable[[Any, Any, Any], str]:
    return lambda value, _ctx, _error: f"must be {expected}, not {shown(value)}"


def _bounded(words: str, key: str) -> Callable[[Any, Any, Any], str]:
    return lambda value, ctx, _error: f"must be {words} {str(ctx[key]).removesuffix('.0')}, not {shown(value)}"


def _one_of(value: Any, expected: str, name: str = "") -> str:
    choices = re.findall("'([^']*)'", expected)
    near = did_you_mean(value, choices) if isinstance(value, str) else ""
    return f"{name}must be {or_list([choice or repr(choice) for choice in choices])}, not {shown(value)}{near}"


def _kind(value: Any, ctx: Any, _error: Any) -> str:
    name = ctx["discriminator"].strip("'")
    tag = value.get(name) if isinstance(value, dict) else value
    return _one_of(tag, ctx["expected_tags"], f"{name} ")


def _kind_is_missing(_value: Any, ctx: Any, _error: Any) -> str:
    return f"has no {ctx['discriminator'].strip(chr(39))}; add it"


def _text(value: Any, _ctx: Any, _error: Any) -> str:
    if isinstance(value, bool | int | float):
        return f"must be text; write '{json.dumps(value)}' in quotes"
    return f"must be text, not {shown(value)}"


def _list(value: Any, _ctx: Any, _error: Any) -> str:
    if isinstance(value, str):
        return f"must be a list; write [{json.dumps(value, ensure_ascii=False)}]"
    return f"must be a list, not {shown(value)}"


def _mapping(_value: Any, _ctx: Any, error: Any) -> str:
    return "has keys of its own; write them below it" if error["loc"] else "must map keys to values; write KEY: VALUE"


def _few(value: Any, ctx: Any, _error: Any) -> str:
    if not value:
        return "is empty; add at least one entry"
    return f"has {len(value)} of at least {ctx['min_length']} entries; add more"


def _many(_value: Any, ctx: Any, _error: Any) -> str:
    return f"has more than {ctx['max_length']} entries; remove some"


def _short(value: str, ctx: Any, _error: Any) -> str:
    if not value:
        return "is empty; write a text"
    return f"is too short; use at least {ctx['min_length']} characters, not {len(value)}"


def _long(value: str, ctx: Any, _error: Any) -> str:
    return f"is too long; use at most {ctx['max_length']} characters, not {len(value)}"


def _form(value: Any, ctx: Any, _error: Any) -> str:
    pattern = ctx["pattern"]
    match = _FORM.fullmatch(pattern)
    if not match:
        return f"{_WORDS.get(pattern) or f'must match the pattern {pattern}'}, not {shown(value)}"
    first, rest = match["first"], match["rest"]
    extra = 1 if rest else 0
    begins = f", beginning with {_characters(first)}" if rest else ""
    length = f"{int(match['least']) + extra} to {int(match['most']) + extra} characters"
    return f"invalid name {shown(value)}; use {length} of {_characters(rest or first)}{begins}"


def _characters(of_class: str) -> str:
    """`a-z0-9_` as `a-z, 0-9 or _`."""
    return or_list(re.findall(r"\w-\w|.", of_class))


_MESSAGES: dict[str, Callable[[Any, Any, Any], str]] = {
    "value_error": lambda _value, _ctx, error: str(error["msg"]).removeprefix("Value error, "),
    "literal_error": lambda value, ctx, _error: _one_of(value, ctx["expected"]),
    "union_tag_invalid": _kind,
    "union_tag_not_found": _kind_is_missing,
    "model_type": _mapping,
    "dataclass_type": _mapping,
    "model_attributes_type": _mapping,
    "dict_type": lambda *_: "must map names to values; write NAME: VALUE, a line each",
    "list_type": _list,
    "tuple_type": _list,
    "string_type": _text,
    "bool_type": _must_be("true or false"),
    "int_type": _must_be("a whole number"),
    "float_type": _must_be("a number"),
    "is_instance_of": _must_be("an absolute path"),
    "greater_than": _bounded("more than", "gt"),
    "greater_than_equal": _bounded("at least", "ge"),
    "less_than": _bounded("less than", "lt"),
    "less_than_equal": _bounded("at most", "le"),
    "too_short": _few,
    "too_long": _many,
    "string_too_short": _short,
    "string_too_long": _long,
    "string_pattern_mismatch": _form,
}
