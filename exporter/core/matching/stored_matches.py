"""Matches as plain data for the state file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from exporter.core.model import Job, LogContext, Match

_ADDED_LATER = ("written_at", "shares_node", "named_job", "boot_seconds", "seq", "grave")
_OF_A_FLOOD = {"lines", "until", "ranks"}  # counted by the incident


def dump_match(match: Match) -> dict[str, Any]:
    """A match without its context and the flood that it stands for."""
    plain = {f.name: getattr(match, f.name) for f in fields(Match) if f.name not in _OF_A_FLOOD}
    for name in _ADDED_LATER:  # left out if empty, so earlier versions can read it
        if plain[name] in (None, False):
            del plain[name]
    del plain["context"]
    plain["captures"] = dict(match.captures)
    plain["process"] = dict(match.process)
    plain["job"] = {f.name: getattr(match.job, f.name) for f in fields(Job)} if match.job else None
    return plain


def load_match(stored: Mapping[str, Any], context: LogContext | None = None) -> Match:
    """What `dump_match` wrote. Raises KeyError, TypeError and AttributeError for anything else."""
    job = Job(**stored["job"]) if stored["job"] else None
    of_log = {} if context is None else {"context": context}
    return Match(**{**stored, "captures": stored["captures"], "job": job, **of_log})
