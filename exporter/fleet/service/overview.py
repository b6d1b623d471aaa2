"""The overview: one verdict line, the figures with their change, the trend, causes, findings and bad nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.text.printable import printable
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.charts.over_time import Mark, stacked_bars
from exporter.fleet.history.watched import IN_WINDOW
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import clipped, ratio, sure
from exporter.fleet.review import overview as review
from exporter.fleet.review.values import Overview
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import change, clip, count, segment, time_of
from exporter.fleet.service.lists import LISTS, Asked, rows_of

VERDICTS = ("infrastructure", "workload", "unclear")
MAX_BARS = 45
SHOWN = 8  # causes, findings, nodes on the overview
_ROOTS = "role = 'root' AND root_cause != 'peer_failure'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure with its change and the page that explains it."""

    figure: str
    what: str
    change: str
    tone: str
    path: str


def overview(frame: Frame) -> Response:
    """The landing page, with the numbers of `gpufault report`."""
    store, result = frame.view.store, frame.view.standing.result
    found = list((result or {}).get("findings", ()))[:SHOWN]
    if store is None:
        return findings_only(frame, found)
    with store.cursor() as cursor:
        now = review.overview(
            cursor, Window(start=frame.start, end=frame.end), _of_window(frame, result), frame.view.titles.plain
        )  # fmt: skip
    whole = Asked(start=frame.start, end=frame.end, filters={}, facts={}, sort="-incidents", limit=SHOWN)
    causes, total = rows_of(store, "causes", whole)
    compared = {row.id: row.before for row in now.causes}
    causes = [{**row, "before": compared.get(row["cause"])} for row in causes]
    at_risk = sum(each["count"] for each in (result or {}).get("exposed", ()))
    totals, before = now.totals, now.totals_before
    share = totals.without_cause / totals.incidents if totals.incidents else None
    lost = totals.lost_gpu_hours
    tiles = [
        _tile("root incidents", totals.incidents, before.incidents if before else None, "/incidents"),
        _tile("GPU-hours lost, at an hour a GPU", lost, before.lost_gpu_hours if before else None, "/causes")
        if lost is not None
        else _tile("nodes with root incidents", totals.nodes_crashed, before.nodes_crashed if before else None, "/nodes"),
        Tile(figure="–" if share is None else f"{share:.0%}", what="without a known cause",
             change=f"{count(total)} causes and signatures", tone="dim", path="/causes"),
        Tile(figure=count(at_risk) if result else "–", what="nodes at risk, not affected",
             change=f"{count(len((result or {}).get('findings', ())))} findings", tone="dim", path="/findings"),
    ]  # fmt: skip
    marks = tuple(mark for mark in _rollouts(result) if mark.time >= now.over_time.edges[0])
    return frame.page(
        "overview.html", now.sentence, tiles=tiles, causes=causes, sub=_seen(frame, now, totals.nodes_crashed),
        unknowns=rows_of(store, "unknowns", whole)[0], causes_list=LISTS["causes"], unknowns_list=LISTS["unknowns"],
        trend=both(lambda width: stacked_bars(
            "Root incidents over time", now.over_time.edges, now.over_time.by_verdict, unit="root incidents", marks=marks,
            width=width)),
        forest=forest_of(frame, found, 520.0), findings=[{**each, "fact": _fact(each)} for each in found],
        no_findings="No fact makes a crash measurably more frequent." if result else "Findings are not computed yet.",
        lemons=[
            (lemon_link(frame, each), each["incidents"], ratio(each["expected"]), sure(each["probability"]))
            for each in (result or {}).get("lemons", ())[:SHOWN]
        ],
        novelties=[
            (Markup('<a href="{}">{}</a>').format(
                frame.link(f"/causes/{segment(each.signature)}"), printable(clip(each.title))),
             "new" if each.quiet_seconds is None else f"back after {each.quiet_seconds / 86400:.0f} days",
             each.incidents, each.nodes, time_of(each.first))
            for each in now.novelties[:SHOWN]
        ],
    )  # fmt: skip


def findings_only(frame: Frame, found: list[dict[str, Any]]) -> Response:
    """The landing page of a source without lines, nodes and jobs."""
    result = frame.view.standing.result
    heading = "No result yet" if result is None else (
        f"{count(result['incidents'])} incidents on {count(result['nodes'])} nodes; {count(len(result['findings']))} findings"
    )  # fmt: skip
    return frame.page(
        "findings.html", heading, result=result, forest=forest_of(frame, found), sections=[], max_rows=SHOWN
    )  # fmt: skip


