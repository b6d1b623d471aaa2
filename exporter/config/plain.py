"""A validated configuration without its models. The daemon holds this one: pydantic takes 17 MiB of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from pathlib import Path

    from exporter.config.node import Config
    from exporter.config.types import Section

    Model = TypeVar("Model", bound=Section)


class PlainSection(SimpleNamespace):
    """The values of one section, under the names of its model's fields. Does not change, and does not print secrets."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: settings do not change")

    def __repr__(self) -> str:
        return f"PlainSection({', '.join(vars(self))})"


def plain(section: Model) -> Model:
    """The values of a section and all below. Typed as the model: it has the same fields, but no methods."""
    return cast("Model", _plain(section))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if fields := getattr(type(value), "model_fields", None):
        return PlainSection(**{name: _plain(getattr(value, name)) for name in fields})
    return value


def journal_folder(config: Config) -> Path:
    return config.journal.dir or config.state_dir / "journal"
