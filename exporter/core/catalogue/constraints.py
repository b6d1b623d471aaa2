"""What a field of a pack may hold, for pydantic.

`pack_types` names these in annotations only, and so loads without pydantic.
"""

from functools import lru_cache
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt
from pydantic.fields import FieldInfo

from exporter.core.patterns import required_literals, syntax
from exporter.core.patterns.syntax import FLAGS
from exporter.core.text.versions import VersionRange

__all__ = [
    "Checked", "FormerKey", "GatedPattern", "Id", "IdGlob", "Pattern", "StrictBool", "StrictFloat", "StrictInt",
    "VersionBound", "about", "or_text",
]  # fmt: skip

MAX_CHECKED = 4096  # patterns that are checked once a process; the built-in packs have 1,800


@lru_cache(MAX_CHECKED)
def _compiles(pattern: str) -> str:
    if why := syntax.refusal(pattern):
        raise ValueError(why)
    try:
        regex.compile(pattern, FLAGS)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid regular expression: {error}; use the syntax of re") from None
    return pattern


def _has_gate(pattern: str) -> str:
    required_literals.derive(pattern)  # raises NoGate, which says what to do
    return pattern


def _is_range(text: str) -> str:
    VersionRange.parse(text)
    return text


def _checked(item: Any) -> Any:
    item.check()
    return item


def _with_action(data: Any) -> Any:
    """Accept `needs_operator: true`, which `action` replaced."""
    if not isinstance(data, dict) or not isinstance(data.get("needs_operator"), bool):
        return data
    rest = {name: value for name, value in data.items() if name != "needs_operator"}
    return {"action": "run_diagnostics", **rest} if data["needs_operator"] else rest


def about(description: str, **limits: Any) -> FieldInfo:
    """The meaning of a field, and its limits."""
    field: FieldInfo = Field(description=description, **limits)
    return field


_Text = Annotated[str, Field(min_length=1)]


def or_text(kind: type[Any]) -> BeforeValidator:
    """Accept a text instead of a mapping with the key `text`."""
    return BeforeValidator(
        lambda value: {"text": value} if isinstance(value, str) else value,
        json_schema_input_type=_Text | kind,
    )


Checked = AfterValidator(_checked)  # of a class with a method `check` that raises ValueError
FormerKey = BeforeValidator(_with_action)
Id = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_]{2,79}$", description="short snake_case name, unique over all packs")
]
IdGlob = Annotated[str, Field(pattern=r"^[a-z0-9_*?]{2,80}$", description="an id, or a glob over ids such as nv_xid_*")]
Pattern = Annotated[str, AfterValidator(_compiles), Field(description="regular expression, searched in a decoded line")]
GatedPattern = Annotated[Pattern, AfterValidator(_has_gate)]  # has a literal for the prefilter
VersionBound = Annotated[str, AfterValidator(_is_range)]
