"""The page of findings: what makes crashes more frequent, nodes at risk, rollouts, and how far to trust them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape
from starlette.responses import Response

from exporter.core.text.phrases import counted
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.report.steps import step_of
from exporter.fleet.results.labels import LEAST, NO_MODEL, UNITS, clipped, ratio
from exporter.fleet.service.bad_nodes import bad_nodes
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import count
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, Table, link, number, several, when

NAMED = 5  # nodes or facts named in a cell
CHARTED = 40  # findings drawn
STATUS = {
    "confirmed": "confirmed: another window showed it too",
    "candidate": "candidate: a later window has to show it again",
}
JUDGED = {
    "tested": "compared with nodes that had not changed yet",
    "follows_crashes": "not judged: the changes follow crashes (repairs)",
    "no_controls": "not judged: no nodes to compare with",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A finding in a list."""

    address: str
    what: str
    effect: str
    status: str
    next_step: str


def finding_id(each: Mapping[str, Any]) -> str:
    """The permanent name of a finding: its crash, and a digest of its facts."""
    key = json.dumps([each["signature"], each["facts"][0], each.get("together_with")], sort_keys=True)
    return f"{each['signature'][:60]}-{hashlib.blake2b(key.encode(errors='replace'), digest_size=5).hexdigest()}"


def findings_page(frame: Frame) -> Response:
    """The page of all findings."""
    fleet_status = frame.view.fleet_status
    result = fleet_status.result
    if result is None:
        return frame.page("findings.html", "No result yet", result=None, sub="The first correlation is being computed.",
                          forest="", findings=[], tables=[])  # fmt: skip
    completeness = (
        "Every source was read."
        if result["complete"]
        else "Incomplete: an empty result does not mean that all is well."
    )
    window = result["window"]
    start, end = (datetime.fromisoformat(window[edge]) for edge in ("start", "end"))
    findings = list(result["findings"])
    return frame.page(
        "findings.html", counted(len(findings), "finding") if findings else "No findings", result=result,
        sub=f"{start:%d %b %Y %H:%M} to {end:%d %b %Y %H:%M} UTC: {result['nodes']:,} nodes, "
            f"{window['exposure_hours']:,.0f} {UNITS[window['exposure']]}; {result['incidents']:,} incidents, "
            f"{result['origins']:,} of them first in their job; {result['tests']:,} tests. {completeness} "
            f"The result is {age(time.time() - fleet_status.result_time)} old.",
        forest=forest_of(frame, findings[:CHARTED], numbered=True), findings=finding_items(frame, findings[:CHARTED]),
        tables=_tables(frame, result),
    )  # fmt: skip


