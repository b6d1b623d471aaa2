"""The page of findings: what makes crashes more frequent, nodes at risk, rollouts, bad nodes, and how far to trust them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape
from starlette.responses import Response

from exporter.core.text.phrases import counted
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.report.steps import step_of
from exporter.fleet.report.wording import ROLLOUT_VERDICTS
from exporter.fleet.results.labels import LEAST, NO_MODEL, UNITS, clipped, finding_id, ratio, sure
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import count
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, PageTable, link, number, several, when

NAMED = 5  # nodes or facts named in a cell
CHARTED = 40  # findings drawn
STATUS = {
    "confirmed": "confirmed: another window showed it too",
    "candidate": "candidate: a later window has to show it again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingItem:
    """A finding in a list."""

    address: str
    what: str
    effect: str
    status: str
    next_step: str


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


def finding_items(frame: Frame, findings: Sequence[Mapping[str, Any]]) -> list[FindingItem]:
    """Findings as links with their effect."""
    return [
        FindingItem(
            address=frame.link(f"/findings/{finding_id(finding)}"), what=f"{title_of(frame, finding)} {because(finding)}",
            effect=times(finding), status=finding["status"], next_step=step_of(finding),
        )
        for finding in findings
    ]  # fmt: skip


def forest_of(
    frame: Frame, findings: Sequence[Mapping[str, Any]], wide: float = 1080.0, *, numbered: bool = False
) -> Markup:
    """Findings as rate ratios with intervals on a log axis; numbered as in the list below it, or with their names."""
    rows = [
        Interval(
            name=str(at) if numbered else f"{title_of(frame, finding)} {because(finding)}", value=finding["rate_ratio"],
            low=finding["rate_ratio_low"] or 0.0, high=finding["rate_ratio_high"],
            verdict="infrastructure" if finding.get("direction") != "fewer" else "workload",
        )
        for at, finding in enumerate(findings, 1)
    ]  # fmt: skip
    return both(lambda width: forest("Rate ratio with 95% interval", rows, width=width), wide)


def rollouts_table(frame: Frame, result: Mapping[str, Any], width: str = "full") -> PageTable:
    """Rollouts in the window, with what they did to crashes."""
    rows = []
    for rollout in result.get("rollouts", ()):
        lead, others = rollout["facts"][0], rollout["facts"][1:NAMED]
        own = [result["findings"][at - 1] for at in rollout["findings"]]
        effect = several(
            Cell(
                shown=Markup('<a class="{}" href="{}">{}: {} times as frequent</a>').format(
                    "worse" if one.get("direction") != "fewer" else "better", frame.link(f"/findings/{finding_id(one)}"),
                    title_of(frame, one), ratio(one["rate_ratio"])),
                value=f"{one['signature']} {ratio(one['rate_ratio'])} times",
            )
            for one in own
        ) if own else "no effect found" if rollout["verdict"] == "tested" else ROLLOUT_VERDICTS[rollout["verdict"]]  # fmt: skip
        rows.append((
            f"{clipped(lead['fact'])} {clipped(rollout['before'])} → {clipped(lead['value'])}"
            + (f" (with {', '.join(clipped(other['fact']) for other in others)})" if others else ""),
            when(datetime.fromisoformat(rollout["first"]).timestamp()), number(rollout["nodes"]), effect,
        ))  # fmt: skip
    return frame.table(
        "rollouts", "What changed", ("Rollout", "From (UTC)", "Nodes", "Crashes after it"), rows,
        note="Values that nodes took on in this window, and what that did to crashes", width=width,
        empty="No rollout in this window." if result else "Not computed yet.",
    )  # fmt: skip


def beginnings_table(frame: Frame, result: Mapping[str, Any]) -> PageTable:
    """Crashes that became frequent in the window, with the facts that had changed on the affected nodes before."""
    rows = []
    for beginning in result.get("beginnings", ()):
        first, last = (datetime.fromisoformat(beginning[edge]).timestamp() for edge in ("first", "last"))
        suspects = several(_suspect(one) for one in beginning["changes"][:NAMED]) if beginning["changes"] else "no fact"
        rows.append((
            cause_cell(frame, beginning["signature"]), when(first), when(last), number(beginning["crashes_after"]),
            number(
                beginning["rate_ratio"],
                f"{ratio(beginning['rate_ratio'])} times" if beginning["crashes_before"] else "not seen before",
            ),
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


def _tables(frame: Frame, result: Mapping[str, Any]) -> list[PageTable]:
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
    findings = frame.table("findings", "Findings", heads, (_row(frame, finding) for finding in result["findings"]),
                        empty="No fact makes a crash measurably more frequent.")  # fmt: skip
    locations = frame.table(
        "places",
        "Places",
        heads,
        (_row(frame, location) for location in result["locations"]),
        note="Not configuration: check power, cooling and cabling there",
    )
    exposed = frame.table(
        "at_risk", "Nodes at risk that have not crashed yet",
        ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
        (
            (clipped(risk["because"]), cause_cell(frame, risk["signature"]), risk["status"], number(risk["count"]),
             number(risk["expected_7d"], ratio(risk["expected_7d"])),
             several((link(frame.to, "nodes", node) for node in risk["nodes"][:NAMED]), risk["count"] - NAMED))
            for risk in result["exposed"] if risk["expected_7d"] >= LEAST
        ),
    )  # fmt: skip
    missing = frame.table(
        "not_enough", "Not enough data", ("Crash", "Crashed nodes", "What it would take"),
        (
            (cause_cell(frame, signature["signature"]), number(signature["crashes"]), signature["what"] + _lead(signature))
            for signature in sorted(result["not_enough_data"], key=lambda signature: -signature["crashes"])
        ),
        empty="Every crash has enough data.",
    )  # fmt: skip
    reliability = frame.table(
        "reliability", "Reliability", ("GPU", "Crashes", "GPU-hours", "GPU-hours a crash", "95% interval"),
        (
            (NO_MODEL if model["gpu_model"] == "unknown" else model["gpu_model"], number(model["incidents"]),
             number(model["gpu_hours"]),
             number(model["mtbf_gpu_hours"]) if model["incidents"] else number(None, "none seen"),
             f"{_hours(model['mtbf_low'])} to {_hours(model['mtbf_high'])}")
            for model in result["reliability"]
        ),
        note="Mean GPU-hours between crashes",
    )  # fmt: skip
    gaps = frame.table("gaps", "Missing or less exact", ("What", "Count"),
                       ((gap["what"], number(gap["count"])) for gap in result["gaps"]))  # fmt: skip
    begun = beginnings_table(frame, result)
    tables = [
        findings,
        *([locations] if locations.rows else []),
        rollouts_table(frame, result),
        *([begun] if begun.rows else []),
        exposed,
        bad_nodes(frame, result),
    ]
    return [*tables, missing, *([reliability] if reliability.rows else []), *([gaps] if gaps.rows else [])]


def _row(frame: Frame, finding: Mapping[str, Any]) -> tuple[Any, ...]:
    low, high = ratio(finding["rate_ratio_low"]), ratio(finding["rate_ratio_high"])
    return (
        cause_cell(frame, finding["signature"]),
        Cell(
            shown=Markup('<a href="{}">{}</a>').format(frame.link(f"/findings/{finding_id(finding)}"), because(finding)),
            value=because(finding),
        ),
        number(finding["rate_ratio"], f"{ratio(finding['rate_ratio'])} times"), f"{low} to {high}", finding["status"],
        number(finding["observed"], f"{finding['observed']:,} of {finding['crashes']:,}"),
        number(finding["expected"], f"{finding['expected']:.1f}"),
        "; ".join(finding["counter_evidence"]) or None,
    )  # fmt: skip


def cause_cell(frame: Frame, name: str) -> Cell:
    """A crash by its title."""
    return link(frame.to, "causes", name, frame.view.titles.title(name))


def title_of(frame: Frame, finding: Mapping[str, Any]) -> str:
    """The title of a finding's crash."""
    return clipped(frame.view.titles.title(finding["signature"]))


