"""The review as plain data: the JSON object whose schema is `schema.json`, and the tables of CSV made from it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from exporter import __version__
from exporter.core.diagnosis.records import rfc3339
from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.observations import Window
from exporter.fleet.review.values import AlertQuality, Deaths, Overview, Totals
from exporter.fleet.statistics.ratio import Ratio

VERSION = 2  # 2: alerts
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs what begins so
MAX_CELL = 32_000  # characters that a spreadsheet takes
FROM_CORRELATION = {  # table of the report: field of the correlation
    "findings": "findings", "nodes_at_risk": "exposed", "outlier_nodes": "lemons", "rollouts": "rollouts",
    "reliability": "reliability", "not_enough_data": "not_enough_data",
}  # fmt: skip
TABLES = ("causes", "novelties", "unrecognised", "silent_nodes", "over_time", *FROM_CORRELATION, "alerts")


def to_json(found: Overview) -> dict[str, Any]:
    """The whole review. `null` is what is not known, or has no bound."""
    return {
        "kind": "fleet_review",
        "version": VERSION,
        "gpufault": __version__,
        "window": _window(found.window),
        "compared_with": _window(found.before) if found.before else None,
        "verdict": found.sentence,
        "nodes": found.nodes,
        "exposure": found.exposure,
        "totals": _totals(found.totals),
        "totals_before": _totals(found.totals_before) if found.totals_before else None,
        "change": _ratio(found.change),
        "failed_jobs": _deaths(found.deaths),
        "causes": [
            {
                "kind": c.kind, "id": c.id, "title": c.title, "verdict": c.verdict, "incidents": c.incidents,
                "nodes": c.nodes, "jobs": c.jobs, "lost_gpu_hours": c.lost_gpu_hours, "incidents_before": c.before,
                "change": _ratio(c.change), "trend": list(c.trend), "remediation": c.remediation,
            }
            for c in found.causes
        ],
        "over_time": [
            {"start": rfc3339(found.over_time.edges[i]), **{name: counts[i] for name, counts in found.over_time.by_verdict}}
            for i in range(len(found.over_time.edges) - 1)
        ],
        "novelties": [
            {
                "signature": n.signature, "title": n.title, "verdict": n.verdict, "incidents": n.incidents,
                "nodes": n.nodes, "first": rfc3339(n.first), "quiet_seconds": n.quiet_seconds,
            }
            for n in found.novelties
        ],
        "unrecognised": [
            {
                "template": redact(u.template), "crashes": u.count, "nodes": u.nodes, "jobs": u.jobs,
                "first": rfc3339(u.first), "last": rfc3339(u.last), "new": u.is_new, "example": redact(u.examples[0]),
                "path": redact(u.path), "line": u.line,
            }
            for u in found.unrecognised
        ],
        "silent_nodes": [{"node": s.node, "last_seen": rfc3339(s.last_seen)} for s in found.silent],
        "actions": [{"what": each.what, "open": each.is_open} for each in found.actions],
        "alerts": _alerts(found.alerts),
        "correlation": found.correlation,
    }  # fmt: skip


def as_json(found: Overview) -> str:
    """JSON text. Control and bidirectional characters are escaped."""
    return json.dumps(to_json(found), indent=1, allow_nan=False) + "\n"


def as_csv(found: Overview, table: str) -> str:
    """One of TABLES, with a header. Lists are joined by `; `. No cell is a formula."""
    data = to_json(found)
    field = FROM_CORRELATION.get(table)
    rows = data[table] if field is None else (data["correlation"] or {}).get(field, [])
    if table == "alerts":
        rows = (rows or {}).get("by_alert", [])
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(names or ["empty"])
    writer.writerows([_cell(row.get(name)) for name in names] for row in flat)
    return out.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and value.keys() != {"fact", "value"}:
            out |= {f"{name}_{inner}": each for inner, each in value.items()}
        else:
            out[name] = value
    return out


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        value = "=".join(map(str, value.values())) if {"fact", "value"} == value.keys() else json.dumps(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = "; ".join("" if each is None else str(_cell(each)) for each in value)
    text = printable(value.replace("\n", " ").replace("\r", " "))[:MAX_CELL]
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text


def _totals(found: Totals) -> dict[str, Any]:
    return {
        "incidents": found.incidents,
        "origins": found.origins,
        "nodes_crashed": found.nodes_crashed,
        "jobs": found.jobs,
        "without_cause": found.without_cause,
        "lost_gpu_hours": found.lost_gpu_hours,
        "exposure_hours": round(found.hours, 4),
    }


def _alerts(found: AlertQuality | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "missing": redact(found.missing) or None,
        "pages": found.pages,
        "tickets": found.tickets,
        "notes": found.notes,
        "pages_justified": found.pages_justified,
        "pages_not_justified": found.pages_not_justified,
        "median_seconds_to_page": found.seconds_to_page,
        "by_alert": [
            {
                "alert": row.name, "kind": row.kind, "fired": row.fired, "justified": row.justified,
                "not_justified": row.not_justified, "not_judged": row.not_judged, "firing_from_before": row.from_before,
                "firing_seconds": row.firing_seconds, "median_firing_seconds": row.median_seconds,
                "median_seconds_from_crash": row.seconds_from_crash,
            }
            for row in found.rows
        ],
    }  # fmt: skip


def _deaths(found: Deaths | None) -> dict[str, int] | None:
    if found is None:
        return None
    return {"explained": found.explained, "unrecognised": found.unrecognised, "no_line": found.no_line}


def _ratio(found: Ratio | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {
        name: round(value, 4) if math.isfinite(value) else None
        for name, value in (("rate_ratio", found.value), ("low", found.low), ("high", found.high))
    }


def _window(window: Window) -> dict[str, str]:
    return {"start": rfc3339(window.start), "end": rfc3339(window.end)}
