"""Open incidents as JSON text and back: what the state file holds of them between two processes.

The one place that knows this form. A text that it cannot read raises ValueError, and the caller sets it aside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from exporter.core.diagnosis.incidents import Entry, Reported
from exporter.core.matching.log_state import dump_context, load_context
from exporter.core.model import Incident, Job, LogContext, Match

_LATER = (
    "written_at",
    "shares_node",
    "named_job",
    "boot_seconds",
    "seq",
    "grave",
)  # fields that came with later versions
_OF_A_FLOOD = {"lines", "until", "ranks"}  # what a match stands for besides itself, which its incident has taken over


def dump_entry(entry: Entry) -> str:
    """One open incident. Contexts that its matches share are written once."""
    contexts: list[LogContext] = []
    matches = []
    for match in entry.incident.matches:
        if match.context not in contexts:
            contexts.append(match.context)
        plain = {f.name: getattr(match, f.name) for f in fields(Match) if f.name not in _OF_A_FLOOD}
        for name in _LATER:  # left out where they say nothing, so that an earlier version reads it, too
            if plain[name] in (None, False):
                del plain[name]
        plain["captures"] = dict(match.captures)
        plain["process"] = dict(match.process)
        plain["job"] = _plain(match.job)
        plain["context"] = contexts.index(match.context)
        matches.append(plain)
    incident = {f.name: getattr(entry.incident, f.name) for f in fields(Incident)}
    incident["matches"] = matches
    incident["ranks"] = sorted(entry.incident.ranks)
    out = {"incident": incident, "told": _plain(entry.reported), "contexts": [dump_context(c) for c in contexts]}
    return json.dumps(out, separators=(",", ":"))


def load_entry(number: int, text: str) -> Entry:
    """The incident that `dump_entry` wrote."""
    try:
        stored = json.loads(text)
        contexts = [load_context(c) for c in stored["contexts"]]
        incident = stored["incident"]
        matches = tuple(
            Match(
                **{
                    **m,
                    "captures": m["captures"],
                    "job": _job(m["job"]),
                    "context": contexts[m["context"]],
                }
            )
            for m in incident["matches"]
        )
        reported = Reported(**stored["told"]) if stored["told"] else None
        return Entry(
            number, Incident(**{**incident, "matches": matches, "ranks": frozenset(incident["ranks"])}), reported
        )
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"no stored incident: {error!r}") from None


def _plain(value: Job | Reported | None) -> dict[str, Any] | None:
    return None if value is None else {f.name: getattr(value, f.name) for f in fields(value)}


def _job(stored: Mapping[str, Any] | None) -> Job | None:
    return None if stored is None else Job(**stored)
