"""`dataclass`, `field` and `replace` as in the standard library, for the classes that a scan needs at its start.

A class is defined in a fifth of the time: the standard library imports `inspect` (6 ms) and compiles six methods for each
class (0.5 ms in Python 3.11). Here only `__init__` is compiled. `dataclasses.fields`, `asdict` and mypy also work.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

__all__ = ["dataclass", "field", "replace"]

_REQUIRED = object()  # the default of a field without one


class _Factory(NamedTuple):
    """Makes the default of a field anew for each value."""

    make: Callable[[], Any]


def _dataclass(
    *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[Any], Any]:
    """A decorator with these options of the standard library's."""

    def defined(cls: Any) -> Any:
        inherited: Mapping[str, Any] = getattr(cls, "__defaults_by_field__", {})
        own = {name: cls.__dict__.get(name, _REQUIRED) for name in cls.__annotations__}
        fields = {**inherited, **own}
        body = {name: item for name, item in cls.__dict__.items() if name not in {*own, "__dict__", "__weakref__"}}
        if slots:
            body["__slots__"] = tuple(name for name in own if name not in inherited)
        body |= {
            "__defaults_by_field__": fields,
            "__values_of__": attrgetter(*fields) if fields else lambda *_: (),
            "__dataclass_fields__": _StandardFields(),
            "__init__": _init(fields, frozen=frozen, kw_only=kw_only),
            "__repr__": _repr,
        }
        if eq:
            body |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        if frozen:
            body |= {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _set_state}
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        return made

    return defined


def _field(*, default_factory: Callable[[], Any]) -> _Factory:
    return _Factory(default_factory)


def _replace(value: Any, /, **changes: Any) -> Any:
    """A value of the same class, with some fields changed."""
    for name in value.__defaults_by_field__:
        if name not in changes:
            changes[name] = getattr(value, name)
    return value.__class__(**changes)


def _init(fields: Mapping[str, Any], *, frozen: bool, kw_only: bool) -> Any:
    """The `__init__` of a class."""
    lines = ["pass"]
    for name, default in fields.items():
        value = f"{name}.make() if type({name}) is Factory else {name}" if isinstance(default, _Factory) else name
        lines.append(f"set_field(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    arguments = ["self", *(["*"] if kw_only and fields else []), *fields]
    scope: dict[str, Any] = {"set_field": object.__setattr__, "Factory": _Factory}
    exec(f"def __init__({', '.join(arguments)}):\n  " + "\n  ".join(lines), scope)  # noqa: S102 (our own names)
    made = scope["__init__"]
    defaults = {name: default for name, default in fields.items() if default is not _REQUIRED}
    if kw_only:
        made.__kwdefaults__ = defaults
    else:
        made.__defaults__ = tuple(defaults.values())
    return made


def _eq(self: Any, other: Any) -> Any:
    return (
        self.__values_of__(self) == self.__values_of__(other) if other.__class__ is self.__class__ else NotImplemented
    )


def _hash(self: Any) -> int:
    return hash(self.__values_of__(self))


def _repr(self: Any) -> str:
    fields = (f"{name}={getattr(self, name)!r}" for name in self.__defaults_by_field__)
    return f"{self.__class__.__qualname__}({', '.join(fields)})"


def _refuse(_self: Any, name: str, _value: Any = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__defaults_by_field__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__defaults_by_field__, state, strict=True):
        object.__setattr__(self, name, value)


class _StandardFields:
    """The `__dataclass_fields__` of a class, which the standard library makes when they are first asked for."""

    def __get__(self, _value: Any, cls: Any) -> Any:
        from dataclasses import field, make_dataclass
        from inspect import get_annotations

        described: list[Any] = []
        types = {name: kind for base in reversed(cls.__mro__) for name, kind in get_annotations(base).items()}
        for name, default in cls.__defaults_by_field__.items():
            if default is _REQUIRED:
                described.append((name, types[name]))
            else:
                given = field(default_factory=default.make) if isinstance(default, _Factory) else field(default=default)
                described.append((name, types[name], given))
        standard: Any = make_dataclass(cls.__name__, described, kw_only=True)
        cls.__dataclass_fields__ = standard.__dataclass_fields__
        return cls.__dataclass_fields__


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _field, _replace
