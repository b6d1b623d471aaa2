"""The findings of earlier windows, kept in one small JSON file between runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from exporter.core.text.problems import InvalidInput, Problem
from exporter.fleet.statistics.confirm import Remembered
from exporter.store.safe_open import read_text

KEPT = 500  # findings; a fleet with more has another problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredFindings:
    version: Literal[1]
    findings: tuple[Remembered, ...]


_FORMAT = TypeAdapter(_StoredFindings)


def read(path: Path) -> tuple[Remembered, ...]:
    """The remembered findings; none if the file does not exist yet. Raises InvalidInput, OSError."""
    try:
        return _FORMAT.validate_json(read_text(path)).findings
    except FileNotFoundError:
        return ()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
        message = f"not a file of findings ({reason}); name another file, or remove this one to start again"
        raise InvalidInput([Problem(str(path), 1, 1, "", message)]) from error


def write(path: Path, remembered: Sequence[Remembered]) -> None:
    """Replace the file atomically. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "wb") as file:
        file.write(
            _FORMAT.dump_json(_StoredFindings(version=1, findings=tuple(remembered[-KEPT:])), indent=1, by_alias=True)
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
