"""The dataclasses of `core.values` act as those of the standard library, whatever they leave out at the start."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.core import values
from exporter.core.catalogue.pack_types import Echo
from exporter.core.model import Match


def classes(module: Any) -> SimpleNamespace:
    """The same classes, made with a module's decorator."""

    @module.dataclass(frozen=True, slots=True, kw_only=True)
    class Base:
        id: str
        tags: tuple[str, ...] = ()

    @module.dataclass(frozen=True, slots=True, kw_only=True)
    class Derived(Base):
        tags: tuple[str, ...] = ("own",)
        more: Mapping[str, str] = module.field(default_factory=dict)

        @property
        def named(self) -> str:
            return f"{self.id}: {self.tags}"

    @module.dataclass(frozen=True, slots=True)
    class Point:
        """In order."""

        x: int
        y: int = 2

    @module.dataclass(frozen=True, slots=True, eq=False)
    class Rule:
        x: int

    @module.dataclass(slots=True)
    class Count:
        x: int = 0
        seen: set[int] = module.field(default_factory=set)

    @module.dataclass(frozen=True)
    class Open:
        x: int

    @module.dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return SimpleNamespace(**{name: made for name, made in locals().items() if isinstance(made, type)})


OURS, STANDARD = classes(values), classes(dataclasses)


def outcome(act: Callable[[SimpleNamespace], object], kinds: SimpleNamespace) -> object:
    try:
        return act(kinds)
    except (TypeError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize(
    "act",
    [
        lambda k: repr(k.Derived(id="a", more={"b": "c"})),
        lambda k: k.Derived(id="a").named,
        lambda k: k.Derived("a"),
        lambda k: k.Derived(),
        lambda k: k.Derived(id="a", other=1),
        lambda k: repr(k.Point(1)),
        lambda k: repr(k.Point(1, y=3)),
        lambda k: k.Point(1, 2, 3),
        lambda k: k.Point.__doc__,
        lambda k: repr(k.Empty()),
        lambda k: (k.Point(1) == k.Point(1, 2), k.Point(1) == k.Point(2), k.Point(1) == k.Open(1), k.Empty() == k.Empty()),
        lambda k: hash(k.Point(1)) == hash(k.Point(1, 2)),
        lambda k: hash(k.Count()),
        lambda k: (k.Rule(1) == k.Rule(1), len({k.Rule(1), k.Rule(1)})),
        lambda k: k.Derived(id="a").more is k.Derived(id="a").more,
        lambda k: setattr(k.Point(1), "x", 2),
        lambda k: delattr(k.Open(1), "x"),
        lambda k: setattr(count := k.Count(), "x", 2) or repr(count),
        lambda k: setattr(k.Count(), "z", 2),
        lambda k: (hasattr(k.Derived(id="a"), "__dict__"), hasattr(k.Open(1), "__dict__")),
        lambda k: dataclasses.asdict(k.Derived(id="a")),
        lambda k: repr(dataclasses.replace(k.Derived(id="a"), tags=())),
        lambda k: [(f.name, f.type, f.default, f.default_factory) for f in dataclasses.fields(k.Derived)],
        lambda k: [f.name for f in dataclasses.fields(k.Base(id="a"))],
        lambda k: dataclasses.is_dataclass(k.Empty),
    ],
)  # fmt: skip
def test_a_class_acts_as_one_of_the_standard_library(act: Callable[[SimpleNamespace], object]) -> None:
    assert outcome(act, OURS) == outcome(act, STANDARD)


def test_replace_changes_some_fields_and_refuses_others() -> None:
    assert values.replace(OURS.Point(1, 3), x=2) == OURS.Point(2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        values.replace(OURS.Point(1), z=2)


def test_a_frozen_value_tells_which_field_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        OURS.Point(1).x = 2


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_can_be_pickled(protocol: int) -> None:
    echo = Echo(id="quoted", title="A quoted error", patterns=("a",))
    assert pickle.loads(pickle.dumps(echo, protocol)) == echo


def test_mypy_and_the_standard_library_see_the_fields_of_a_match() -> None:
    assert {field.name: field.type for field in dataclasses.fields(Match)}["signature"] == "str"