def finding_items(frame: Frame, findings: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Findings as links with their effect."""
    return [
        Item(
            address=frame.link(f"/findings/{finding_id(each)}"), what=f"{title_of(frame, each)} {because(each)}",
            effect=times(each), status=each["status"], next_step=step_of(each),
        )
        for each in findings
    ]  # fmt: skip


def forest_of(
    frame: Frame, findings: Sequence[Mapping[str, Any]], wide: float = 1080.0, *, numbered: bool = False
) -> Markup:
    """Findings as rate ratios with intervals on a log axis; numbered as in the list below it, or with their names."""
    rows = [
        Interval(
            name=str(at) if numbered else f"{title_of(frame, each)} {because(each)}", value=each["rate_ratio"],
            low=each["rate_ratio_low"] or 0.0, high=each["rate_ratio_high"],
            verdict="infrastructure" if each.get("direction") != "fewer" else "workload",
        )
        for at, each in enumerate(findings, 1)
    ]  # fmt: skip
    return both(lambda width: forest("Rate ratio with 95% interval", rows, width=width), wide)


def rollouts_table(frame: Frame, result: Mapping[str, Any], width: str = "full") -> Table:
    """Rollouts in the window, with what they did to crashes."""
    rows = []
    for each in result.get("rollouts", ()):
        lead = each["facts"][0]
        own = [result["findings"][at - 1] for at in each["findings"]]
        effect = several(
            Cell(
                shown=Markup('<a class="{}" href="{}">{}: {} times as frequent</a>').format(
                    "worse" if one.get("direction") != "fewer" else "better", frame.link(f"/findings/{finding_id(one)}"),
                    title_of(frame, one), ratio(one["rate_ratio"])),
                value=f"{one['signature']} {ratio(one['rate_ratio'])} times",
            )
            for one in own
        ) if own else "no effect found" if each["verdict"] == "tested" else JUDGED[each["verdict"]]  # fmt: skip
        rows.append((
            f"{clipped(lead['fact'])} {clipped(each['before'])} → {clipped(lead['value'])}"
            + (f" (with {', '.join(clipped(one['fact']) for one in each['facts'][1:NAMED])})" if each["facts"][1:] else ""),
            when(datetime.fromisoformat(each["first"]).timestamp()), number(each["nodes"]), effect,
        ))  # fmt: skip
    return frame.table(
        "rollouts", "What changed", ("Rollout", "From (UTC)", "Nodes", "Crashes after it"), rows,
        note="Values that nodes took on in this window, and what that did to crashes", width=width,
        empty="No rollout in this window." if result else "Not computed yet.",
    )  # fmt: skip


def beginnings_table(frame: Frame, result: Mapping[str, Any]) -> Table:
    """Crashes that became frequent in the window, with the facts that had changed on the affected nodes before."""
    rows = []
    for each in result.get("beginnings", ()):
        first, last = (datetime.fromisoformat(each[edge]).timestamp() for edge in ("first", "last"))
        suspects = several(_suspect(one) for one in each["changes"][:NAMED]) if each["changes"] else "no fact"
        rows.append((
            cause_cell(frame, each["signature"]), when(first), when(last), number(each["crashes_after"]),
            number(each["rate_ratio"], f"{ratio(each['rate_ratio'])} times" if each["crashes_before"] else "not seen before"),
            suspects,
        ))  # fmt: skip
    return frame.table(
        "beginnings", "What changed before it began",
        ("Crash", "Began after (UTC)", "And before", "Nodes since", "As frequent", "Changed on these nodes in the days before"),
        rows, note="Suspects, the most unusual change first; the comparison of rollouts decides", width="full",
    )  # fmt: skip


def _suspect(change: Mapping[str, Any]) -> Cell:
    """`driver_version 570.133.20 → 580.95.05 on 9 of 10 nodes (20 of 990 others)`."""
    lead = change["facts"][0]
    text = (
        f"{clipped(lead['fact'])} {clipped(change['before'])} → {clipped(lead['value'])} on {change['affected_changed']:,} of "
        f"{change['affected']:,} nodes ({change['others_changed']:,} of {change['others']:,} others)"
    )
    return Cell(shown=escape(text), value=text)


def _tables(frame: Frame, result: Mapping[str, Any]) -> list[Table]:
    heads = (
        "Crash",
        "With",
        "As frequent",
        "95% interval",
        "Status",
        "Crashed nodes with it",
        "Expected",
        "Against it",
    )
    found = frame.table("findings", "Findings", heads, (_row(frame, each) for each in result["findings"]),
                        empty="No fact makes a crash measurably more frequent.")  # fmt: skip
    places = frame.table(
        "places",
        "Places",
        heads,
        (_row(frame, each) for each in result["locations"]),
        note="Not configuration: check power, cooling and cabling there",
    )
    exposed = frame.table(
        "at_risk", "Nodes at risk that have not crashed yet",
        ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
        (
            (clipped(each["because"]), cause_cell(frame, each["signature"]), each["status"], number(each["count"]),
             number(each["expected_7d"], ratio(each["expected_7d"])),
             several((link(frame.to, "nodes", node) for node in each["nodes"][:NAMED]), each["count"] - NAMED))
            for each in result["exposed"] if each["expected_7d"] >= LEAST
        ),
    )  # fmt: skip
    missing = frame.table(
        "not_enough", "Not enough data", ("Crash", "Crashed nodes", "What it would take"),
        (
            (cause_cell(frame, each["signature"]), number(each["crashes"]), each["what"] + _lead(each))
            for each in sorted(result["not_enough_data"], key=lambda each: -each["crashes"])
        ),
        empty="Every crash has enough data.",
    )  # fmt: skip
    reliability = frame.table(
        "reliability", "Reliability", ("GPU", "Crashes", "GPU-hours", "GPU-hours a crash", "95% interval"),
        (
            (NO_MODEL if each["gpu_model"] == "unknown" else each["gpu_model"], number(each["incidents"]),
             number(each["gpu_hours"]),
             number(each["mtbf_gpu_hours"]) if each["incidents"] else number(None, "none seen"),
             f"{_hours(each['mtbf_low'])} to {_hours(each['mtbf_high'])}")
            for each in result["reliability"]
        ),
        note="Mean GPU-hours between crashes",
    )  # fmt: skip
    gaps = frame.table("gaps", "Missing or less exact", ("What", "Count"),
                       ((each["what"], number(each["count"])) for each in result["gaps"]))  # fmt: skip
    begun = beginnings_table(frame, result)
    tables = [
        found,
        *([places] if places.rows else []),
        rollouts_table(frame, result),
        *([begun] if begun.rows else []),
        exposed,
        bad_nodes(frame, result),
    ]
    return [*tables, missing, *([reliability] if reliability.rows else []), *([gaps] if gaps.rows else [])]


def _row(frame: Frame, each: Mapping[str, Any]) -> tuple[Any, ...]:
    low, high = ratio(each["rate_ratio_low"]), ratio(each["rate_ratio_high"])
    return (
        cause_cell(frame, each["signature"]),
        Cell(
            shown=Markup('<a href="{}">{}</a>').format(frame.link(f"/findings/{finding_id(each)}"), because(each)),
            value=because(each),
        ),
        number(each["rate_ratio"], f"{ratio(each['rate_ratio'])} times"), f"{low} to {high}", each["status"],
        number(each["observed"], f"{each['observed']:,} of {each['crashes']:,}"),
        number(each["expected"], f"{each['expected']:.1f}"),
        "; ".join(each["counter_evidence"]) or None,
    )  # fmt: skip


def cause_cell(frame: Frame, name: str) -> Cell:
    """A crash by its title."""
    return link(frame.to, "causes", name, frame.view.titles.title(name))


def title_of(frame: Frame, each: Mapping[str, Any]) -> str:
    """The title of a finding's crash."""
    return clipped(frame.view.titles.title(each["signature"]))


def because(each: Mapping[str, Any]) -> str:
    """`with nccl_version 2.26.2`, `since the rollout of driver_version 580.95.05`."""
    facts = " and ".join(fact(one) for one in (each["facts"][0], each.get("together_with")) if one)
    return f"since the rollout of {facts}" if each.get("kind") == "rollout" else f"with {facts}"


def fact(one: Mapping[str, str]) -> str:
    """`driver_version 580.95.05`."""
    return clipped(f"{one['fact']} {one['value']}")


def times(each: Mapping[str, Any]) -> str:
    """`12 times as frequent (95% interval 4.7 to 34)`."""
    low, high = ratio(each["rate_ratio_low"]), ratio(each["rate_ratio_high"])
    how = "seen only so" if each["rate_ratio"] is None else f"{ratio(each['rate_ratio'])} times as frequent"
    return f"{how} (95% interval {low} to {high})"


def age(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"


def crashes_with(each: Mapping[str, Any]) -> str:
    """`15 of 23, 3.4 expected`."""
    return f"{count(each['observed'])} of {count(each['crashes'])}, {each['expected']:.1f} expected"


def _lead(each: Mapping[str, Any]) -> str:
    if not each["lead"]:
        return ""
    seen = f"; lead: {fact(each['lead'])}, {each['observed']} crashes where {each['expected']:.1f} were expected"
    if each.get("p_value") is None:
        return seen
    values = each["values_compared"]
    return f"{seen} (exact p {each['p_value']:.1g}, the smallest of {counted(values, 'value')})"


def _hours(value: float | None) -> str:
    return "∞" if value is None else f"{value:,.0f}"
