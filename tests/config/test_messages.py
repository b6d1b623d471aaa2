"""Messages about wrong values in a user's YAML are ours, for every key of every file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from exporter.config.fleet import FleetConfig
from exporter.config.node import Config
from exporter.core.catalogue.pack_files import schema
from exporter.core.catalogue.pack_types import Pack
from exporter.core.text.validation import UNKNOWN_KEY, keys_of, models_in
from exporter.core.text.validation_messages import message
from exporter.web.config import WebConfig

WRONG = [None, True, -1, 10**9, 1.5, "", "x", "x" * 300, [], [1], {}, {"a": 1}]
WORDS_OF_PYDANTIC = re.compile(r"\b(?:should|[Ii]nput|required|instance|dictionary|validation|None|True)\b")


def models(annotation: Any, seen: set[type[object]]) -> set[type[object]]:
    """The models and dataclasses of a type and of all keys below."""
    for model in set(models_in(annotation)) - seen:
        seen.add(model)
        for field in keys_of(model).values():
            models(field, seen)
    return seen


def errors(model: type[object], key: str) -> Iterator[Any]:
    for value in WRONG:
        try:
            schema(model).validate_python({key: value})
        except ValidationError as error:
            yield from (problem for problem in error.errors() if problem["loc"][:1] == (key,))


@pytest.mark.parametrize("file", [Config, FleetConfig, WebConfig, Pack])
def test_no_wrong_value_of_any_key_is_reported_in_the_words_of_pydantic(file: type[object]) -> None:
    schema(Pack)  # resolves the constraints of packs
    messages = [
        (f"{model.__name__}.{key}", message(error))
        for model in models(file, set())
        for key in keys_of(model)
        for error in errors(model, key)
        if error["type"] not in UNKNOWN_KEY
    ]
    assert len(messages) > 20
    assert [text for text in messages if WORDS_OF_PYDANTIC.search(text[1])] == []
