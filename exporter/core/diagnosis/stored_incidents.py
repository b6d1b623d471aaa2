"""Open incidents as JSON text in the state file. An unreadable text raises ValueError, and the caller drops it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from exporter.core.diagnosis.incidents import Entry, Reported
from exporter.core.matching.log_state import dump_context, load_context
from exporter.core.matching.stored_matches import dump_match, load_match
from exporter.core.model import Incident, LogContext


def dump_entry(entry: Entry) -> str:
    """One open incident as JSON; shared contexts are written once."""
    contexts: list[LogContext] = []
    matches = []
    for match in entry.incident.matches:
        if match.context not in contexts:
            contexts.append(match.context)
        matches.append({**dump_match(match), "context": contexts.index(match.context)})
    incident = {f.name: getattr(entry.incident, f.name) for f in fields(Incident)}
    incident["matches"] = matches
    incident["ranks"] = sorted(entry.incident.ranks)
    out = {"incident": incident, "told": _plain(entry.reported), "contexts": [dump_context(c) for c in contexts]}
    return json.dumps(out, separators=(",", ":"))


def load_entry(number: int, text: str) -> Entry:
    """Read the text that `dump_entry` wrote."""
    try:
        stored = json.loads(text)
        contexts = [load_context(c) for c in stored["contexts"]]
        incident = stored["incident"]
        matches = tuple(load_match(m, contexts[m["context"]]) for m in incident["matches"])
        reported = Reported(**stored["told"]) if stored["told"] else None
        return Entry(
            number, Incident(**{**incident, "matches": matches, "ranks": frozenset(incident["ranks"])}), reported
        )
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"invalid stored incident: {error!r}") from None


def _plain(value: Reported | None) -> dict[str, Any] | None:
    return None if value is None else {f.name: getattr(value, f.name) for f in fields(value)}