def because(finding: Mapping[str, Any]) -> str:
    """`with nccl_version 2.26.2`, `since the rollout of driver_version 580.95.05`."""
    facts = " and ".join(fact(one) for one in (finding["facts"][0], finding.get("together_with")) if one)
    return f"since the rollout of {facts}" if finding.get("kind") == "rollout" else f"with {facts}"


def fact(one: Mapping[str, str]) -> str:
    """`driver_version 580.95.05`."""
    return clipped(f"{one['fact']} {one['value']}")


def times(finding: Mapping[str, Any]) -> str:
    """`12 times as frequent (95% interval 4.7 to 34)`."""
    low, high = ratio(finding["rate_ratio_low"]), ratio(finding["rate_ratio_high"])
    how = f"at least {low}" if finding["rate_ratio"] is None else ratio(finding["rate_ratio"])
    how += " times as frequent"
    return f"{how} (95% interval {low} to {high})"


def age(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"


def crashes_with(finding: Mapping[str, Any]) -> str:
    """`15 of 23, 3.4 expected`."""
    return f"{count(finding['observed'])} of {count(finding['crashes'])}, {finding['expected']:.1f} expected"


def _lead(signature: Mapping[str, Any]) -> str:
    if not signature["lead"]:
        return ""
    seen = f"; lead: {fact(signature['lead'])}, {signature['observed']} crashes where {signature['expected']:.1f} were expected"
    if signature.get("p_value") is None:
        return seen
    values = signature["values_compared"]
    return f"{seen} (exact p {signature['p_value']:.1g}, the smallest of {counted(values, 'value')})"


def _hours(value: float | None) -> str:
    return "∞" if value is None else f"{value:,.0f}"


NAMED = 3


def bad_nodes(frame: Frame, result: Mapping[str, Any], width: str = "full", of: str = "") -> PageTable:
    """The table of the correlator's outlier nodes. of: its window, where the page shows another one."""
    rows = [
        (
            _name(frame, outlier), number(outlier["expected"], ratio(outlier["expected"])),
            number(outlier["incidents"], f"{outlier['incidents']} in {outlier['jobs']} jobs, {outlier['days']} "
                   + (f"of {outlier['within_days']} days" if outlier.get("within_days") else "days")),
            number(outlier["probability"], sure(outlier["probability"])),
            several(
                [_title(frame, signature) for signature in outlier["signatures"][:NAMED]], len(outlier["signatures"]) - NAMED
            ),
        )
        for outlier in result.get("lemons", ())
    ]  # fmt: skip
    return frame.table(
        "bad_nodes", "Unusually bad nodes", ("Node or GPU", "Expected", "Incidents", "How sure", "Crashes"), rows,
        note="Far worse than nodes of the same configuration: drain and test them." + of, width=width,
        empty="No node crashes five times as often as similar ones." if result else "Not computed yet.",
    )  # fmt: skip


def _name(frame: Frame, node_or_gpu: Mapping[str, Any]) -> Cell:
    """A bad node, or the node that a bad GPU was last seen in."""
    node = link(frame.to, "nodes", node_or_gpu["node"])
    if node_or_gpu["kind"] == "node":
        gpu = str(node_or_gpu.get("gpu") or "")[:80]
        return replace(node, shown=node.shown + Markup('<div class="id">GPU {}</div>').format(gpu)) if gpu else node
    return Cell(shown=Markup("GPU {}, last in {}").format(node_or_gpu["name"][:80], node), value=node_or_gpu["name"])


def _title(frame: Frame, name: str) -> Cell:
    return link(frame.to, "causes", name, frame.view.titles.title(name))
