"""Messages about wrong values in a user's YAML are ours, for every key of every file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from exporter.config.fleet import FleetConfig
from exporter.config.node import Config
from exporter.core.catalogue.pack_schema import Pack
from exporter.core.text.validation_messages import message
from exporter.web.config import WebConfig

WRONG = [None, True, -1, 10**9, 1.5, "", "x", "x" * 300, [], [1], {}, {"a": 1}]
WORDS_OF_PYDANTIC = re.compile(r"\b(?:should|[Ii]nput|required|instance|dictionary|validation|None|True)\b")


def models(annotation: Any, known: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """The models of a type and of all keys below."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in known:
        known.add(annotation)
        for field in annotation.model_fields.values():
            models(field.annotation, known)
    for part in get_args(annotation):
        models(part, known)
    return known


def errors(model: type[BaseModel], key: str) -> Iterator[Any]:
    for value in WRONG:
        try:
            model.model_validate({key: value})
        except ValidationError as error:
            yield from (each for each in error.errors() if each["loc"][:1] == (key,))


@pytest.mark.parametrize("file", [Config, FleetConfig, WebConfig, Pack])
def test_no_wrong_value_of_any_key_is_reported_in_the_words_of_pydantic(file: type[BaseModel]) -> None:
    found = [
        (f"{model.__name__}.{key}", message(error))
        for model in models(file, set())
        for key in [field.alias or name for name, field in model.model_fields.items()]
        for error in errors(model, key)
        if error["type"] != "extra_forbidden"
    ]
    assert len(found) > 20
    assert [each for each in found if WORDS_OF_PYDANTIC.search(each[1])] == []