def _of_window(frame: Frame, result: Any) -> Any:
    """The correlator's result where it is of the window shown, give or take a tenth; its ends move with each refresh."""
    if result is None:
        return None
    start, end = (datetime.fromisoformat(result["window"][edge]).timestamp() for edge in ("start", "end"))
    most = 0.1 * (frame.end - frame.start)
    return result if abs(start - frame.start) <= most and abs(end - frame.end) <= most else None


def _seen(frame: Frame, now: Overview, crashed: int) -> Markup:
    silent = Markup('<a class="worse" href="{}">{} not seen for a day</a>').format(
        frame.link("/quality"), f"{count(len(now.silent))} {'node was' if len(now.silent) == 1 else 'nodes were'}"
    )  # fmt: skip
    told = "" if now.before else " The records do not reach back over a window before to compare with."
    return Markup("{} of {} nodes had root incidents. {}.{}").format(
        count(crashed), count(now.nodes), silent if now.silent else "Every node was seen within the last day", told
    )  # fmt: skip


def _tile(what: str, value: float, before: float | None, path: str) -> Tile:
    tone = "dim" if before is None or before == value else "worse" if value > before else "better"
    told = "nothing to compare with" if before is None else f"{change(value, before)} on the window before"
    return Tile(figure=count(value), what=what, change=told, tone=tone, path=path)


SILENT = f"""SELECT node, max(least(last, $end)) AS seen FROM watched_days WHERE {IN_WINDOW}
GROUP BY node HAVING seen < $day ORDER BY seen"""


def trend(frame: Frame, condition: str = "true", marks: tuple[Mark, ...] = (), **parameters: Any) -> Markup:
    """Root incidents over the window by verdict, for wide and for narrow screens."""
    store = frame.view.store
    if store is None:
        return Markup("")
    days = (frame.end - frame.start) / 86400
    step = next((s for s in (3600.0, 21600.0, 86400.0, 604800.0) if days * 86400 / s <= MAX_BARS), 2419200.0)
    first = frame.start // step * step
    bars = int((frame.end - first) // step) + 1
    edges = [first + i * step for i in range(bars + 1)]
    rows = store.rows(
        f"""SELECT verdict, floor((time - $first) / $step) AS bar, count(*) AS n FROM incidents
        WHERE time >= $start AND time < $end AND {_ROOTS} AND {condition} GROUP BY ALL""",
        {"first": first, "step": step, **frame.span, **parameters},
    )
    counts = {name: [0] * bars for name in VERDICTS}
    for row in rows:
        counts[row["verdict"]][int(row["bar"])] += row["n"]
    series = [(name, counts[name]) for name in VERDICTS]
    unit = {3600.0: "hour", 21600.0: "six hours", 86400.0: "day"}.get(step, "week")
    return both(
        lambda width: stacked_bars(
            f"Root incidents a {unit}", edges, series, unit="root incidents", marks=marks, width=width
        )
    )


def both(draw: Any, wide: float = 1080.0) -> Markup:
    """A chart for wide and one for narrow screens. `draw` takes the width; the charts escape what they are given."""
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(
        Markup(draw(wide)), Markup(draw(330.0))  # noqa: S704 - the charts escape every text
    )  # fmt: skip


def forest_of(frame: Frame, findings: list[dict[str, Any]], wide: float = 1080.0) -> Markup:
    """Findings as rate ratios with intervals on a log axis."""
    rows = [
        Interval(
            name=f"{frame.view.titles.title(each['signature'])} · {_fact(each)}", value=each["rate_ratio"],
            low=each["rate_ratio_low"] or 0.0, high=each["rate_ratio_high"],
            verdict="infrastructure" if each["direction"] == "more" else "unclear",
        )
        for each in findings
    ]  # fmt: skip
    return both(lambda width: forest("Rate ratio with 95 % interval", rows, width=width), wide)


def lemon_link(frame: Frame, each: dict[str, Any]) -> Markup:
    """A bad node, or the node that a bad GPU was last seen in."""
    name = each["name"] if each["kind"] == "node" else f"GPU {each['name']}, last in {each['node']}"
    return Markup('<a href="{}">{}</a>').format(frame.link(f"/nodes/{segment(each['node'])}"), printable(clip(name)))


def _rollouts(result: Any) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            time=datetime.fromisoformat(each["first"]).timestamp(),
            what=f"{clipped(each['facts'][0]['fact'])} {clipped(each['before'])} → {clipped(each['facts'][0]['value'])} "
            f"on {each['nodes']:,} nodes",
        )
        for each in (result or {}).get("rollouts", ())
        if each.get("verdict") == "tested"
    )


def _fact(each: dict[str, Any]) -> str:
    return clipped(f"{each['facts'][0]['fact']}={each['facts'][0]['value']}")
