"""Packs as plain data: JSON in the wheel, YAML for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.core.catalogue.pack_types import (
    Condition,
    CrashShape,
    DeathLine,
    Echo,
    Example,
    LogFact,
    NearMiss,
    Pack,
    RecoveryLine,
    RootCause,
    Signature,
    Table,
    TableRow,
)


def to_data(value: Any) -> Any:
    """A value as data of a pack file, without defaults."""
    from dataclasses import MISSING, fields, is_dataclass  # only for who compiles packs

    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    if not is_dataclass(value):
        return value
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(value)}
    return {
        name.rstrip("_"): to_data(getattr(value, name))
        for name, default in defaults.items()
        if getattr(value, name) != default
    }


def from_data(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """The inverse of `to_data` for a type."""
    return kind(**{_FIELDS.get(name, name): _read(name, item) for name, item in data.items()})


_FIELDS = {"not": "not_", "in": "in_"}
_PARTS: Mapping[str, type[Any]] = {
    "packs": Pack,
    "signatures": Signature,
    "root_causes": RootCause,
    "tables": Table,
    "rows": TableRow,
    "log_facts": LogFact,
    "echoes": Echo,
    "crash_shapes": CrashShape,
    "examples": Example,
    "near_misses": NearMiss,
    "recovery": RecoveryLine,
    "death": DeathLine,
    **dict.fromkeys(("when", "supported_by", "against", "all", "any", "not"), Condition),
}


def _read(name: str, item: Any) -> Any:
    kind = _PARTS.get(name)
    if isinstance(item, list):
        if kind is None:
            return tuple(item)
        return tuple(from_data(kind, each) if isinstance(each, dict) else each for each in item)  # a cause has names
    return from_data(kind, item) if kind and isinstance(item, dict) else item
