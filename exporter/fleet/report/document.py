"""The review as plain data: the JSON object whose schema is `schema.json`, and the tables of CSV made from it."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from exporter import __version__
from exporter.core.diagnosis.records import rfc3339
from exporter.core.text.phrases import spreadsheet_cell
from exporter.core.text.redact import redact
from exporter.fleet.results.to_json import to_json as correlation_to_json
from exporter.fleet.results.to_json import window_json
from exporter.fleet.review.review_contents import AlertQuality, Deaths, Review, Totals
from exporter.fleet.statistics.ratio import Ratio

VERSION = 2  # 2: alerts
MAX_CELL = 32_000  # characters that a spreadsheet takes
FROM_CORRELATION = {  # table of the report: field of the correlation
    "findings": "findings", "nodes_at_risk": "exposed", "outlier_nodes": "lemons", "rollouts": "rollouts",
    "reliability": "reliability", "not_enough_data": "not_enough_data",
}  # fmt: skip
TABLES = ("causes", "novelties", "unrecognised", "silent_nodes", "over_time", *FROM_CORRELATION, "alerts")


def to_json(review: Review) -> dict[str, Any]:
    """The whole review. `null` is what is not known, or has no bound."""
    return {
        "kind": "fleet_review",
        "version": VERSION,
        "gpufault": __version__,
        "window": window_json(review.window),
        "compared_with": window_json(review.before) if review.before else None,
        "verdict": review.sentence,
        "nodes": review.nodes,
        "exposure": review.exposure,
        "totals": _totals(review.totals),
        "totals_before": _totals(review.totals_before) if review.totals_before else None,
        "change": _ratio(review.change),
        "failed_jobs": _deaths(review.deaths),
        "causes": [
            {
                "kind": c.kind, "id": c.id, "title": c.title, "verdict": c.verdict, "domain": c.domain,
                "incidents": c.incidents, "nodes": c.nodes, "jobs": c.jobs,
                "lost_gpu_hours": c.lost_gpu_hours, "incidents_before": c.before,
                "change": _ratio(c.change), "trend": list(c.trend), "remediation": c.remediation,
            }
            for c in review.causes
        ],
        "over_time": [
            {"start": rfc3339(review.over_time.edges[i]), **{name: counts[i] for name, counts in review.over_time.by_verdict}}
            for i in range(len(review.over_time.edges) - 1)
        ],
        "novelties": [
            {
                "signature": n.signature, "title": n.title, "verdict": n.verdict, "incidents": n.incidents,
                "nodes": n.nodes, "first": rfc3339(n.first), "quiet_seconds": n.quiet_seconds,
            }
            for n in review.novelties
        ],
        "unrecognised": [
            {
                "template": redact(u.template), "crashes": u.count, "nodes": u.nodes, "jobs": u.jobs,
                "first": rfc3339(u.first), "last": rfc3339(u.last), "new": u.is_new, "example": redact(u.examples[0]),
                "path": redact(u.path), "line": u.line,
            }
            for u in review.unrecognised
        ],
        "silent_nodes": [{"node": s.node, "last_seen": rfc3339(s.last_seen)} for s in review.silent],
        "actions": [{"what": action.what, "open": action.is_open} for action in review.actions],
        "alerts": _alerts(review.alerts),
        "correlation": _correlation(review),
    }  # fmt: skip


def as_json(review: Review) -> str:
    """JSON text. Control and bidirectional characters are escaped."""
    return json.dumps(to_json(review), indent=1, allow_nan=False) + "\n"


def as_csv(review: Review, table: str) -> str:
    """One of TABLES, with a header. Lists are joined by `; `. No cell is a formula."""
    data = to_json(review)
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
            out |= {f"{name}_{inner}": inner_value for inner, inner_value in value.items()}
        else:
            out[name] = value
    return out


def _cell(value: Any) -> object:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        value = "=".join(map(str, value.values())) if {"fact", "value"} == value.keys() else json.dumps(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = "; ".join("" if part is None else str(_cell(part)) for part in value)
    return spreadsheet_cell(value.replace("\n", " ").replace("\r", " ")[:MAX_CELL])


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "incidents": totals.incidents,
        "origins": totals.origins,
        "nodes_crashed": totals.nodes_crashed,
        "jobs": totals.jobs,
        "without_cause": totals.without_cause,
        "lost_gpu_hours": totals.lost.hours if totals.lost else None,
        "lost_gpu_hours_measured": totals.lost.measured if totals.lost else None,
        "lost_cost": totals.lost.to_json()["cost"] if totals.lost else None,
        "exposure_hours": round(totals.hours, 4),
    }


def _correlation(review: Review) -> dict[str, Any] | None:
    if review.correlation is None:
        return None
    lost = review.totals.lost
    return correlation_to_json(review.correlation, lost.to_json() if lost else None)


def _alerts(alerts: AlertQuality | None) -> dict[str, Any] | None:
    if alerts is None:
        return None
    return {
        "missing": redact(alerts.missing) or None,
        "pages": alerts.pages,
        "tickets": alerts.tickets,
        "notes": alerts.notes,
        "pages_justified": alerts.pages_justified,
        "pages_not_justified": alerts.pages_not_justified,
        "median_seconds_to_page": alerts.seconds_to_page,
        "by_alert": [
            {
                "alert": row.name, "kind": row.kind, "fired": row.fired, "justified": row.justified,
                "not_justified": row.not_justified, "not_judged": row.not_judged, "firing_from_before": row.from_before,
                "firing_seconds": row.firing_seconds, "median_firing_seconds": row.median_seconds,
                "median_seconds_from_crash": row.seconds_from_crash,
            }
            for row in alerts.rows
        ],
    }  # fmt: skip


def _deaths(deaths: Deaths | None) -> dict[str, int] | None:
    if deaths is None:
        return None
    return {"explained": deaths.explained, "unrecognised": deaths.unrecognised, "no_line": deaths.no_line}


def _ratio(ratio: Ratio | None) -> dict[str, float | None] | None:
    if ratio is None:
        return None
    return {
        name: round(value, 4) if math.isfinite(value) else None
        for name, value in (("rate_ratio", ratio.value), ("low", ratio.low), ("high", ratio.high))
    }
