"""The page of findings: what makes crashes more frequent, nodes at risk, rollouts, bad nodes, and how far to trust them."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape
from starlette.responses import Response

from exporter.core.text.phrases import counted
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.report.steps import step_of
from exporter.fleet.report.wording import ROLLOUT_VERDICTS, at_risk
from exporter.fleet.results.labels import (
    NO_MODEL,
    UNITS,
    changed_fact,
    clipped,
    conditions,
    fact,
    finding_id,
    hours,
    interval,
    ratio,
    sure,
    times_and_interval,
)
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, PageTable, link, number, several, when
from exporter.fleet.statistics.findings import Correlation, Finding, NotEnough, OutlierNode, PrecedingChange

NAMED = 5  # nodes or facts named in a cell
CAUSES = 3  # crashes of a bad node
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
    fleet_status = frame.view.fleet_status
    result = fleet_status.result
    if result is None:
        return frame.page("findings.html", "No result yet", result=None, sub="The first correlation is being computed.",
                          forest="", findings=[], tables=[])  # fmt: skip
    completeness = (
        "Every source was read." if result.complete else "Incomplete: an empty result does not mean that all is well."
    )
    start, end = (datetime.fromtimestamp(edge, UTC) for edge in (result.window.start, result.window.end))
    findings = result.findings
    return frame.page(
        "findings.html", counted(len(findings), "finding") if findings else "No findings", result=result,
        sub=f"{start:%d %b %Y %H:%M} to {end:%d %b %Y %H:%M} UTC: {result.nodes:,} nodes, "
            f"{result.exposure_hours:,.0f} {UNITS[result.exposure]}; {result.incidents:,} incidents, "
            f"{result.origins:,} of them first in their job; {result.tests:,} tests. {completeness} "
            f"The result is {age(time.time() - fleet_status.result_time)} old.",
        forest=forest_of(frame, findings[:CHARTED], numbered=True), findings=finding_items(frame, findings[:CHARTED]),
        tables=_tables(frame, result),
    )  # fmt: skip


def finding_items(frame: Frame, findings: Sequence[Finding]) -> list[FindingItem]:
    return [
        FindingItem(
            address=frame.link(f"/findings/{finding_id(finding)}"), what=f"{title_of(frame, finding)} {because(finding)}",
            effect=times_and_interval(finding.ratio), status=finding.status, next_step=step_of(finding),
        )
        for finding in findings
    ]  # fmt: skip


def forest_of(frame: Frame, findings: Sequence[Finding], wide: float = 1080.0, *, numbered: bool = False) -> Markup:
    """Findings as rate ratios with intervals on a log axis; numbered as in the list below it, or with their names."""
    rows = [
        Interval(
            name=str(at) if numbered else f"{title_of(frame, finding)} {because(finding)}", ratio=finding.ratio,
            verdict="infrastructure" if finding.direction != "fewer" else "workload",
        )
        for at, finding in enumerate(findings, 1)
    ]  # fmt: skip
    return both(lambda width: forest("Rate ratio with 95% interval", rows, width=width), wide)


def rollouts_table(frame: Frame, result: Correlation | None, width: str = "full") -> PageTable:
    """Rollouts in the window, with what they did to crashes."""
    rows = []
    correlation = result or NOT_CORRELATED
    for rollout in correlation.rollouts:
        others = ", ".join(clipped(other.fact) for other in rollout.facts[1:NAMED])
        own = [correlation.findings[at - 1] for at in correlation.about(rollout)]
        effect = several(
            Cell(
                shown=Markup('<a class="{}" href="{}">{}: {} times as frequent</a>').format(
                    "worse" if one.direction != "fewer" else "better", frame.link(f"/findings/{finding_id(one)}"),
                    title_of(frame, one), ratio(one.ratio.value)),
                value=f"{one.signature} {ratio(one.ratio.value)} times",
            )
            for one in own
        ) if own else ROLLOUT_VERDICTS[rollout.verdict] if rollout.verdict else "no effect found"  # fmt: skip
        change = changed_fact(rollout.facts, rollout.before) + (f" (with {others})" if others else "")
        rows.append((change, when(rollout.first), number(rollout.nodes), effect))
    return frame.table(
        "rollouts", "What changed", ("Rollout", "From (UTC)", "Nodes", "Crashes after it"), rows,
        note="Values that nodes took on in this window, and what that did to crashes", width=width,
        empty="No rollout in this window." if result else "Not computed yet.",
    )  # fmt: skip


def beginnings_table(frame: Frame, result: Correlation) -> PageTable:
    """Crashes that became frequent in the window, with the facts that had changed on the affected nodes before."""
    rows = []
    for beginning in result.beginnings:
        suspects = several(_suspect(one) for one in beginning.changes[:NAMED]) if beginning.changes else "no fact"
        as_frequent = f"{ratio(beginning.ratio.value)} times" if beginning.crashes_before else "not seen before"
        rows.append((
            cause_cell(frame, beginning.signature), when(beginning.first), when(beginning.last),
            number(beginning.crashes_after), number(finite(beginning.ratio.value), as_frequent), suspects,
        ))  # fmt: skip
    return frame.table(
        "beginnings", "What changed before it began",
        ("Crash", "Began after (UTC)", "And before", "Nodes since", "As frequent", "Changed on these nodes in the days before"),
        rows, note="Suspects, the most unusual change first; the comparison of rollouts decides", width="full",
    )  # fmt: skip


def _suspect(change: PrecedingChange) -> Cell:
    """`driver_version 570.133.20 → 580.95.05 on 9 of 10 nodes (20 of 990 others)`."""
    text = (
        f"{changed_fact(change.facts, change.before)} on {change.affected_changed:,} of {change.affected:,} nodes "
        f"({change.others_changed:,} of {change.others:,} others)"
    )
    return Cell(shown=escape(text), value=text)


def _tables(frame: Frame, result: Correlation) -> list[PageTable]:
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
    findings = frame.table("findings", "Findings", heads, (_row(frame, finding) for finding in result.findings),
                        empty="No fact makes a crash measurably more frequent.")  # fmt: skip
    locations = frame.table(
        "places",
        "Places",
        heads,
        (_row(frame, location) for location in result.locations),
        note="Not configuration: check power, cooling and cabling there",
    )
    exposed = frame.table(
        "at_risk", "Nodes at risk that have not crashed yet",
        ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
        (
            (clipped(risk.because), cause_cell(frame, risk.signature), risk.status, number(risk.count),
             number(risk.expected_7d, ratio(risk.expected_7d)),
             several((link(frame.to, "nodes", node) for node in risk.nodes[:NAMED]), risk.count - NAMED))
            for risk in at_risk(result)
        ),
    )  # fmt: skip
    missing = frame.table(
        "not_enough", "Not enough data", ("Crash", "Crashed nodes", "What it would take"),
        (
            (cause_cell(frame, signature.signature), number(signature.crashes), signature.message + _lead(signature))
            for signature in sorted(result.not_enough_data, key=lambda signature: -signature.crashes)
        ),
        empty="Every crash has enough data.",
    )  # fmt: skip
    reliability = frame.table(
        "reliability", "Reliability", ("GPU", "Crashes", "GPU-hours", "GPU-hours a crash", "95% interval"),
        (
            (NO_MODEL if model.gpu_model == "unknown" else model.gpu_model, number(model.incidents), number(model.hours),
             number(model.mtbf) if model.incidents else number(None, "none seen"),
             f"{hours(model.mtbf_low)} to {hours(model.mtbf_high)}")
            for model in result.reliability
        ),
        note="Mean GPU-hours between crashes",
    )  # fmt: skip
    gaps = frame.table("gaps", "Missing or less exact", ("What", "Count"),
                       ((gap.message, number(gap.count)) for gap in result.gaps))  # fmt: skip
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


def _row(frame: Frame, finding: Finding) -> tuple[Any, ...]:
    return (
        cause_cell(frame, finding.signature),
        Cell(
            shown=Markup('<a href="{}">{}</a>').format(frame.link(f"/findings/{finding_id(finding)}"), because(finding)),
            value=because(finding),
        ),
        number(finite(finding.ratio.value), f"{ratio(finding.ratio.value)} times"), interval(finding.ratio), finding.status,
        number(finding.observed, f"{finding.observed:,} of {finding.crashes:,}"),
        number(finding.expected, f"{finding.expected:.1f}"), "; ".join(finding.counter_evidence) or None,
    )  # fmt: skip


def cause_cell(frame: Frame, name: str) -> Cell:
    return link(frame.to, "causes", name, frame.view.titles.title(name))


def title_of(frame: Frame, finding: Finding) -> str:
    """The title of a finding's crash."""
    return clipped(frame.view.titles.title(finding.signature))


