"""Parts of a dashboard in Grafana's JSON: variables, panels, rows, links. dashboards.py has the contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
RUNBOOKS = "https://gpufault.example.org/runbooks"


def variable(name: str, label: str, query: str, *, all_value: str | None, multi: bool = True) -> Json:
    """A variable over the values of a label; `all_value` None: one has to be chosen."""
    choice: Json = {"includeAll": True, "allValue": all_value} if all_value else {"includeAll": False}
    return {
        "type": "query", "name": name, "label": label, "datasource": DATASOURCE, "refresh": 2, "sort": 1,
        "definition": query, "query": {"query": query, "refId": name}, "multi": multi, **choice,
        "current": {"text": "All", "value": "$__all"} if all_value else {},
    }  # fmt: skip


def target(expression: str, *, legend: str = "", instant: bool = False) -> Json:
    """A query. An instant one is drawn as a table's rows or one number."""
    drawn: Json = {"instant": True, "range": False, "format": "table"} if instant else {"legendFormat": legend}
    return {"datasource": DATASOURCE, "editorMode": "code", "expr": expression, "refId": "A", **drawn}


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    unit: str = "short",
    width: int = 8,
    height: int = 8,
    alerts: Sequence[str] = (),
    **more: Any,
) -> Json:
    """A panel; `alerts` are those whose runbooks it links to, `more` is options, overrides and the like."""
    for letter, one in zip("ABCDEFGH", targets, strict=False):
        one["refId"] = letter
    links = [{"title": f"Runbook: {a}", "url": f"{RUNBOOKS}/{a}.md", "targetBlank": True} for a in alerts]
    return {
        "type": kind, "title": title, "description": description, "datasource": DATASOURCE, "links": links,
        "targets": list(targets), "gridPos": {"w": width, "h": height, "x": 0, "y": 0},
        "fieldConfig": {
            "defaults": {"unit": unit, **more.get("defaults", {})}, "overrides": more.get("overrides", [])
        },
        "options": more.get("options", {}), "transformations": more.get("transformations", []),
    }  # fmt: skip


def stat(title: str, description: str, expression: str, *, bad_from: float | None = None, **more: Any) -> Json:
    """One number; from `bad_from` on it is red."""
    steps: list[Json] = [{"color": "text", "value": None}]
    if bad_from is not None:
        steps.append({"color": "red", "value": bad_from})
    one = target(expression, instant=True) | {"format": "time_series"}
    defaults = {"thresholds": {"mode": "absolute", "steps": steps}}
    size = {"width": 4, "height": 4} | {key: more.pop(key) for key in ("width", "height") if key in more}
    return panel("stat", title, description, [one], defaults=defaults, **size, **more)


def series(title: str, description: str, queries: Mapping[str, str], *, stacked: bool = False, **more: Any) -> Json:
    """Lines over time: legend to query. `stacked`: what happens is rare, so bars that stand upon each other."""
    custom = {"drawStyle": "bars", "fillOpacity": 80, "stacking": {"mode": "normal"}} if stacked else {"lineWidth": 1}
    targets = [target(expression, legend=legend) for legend, expression in queries.items()]
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, targets, defaults={"custom": custom}, options=options, **more)


def table(title: str, description: str, expression: str, *, number: str, **more: Any) -> Json:
    """Labels and one number a row, the largest first. A node's name leads to its dashboard, a cause's to its own."""
    organize = {
        "id": "organize",
        "options": {"excludeByName": {"Time": True, "__name__": True}, "renameByName": {"Value": number}},
    }
    here = "var-datasource=${datasource}&${cluster:queryparam}&${__url_time_range}"
    overrides = [
        link("instance", "Node", f"/d/gpufault-node?var-instance=${{__value.raw}}&{here}"),
        link("root_cause", "Root cause", f"/d/gpufault-root-cause?var-root_cause=${{__value.raw}}&{here}"),
    ]
    options = {"sortBy": [{"displayName": number, "desc": True}]}
    one = target(expression, instant=True)
    return panel(
        "table", title, description, [one], transformations=[organize], overrides=overrides, options=options, **more
    )


def link(field: str, title: str, url: str) -> Json:
    """What a cell of a table leads to."""
    links = [{"title": title, "url": url}]
    return {"matcher": {"id": "byName", "options": field}, "properties": [{"id": "links", "value": links}]}


def row(title: str) -> Json:
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def dashboard(uid: str, title: str, description: str, variables: Sequence[Json], panels: Sequence[Json]) -> Json:
    """A whole dashboard: panels are laid out from left to right, in lines."""
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        place = one["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        place["x"], place["y"] = x, y
        x, tallest = x + place["w"], max(tallest, place["h"])
        one["id"] = number
    datasource: Json = {
        "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1,
        "current": {}, "hide": 0, "regex": "",
    }  # fmt: skip
    others: Json = {
        "type": "dashboards", "title": "gpufault", "tags": ["gpufault"], "asDropdown": False,
        "includeVars": True, "keepTime": True,
    }  # fmt: skip
    return {
        "uid": uid, "title": title, "description": description, "tags": ["gpufault"], "schemaVersion": 39, "version": 1,
        "editable": False, "graphTooltip": 1, "refresh": "1m", "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser", "links": [others], "annotations": {"list": []},
        "templating": {"list": [datasource, *variables]}, "panels": list(panels),
    }  # fmt: skip
