"""Parses times and durations of flags."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from exporter.cli.options import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def seconds(flag: str, text: str) -> float:
    """Seconds of a duration such as `7d`, `36h`, `1d12h`. Raises UsageError."""
    if re.fullmatch(r"(?:\d+[smhdw])+", text) and (
        total := sum(int(n) * _UNITS[u] for n, u in re.findall(r"(\d+)(\w)", text))
    ):
        return total
    raise UsageError(f"{flag}: invalid duration {text!r}; use numbers and units, such as 7d, 36h or 1d12h")


def moment(flag: str, text: str | None) -> float | None:
    """Unix seconds of a time in RFC 3339 or Unix seconds; without a zone it is UTC. Raises InvalidInput."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{flag}: invalid time {text!r}; use 2026-06-01T00:00:00Z or Unix seconds") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