def because(finding: Finding) -> str:
    """`with nccl_version 2.26.2`, `since the rollout of driver_version 580.95.05`."""
    facts = " and ".join(map(fact, conditions(finding)))
    return f"since the rollout of {facts}" if finding.rollout else f"with {facts}"


def finite(value: float) -> float | None:
    """A number for exports; None where it has no bound."""
    return None if math.isinf(value) else value


def age(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"


def _lead(signature: NotEnough) -> str:
    if not signature.lead or signature.p_value is None:
        return ""
    return (
        f"; lead: {fact(signature.lead)}, {signature.observed} crashes where {signature.expected:.1f} were expected "
        f"(exact p {signature.p_value:.1g}, the smallest of {counted(signature.values, 'value')})"
    )


def bad_nodes(frame: Frame, result: Correlation | None, width: str = "full", of: str = "") -> PageTable:
    """The table of the correlator's outlier nodes. of: its window, where the page shows another one."""
    rows = [
        (
            _name(frame, bad), number(bad.expected, ratio(bad.expected)),
            number(bad.incidents, f"{bad.incidents} in {bad.jobs} jobs, {bad.days} "
                   + (f"of {bad.within_days} days" if bad.within_days else "days")),
            number(bad.probability, sure(bad.probability)),
            several([cause_cell(frame, name) for name in bad.signatures[:CAUSES]], len(bad.signatures) - CAUSES),
        )
        for bad in (result or NOT_CORRELATED).outlier_nodes
    ]  # fmt: skip
    return frame.table(
        "bad_nodes", "Unusually bad nodes", ("Node or GPU", "Expected", "Incidents", "How sure", "Crashes"), rows,
        note="Far worse than nodes of the same configuration: drain and test them." + of, width=width,
        empty="No node crashes five times as often as similar ones." if result else "Not computed yet.",
    )  # fmt: skip


def _name(frame: Frame, bad: OutlierNode) -> Cell:
    """A bad node, or the node that a bad GPU was last seen in."""
    node = link(frame.to, "nodes", bad.node)
    if bad.kind == "node":
        gpu = Markup('<div class="id">GPU {}</div>').format(bad.gpu[:80])
        return replace(node, shown=node.shown + gpu) if bad.gpu else node
    return Cell(shown=Markup("GPU {}, last in {}").format(bad.name[:80], node), value=bad.name)
