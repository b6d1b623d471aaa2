"""OpenAPI description of the last correlation and its parts. Objects may get further fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from exporter.fleet.statistics.findings import Direction, Status

Schema = dict[str, Any]

_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": ["number", "null"], "description": "null: without a bound, or not known"}
_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
# What each answer is of, and what it lacks.
ALWAYS = ("window", "nodes", "incidents", "complete", "gaps")


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_SPAN = _object(start=_TIME, end=_TIME)
_FACT = _object(fact=_TEXT, value=_TEXT)
_RATIO = {"rate_ratio": _NUMBER, "rate_ratio_low": _NUMBER, "rate_ratio_high": _NUMBER}
_FINDING = _object(
    kind={"enum": ["fact", "rollout"]}, signature=_TEXT, level=_TEXT, direction={"enum": list(get_args(Direction))},
    facts=_list(_FACT), together_with={"anyOf": [_FACT, {"type": "null"}]}, observed=_INTEGER, expected=_NUMBER,
    crashes=_INTEGER, nodes_with=_INTEGER, nodes_without=_INTEGER, **_RATIO, p_value=_NUMBER, q_value=_NUMBER,
    status={"enum": list(get_args(Status))}, next_step={"type": ["string", "null"]},
    first_seen={"anyOf": [_SPAN, {"type": "null"}]}, counter_evidence=_list(_TEXT), examples=_list(_TEXT),
    tie_breakers=_list(_TEXT),
)  # fmt: skip
_FIELDS: Mapping[str, Schema] = {
    "window": _object(start=_TIME, end=_TIME, exposure=_TEXT, exposure_hours=_NUMBER),
    "nodes": _INTEGER,
    "incidents": _INTEGER,
    "complete": {"type": "boolean"},
    "gaps": _list(_object(kind=_TEXT, count=_INTEGER, what=_TEXT)),
    "findings": _list(_FINDING),
    "locations": _list(_FINDING),
    "not_enough_data": _list(_object(signature=_TEXT, crashes=_INTEGER, needed=_NUMBER, what=_TEXT)),
    "lemons": _list(_object(
        kind={"enum": ["node", "gpu"]}, name=_TEXT, node=_TEXT, incidents=_INTEGER, expected=_NUMBER, probability=_NUMBER,
    )),
    "exposed": _list(_object(because=_TEXT, signature=_TEXT, count=_INTEGER, expected_7d=_NUMBER, nodes=_list(_TEXT))),
    "rollouts": _list(_object(
        facts=_list(_FACT), before={"type": ["string", "null"]}, nodes=_INTEGER, first=_TIME,
        verdict={"enum": ["tested", "follows_crashes", "no_controls"]},
        findings=_list({"type": "integer", "description": "of this place in findings; the first is 1"}),
    )),
}  # fmt: skip
_FAILURE = _object(time=_TIME, reason=_TEXT, what=_TEXT)
_AGE = {
    "age_seconds": _NUMBER, "refreshed": _TIME_OR_NULL, "last_complete": _TIME_OR_NULL,
    "last_failure": {"anyOf": [_FAILURE, {"type": "null"}]},
}  # fmt: skip


def paths(parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The paths of the correlation and of its parts, by the fields that each part has."""
    return {"/api/v1/correlation": _path("The last correlation", tuple(_FIELDS))} | {
        f"/api/v1/{name}": _path(f"Of the last correlation: {', '.join(fields)}", (*ALWAYS, *fields))
        for name, fields in parts.items()
    }


def _path(summary: str, fields: Sequence[str]) -> dict[str, Any]:
    schema = _object(**_AGE, **{name: _FIELDS[name] for name in fields})
    failed = _object(error=_TEXT, **{name: _AGE[name] for name in ("refreshed", "last_complete", "last_failure")})
    return {
        "get": {
            "summary": summary,
            "responses": {
                "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
                "304": {"description": "unchanged since the If-None-Match or If-Modified-Since of the request"},
                "503": {"description": "no result yet", "content": {"application/json": {"schema": failed}}},
            },
        }
    }
