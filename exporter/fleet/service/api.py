"""`/api/v1` of a fleet: lists as JSON or CSV with the pages' numbers, and the OpenAPI description of lists and correlation."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from exporter import __version__
from exporter.core.diagnosis.records import rfc3339
from exporter.core.text.phrases import spreadsheet_cell
from exporter.core.text.redact import redact
from exporter.fleet.service.lists import LISTS, MAX_ROWS, Asked, Column
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
    crashes=_INTEGER, counts=_TEXT, nodes_with=_INTEGER, nodes_without=_INTEGER, **_RATIO, p_value=_NUMBER, q_value=_NUMBER,
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
        verdict={"enum": ["tested", "follows_crashes", "no_controls", "rebooted"]},
        findings=_list({"type": "integer", "description": "of this place in findings; the first is 1"}),
    )),
}  # fmt: skip
_FAILURE = _object(time=_TIME, reason=_TEXT, what=_TEXT)
_AGE = {
    "age_seconds": _NUMBER, "refreshed": _TIME_OR_NULL, "last_complete": _TIME_OR_NULL,
    "last_failure": {"anyOf": [_FAILURE, {"type": "null"}]},
}  # fmt: skip


def correlation_paths(parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
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


_TYPES = {
    "number": {"type": ["number", "null"]}, "change": {"type": ["number", "null"]},
    "time": {"type": ["string", "null"], "format": "date-time"},
}  # fmt: skip
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_FACT_FILTER = {
    "name": "fact", "in": "query", "style": "form", "explode": True, "schema": {"type": "object"},
    "description": "`fact.NAME=VALUE`: only nodes whose last known fact has this value; may be given for several facts",
}  # fmt: skip
_LOG_COLUMNS = frozenset({"text", "template", "what"})  # hold text from logs


def answer(name: str, asked: Asked, rows: Sequence[Mapping[str, Any]], total: int) -> dict[str, Any]:
    """A list as JSON. `next_offset` is null on the last page."""
    following = asked.offset + len(rows)
    return {
        "window": {"start": rfc3339(asked.start), "end": rfc3339(asked.end)},
        "total": total,
        "offset": asked.offset,
        "next_offset": following if following < total else None,
        name: [plain(LISTS[name].columns, row) for row in rows],
    }


def plain(columns: Iterable[Column], row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's columns for programs: times as RFC 3339, log lines redacted."""
    values: dict[str, Any] = {}
    for column in columns:
        value = row[column.key]
        if column.kind == "time" and value is not None:
            value = rfc3339(value)
        elif column.key in _LOG_COLUMNS and value is not None:
            value = redact(value)
        values[column.key] = value
    return values


def as_csv(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    columns = LISTS[name].columns
    return csv_of([column.key for column in columns], (plain(columns, row).values() for row in rows))


def csv_of(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(heads)
    writer.writerows(map(spreadsheet_cell, row) for row in rows)
    return out.getvalue()


def openapi(parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The description of all lists, and of the correlation with its parts (OpenAPI 3.1)."""
    window = [
        _parameter("window", "length, such as 7d; ends at `end`"),
        _parameter("start", "RFC 3339 or Unix seconds"),
        _parameter("end", "RFC 3339 or Unix seconds; default: the newest record"),
        _parameter("limit", f"rows, at most {MAX_ROWS}; default: 100"),
        _parameter("offset", "rows before the first one"),
        _parameter("format", "json or csv"),
    ]
    paths = {}
    for name, listing in LISTS.items():
        columns = [column.key for column in listing.columns]
        row = {
            "type": "object", "required": columns, "additionalProperties": False,
            "properties": {c.key: _TYPES.get(c.kind, {"type": ["string", "null"]}) for c in listing.columns},
        }  # fmt: skip
        body = {
            "type": "object", "required": ["window", "total", "offset", "next_offset", name],
            "properties": {
                "window": {"type": "object", "required": ["start", "end"]}, "total": {"type": "integer"},
                "offset": {"type": "integer"}, "next_offset": {"type": ["integer", "null"]},
                name: {"type": "array", "items": row},
            },
        }  # fmt: skip
        paths[f"/api/v1/{name}"] = {
            "get": {
                "summary": listing.title, "description": listing.note,
                "parameters": [
                    *window, _parameter("sort", f"a column, - before it for descending; default: {listing.sort}", columns),
                    *(_parameter(key, "exact value") for key in listing.filters),
                    *([_FACT_FILTER] if "node" in listing.filters else []),
                ],
                "responses": {
                    "200": {"description": listing.title, "content": {"application/json": {"schema": body}}},
                    **{
                        status: {"description": what, "content": {"application/json": {"schema": _ERROR}}}
                        for status, what in (("400", "an invalid parameter"), ("503", "no history"))
                    },
                },
            }
        }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpufault fleet", "version": __version__},
        "paths": paths | correlation_paths(parts),
    }


def _parameter(name: str, description: str, columns: Sequence[str] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if columns:
        schema["enum"] = [*columns, *(f"-{column}" for column in columns)]
    return {"name": name, "in": "query", "description": description, "schema": schema}
