"""Dataclasses as stored JSON: what was written is read, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from exporter.core.text.stored_values import from_json, to_json


@dataclass(frozen=True, slots=True)
class Inner:
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    path: str
    names: tuple[str, ...] = ()
    number: int | None = None
    inner: Inner = field(default_factory=Inner)
    kind: Literal["a", "b"] | None = None
    whole: bool = False


FULL = Outer(path="é\n", names=("x", "y"), number=0, inner=Inner(7), kind="b", whole=True)


@pytest.mark.parametrize("value", [FULL, Outer(path="")])
def test_what_was_written_is_read(value: Outer) -> None:
    assert from_json(Outer, to_json(value)) == value


def test_fields_that_are_as_by_default_are_not_written() -> None:
    assert to_json(Outer(path="x")) == '{"path":"x"}'


def test_fields_of_another_version_are_ignored() -> None:
    assert from_json(Outer, '{"path": "x", "new": [1]}') == Outer(path="x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"path": 1}',
        '{"path": null}',
        '{"path": "x", "number": true}',
        '{"path": "x", "number": "1"}',
        '{"path": "x", "names": "yz"}',
        '{"path": "x", "names": [1]}',
        '{"path": "x", "inner": 3}',
        '{"path": "x", "inner": {"at": []}}',
        '{"path": "x", "kind": "c"}',
        '{"path": "x", "kind": ["a"]}',
    ],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(Outer, text)
