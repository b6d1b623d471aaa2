"""Types of configuration values (durations, sizes, paths), and the base class of sections. Contains no keys."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from exporter.core.text.validation_messages import shown

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ms|s|m|h|d)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?\Z")
_BYTES = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def duration(value: Any) -> float:
    """Parse a duration to seconds. Raises ValueError."""
    match = _DURATION.match(str(value))
    if not match:
        raise ValueError(f"invalid duration {shown(value)}; use a number and a unit, such as 60s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def size(value: Any) -> int:
    """Parse a size to bytes. Raises ValueError."""
    match = _SIZE.match(str(value))
    if not match:
        raise ValueError(f"invalid size {shown(value)}; use a number and a unit, such as 1MiB")
    return int(match[1]) * _BYTES[match[2]]


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is relative; use an absolute path")
    return value


def _path(value: Any) -> Any:
    return Path(_absolute(value)) if isinstance(value, str) else value


# What is written, for those who check it before we see it: the Helm chart's schema is made of these. A size is a text
# there, since Helm prints 268435456 as 2.68435456e+08.
_WRITTEN_DURATION = WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,15})?(ms|s|m|h|d)$"})
WRITTEN_SIZE = WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,15}(B|KiB|MiB|GiB)?$"})
_WRITTEN_PATH = WithJsonSchema({"type": "string", "pattern": "^/"})

Seconds = Annotated[float, BeforeValidator(duration), Field(gt=0), _WRITTEN_DURATION]
Bytes = Annotated[int, BeforeValidator(size), Field(gt=0), WRITTEN_SIZE]
AbsolutePath = Annotated[Path, BeforeValidator(_path), _WRITTEN_PATH]
Glob = Annotated[str, AfterValidator(_absolute), _WRITTEN_PATH]


class Section(BaseModel):
    """A mapping of known keys; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
