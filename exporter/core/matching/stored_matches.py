"""Matches as plain data for the state file."""

from collections.abc import Mapping
from typing import Any

from exporter.core.model import Job, LogContext, Match

_ADDED_LATER = (
    "written_at",
    "shares_node",
    "named_job",
    "boot_seconds",
    "seq",
    "grave",
    "uid",
    "claims",
    "raised_by",
    "closes",
    "untimed",
)
_ADDED_TO_JOBS = ("method", "raw_id", "step", "account", "name", "pod_uid", "container", "restart")
_OF_A_FLOOD = {"lines", "until", "ranks", "waiting"}  # counted by the incident


def dump_match(match: Match) -> dict[str, Any]:
    """A match without its context and the flood that it stands for."""
    from dataclasses import fields  # takes 6 ms, and a log without a match needs none of it

    plain = {f.name: getattr(match, f.name) for f in fields(Match) if f.name not in _OF_A_FLOOD}
    for name in _ADDED_LATER:  # left out if empty, so earlier versions can read it
        if plain[name] is None or plain[name] is False or plain[name] == ():  # 0 is a user, a record, a time
            del plain[name]
    del plain["context"]
    plain["captures"] = dict(match.captures)
    plain["process"] = dict(match.process)
    plain["job"] = _dump_job(match.job) if match.job else None
    if match.claims:
        plain["claims"] = [_dump_job(job) for job in match.claims]
    return plain


def _dump_job(job: Job) -> dict[str, Any]:
    from dataclasses import fields

    plain = {f.name: getattr(job, f.name) for f in fields(Job)}
    return {name: value for name, value in plain.items() if name not in _ADDED_TO_JOBS or value not in (None, "path")}


def load_match(stored: Mapping[str, Any], context: LogContext | None = None) -> Match:
    """What `dump_match` wrote. Raises KeyError, TypeError and AttributeError for anything else."""
    job = Job(**stored["job"]) if stored["job"] else None
    claims = tuple(Job(**claim) for claim in stored.get("claims", ()))
    untimed = tuple(stored["untimed"]) if stored.get("untimed") else None
    of_log = {} if context is None else {"context": context}
    return Match(**{**stored, "job": job, "claims": claims, "untimed": untimed, **of_log})
