"""The findings of earlier windows, kept in one small JSON file between runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporter.core.text.problems import InvalidInput, Problem
from exporter.fleet.observations import Window
from exporter.fleet.statistics.confirm import Remembered
from exporter.fleet.statistics.findings import FactValue
from exporter.store.safe_open import read_text

VERSION = 1
KEPT = 500  # findings; a fleet with more has another problem


def read(path: Path) -> tuple[Remembered, ...]:
    """The remembered findings; none if the file does not exist yet. Raises InvalidInput, OSError."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        return ()
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']} is not {VERSION}")
        return tuple(_remembered(finding) for finding in data["findings"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"not a file of findings ({error}); name another file, or remove this one to start again"
        raise InvalidInput([Problem(str(path), 1, 1, "", message)]) from error


def write(path: Path, remembered: Sequence[Remembered]) -> None:
    """Replace the file atomically. Raises OSError."""
    data = {"version": VERSION, "findings": [_plain(finding) for finding in remembered[-KEPT:]]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _remembered(data: Any) -> Remembered:
    if data["direction"] not in ("more", "fewer"):
        raise ValueError(f"direction {data['direction']!r} is neither more nor fewer")
    together = data["together_with"]
    return Remembered(
        signature=data["signature"],
        direction=data["direction"],
        facts=tuple(FactValue(**fact) for fact in data["facts"]),
        together_with=FactValue(**together) if together else None,
        discovered_in=Window(**data["found_in"]),
        confirmed_in=Window(**data["confirmed_in"]) if data["confirmed_in"] else None,
        watched=data.get("watched") is True,
    )


def _plain(finding: Remembered) -> dict[str, Any]:
    def window(one: Window | None) -> dict[str, float] | None:
        return {"start": one.start, "end": one.end} if one else None

    def fact(one: FactValue | None) -> dict[str, str] | None:
        return {"fact": one.fact, "value": one.value} if one else None

    return {
        "signature": finding.signature,
        "direction": finding.direction,
        "facts": [fact(one) for one in finding.facts],
        "together_with": fact(finding.together_with),
        "found_in": window(finding.discovered_in),
        "confirmed_in": window(finding.confirmed_in),
        "watched": finding.watched,
    }
