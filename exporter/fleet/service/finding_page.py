"""The page of one finding: its picture, how sure it is, what speaks against it, and what to do."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.charts.intervals import event_study as drawn
from exporter.fleet.history.schema import ROOTS, fact_pointer
from exporter.fleet.observations import Window
from exporter.fleet.report.steps import step_of
from exporter.fleet.results.labels import clipped, expected_count, finding_id, ratio
from exporter.fleet.review.event_study import event_study
from exporter.fleet.service.finding_list import (
    STATUS,
    because,
    cause_cell,
    crashes_with,
    fact,
    times,
    title_of,
)
from exporter.fleet.service.frame import Frame, MissingPage
from exporter.fleet.service.html import count
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, PageTable, link, number, several, when
from exporter.fleet.statistics.findings import FactValue, whose

SMALLEST_RATE = 1e-4  # of false discovery, that is written out
MAX_CRASHED = 1000  # nodes


def finding_page(frame: Frame, name: str) -> Response:
    """One finding, or one place. Raises MissingPage."""
    result = frame.view.fleet_status.result or {}
    every = [*result.get("findings", ()), *result.get("locations", ())]
    finding = next((condition for condition in every if finding_id(condition) == name), None)
    if finding is None:
        raise MissingPage("This finding is not in the newest result; the page Findings lists what is")
    chart, steps = _picture(frame, finding)
    q = finding.get("q_value")
    fdr = "" if q is None else f" · false discovery rate {'below 0.0001' if q < SMALLEST_RATE else f'{q:.2g}'}"
    adjusted = f" · adjusted for {', '.join(finding['adjusted_for'])}" if finding.get("adjusted_for") else ""
    others = [fact(condition) for condition in finding["facts"][1:]]
    return frame.page(
        "finding.html", f"{title_of(frame, finding)}: {times(finding)} {because(finding)}", trail=("/findings", "Findings"),
        sub=f"{STATUS[finding['status']].capitalize()}{adjusted}{fdr}", finding=finding, chart=chart,
        sure=_how_sure(frame, finding),
        steps=steps, trend=_trend(frame, finding), others=others,
        workload=_workload(frame, finding), crashed=_crashed(frame, finding, result),
        at_risk=_at_risk(frame, finding, result),
        tie_breakers=several(link(frame.to, "nodes", node) for node in finding["tie_breakers"]),
        examples=_examples(frame, finding["examples"]),
        next_step=step_of(finding), cause=cause_cell(frame, finding["signature"]),
    )  # fmt: skip


def _picture(frame: Frame, finding: Mapping[str, Any]) -> tuple[Markup, PageTable | None]:
    """A rollout as an event study with its numbers; another finding as a forest plot with and without its heaviest users."""
    store = frame.view.store
    result = frame.view.fleet_status.result
    if finding.get("kind") == "rollout" and store is not None and result is not None:
        start, end = (datetime.fromisoformat(result["window"][edge]).timestamp() for edge in ("start", "end"))
        lead = finding["facts"][0]
        with store.cursor() as db:
            length, steps = event_study(
                db, finding["signature"], lead["fact"], lead["value"], Window(start=start, end=end)
            )
        if steps:
            intervals = [
                Interval(
                    name=f"{step.day:+g} d", value=_finite(step.ratio.value) if step.crashes else None, low=step.ratio.low,
                    high=_finite(step.ratio.high), verdict="infrastructure" if step.day >= 0 else "unclear",
                )
                for step in steps
            ]  # fmt: skip
            at = sum(step.day < 0 for step in steps)
            title = "Crash rate of changed nodes against unchanged ones, by days since each node's change"
            table = frame.table(
                "steps", "The numbers",
                ("Days since the change", "Crashes", "Expected as unchanged nodes", "Times", "Interval"),
                (
                    (number(step.day, f"{step.day:+g} to {step.day + length:+g}"), number(step.crashes),
                     number(step.expected, f"{step.expected:.1f}"),
                     number(_finite(step.ratio.value), ratio(_finite(step.ratio.value))),
                     f"{ratio(step.ratio.low)} to {ratio(_finite(step.ratio.high))}")
                    for step in steps
                ),
            )  # fmt: skip
            return both(lambda width: drawn(title, intervals, changed_at=at, width=width), 700.0), table
    rows = [_interval("all of them", finding, "rate_ratio")]
    rows += [
        _interval(f"without {whose(one['kind'])}", one, "rate_ratio_without")
        for one in finding.get("workload", ())
        if one["rate_ratio_without_low"] is not None and one["share"]
    ]  # fmt: skip
    return both(lambda width: forest("Rate ratio with 95% interval", rows, width=width), 700.0), None


def _examples(frame: Frame, ids: Sequence[str]) -> Cell:
    """Incidents, with links to those that the history still has."""
    store = frame.view.store
    rows = store.rows("SELECT id FROM incidents WHERE id IN (SELECT unnest($ids))", {"ids": list(ids)}) if store else []
    kept_ids = {row["id"] for row in rows}
    return several(link(frame.to if one in kept_ids else lambda _: "", "incidents", one) for one in ids)


def _interval(name: str, finding: Mapping[str, Any], key: str) -> Interval:
    main = key == "rate_ratio"
    return Interval(name=name, value=finding[key], low=finding[f"{key}_low"] or 0.0, high=finding[f"{key}_high"],
                    verdict="infrastructure" if main else "unclear")  # fmt: skip


def _how_sure(frame: Frame, finding: Mapping[str, Any]) -> PageTable:
    rows: list[tuple[Any, Any]] = [
        (f"Crash{'ed nodes' if finding.get('counts') != 'crashes' else 'es'} with it", crashes_with(finding))
    ]
    if "nodes_with" in finding:
        rows.append(("Nodes with it, without it", f"{count(finding['nodes_with'])}, {count(finding['nodes_without'])}"))
    if rates := finding.get("incident_rates"):
        rows += [
            (f"All crashes {where} it, in 1,000 hours",
             f"{count(rates[f'incidents_{where}'])}, {expected_count(rates[f'per_1000_hours_{where}'])}")
            for where in ("with", "without")
        ]  # fmt: skip
        rows.append(("Rate of all crashes, repeated ones included", times(rates)))
    rollout = finding.get("rollout")
    if rollout:
        low, high = (max(rollout[f"onset_hours_{end}"] or 0.0, 0.0) for end in ("low", "high"))
        low_before, high_before = ratio(rollout["rate_ratio_before_low"]), ratio(rollout["rate_ratio_before_high"])
        before = f"{ratio(rollout['rate_ratio_before'])} times ({low_before} to {high_before})"
        rows += [
            ("Changed nodes, unchanged nodes", f"{count(rollout['nodes'])}, {count(rollout['controls'])}"),
            ("Began", f"{low:.0f} to {high:.0f} h after the change"),
            ("Difference before the change", before),
            ("Crashed within two weeks before the change",
             f"{rollout['crashed_before']:.0%}, {rollout['crashed_before_expected']:.0%} expected"),
        ]  # fmt: skip
    if again := finding.get("confirmation"):
        rows.append(("In the later window", f"{again['observed']:,} crashes, {again['expected']:.1f} expected"))
    return frame.table("sure", "How sure", ("What", ""), rows, width="rest")


def _trend(frame: Frame, finding: Mapping[str, Any]) -> PageTable:
    """A continuous fact's crashes by fifths of its values."""
    rows = [
        (
            number(part["low"], f"{part['low']:.3g}"), number(part["high"], f"{part['high']:.3g}"), number(part["observed"]),
            number(part["expected"], f"{part['expected']:.1f}"),
            number(part["observed"] / part["expected"], f"{ratio(part['observed'] / part['expected'])} times")
            if part["expected"] else None,
        )
        for part in finding.get("trend", ())
    ]  # fmt: skip
    return frame.table(
        "trend", f"Crashes by {clipped(finding['facts'][0]['fact'])}",
        ("From", "To", "Crashed nodes", "Expected", "Seen for each expected"), rows,
        note="Each row is a fifth of all values",
    )  # fmt: skip


def _workload(frame: Frame, finding: Mapping[str, Any]) -> PageTable:
    rows = [
        (
            whose(one["kind"]), ", ".join(one["names"]) or None,
            number(one["share"], f"{one['share'] * 100:.0f}%"),
            number(one["rate_ratio_without"],
                   f"{ratio(one['rate_ratio_without'])} times ({ratio(one['rate_ratio_without_low'])} to "
                   f"{ratio(one['rate_ratio_without_high'])})" if one["rate_ratio_without_low"] is not None else "–"),
            "yes" if one["holds"] else "no; but they run elsewhere without this crash" if one.get("elsewhere") else "no",
        )
        for one in finding.get("workload", ())
    ]  # fmt: skip
    return frame.table(
        "workload", "Is it one user's program?", ("Without", "Names", "Share of the crashes", "As frequent without", "Holds"),
        rows, note="The finding without its largest users, jobs and images",
    )  # fmt: skip


def _crashed(frame: Frame, finding: Mapping[str, Any], result: Mapping[str, Any]) -> PageTable:
    """The nodes that had the crash while they had the fact, as far as the history knows."""
    start, end = (datetime.fromisoformat(result["window"][edge]).timestamp() for edge in ("start", "end"))
    lead, store = finding["facts"][0], frame.view.store
    rows = store.rows(
        f"""WITH {ROOTS} SELECT r.node, count(*) AS n, max(r.time) AS last
        FROM roots AS r ASOF JOIN facts AS f ON f.node = r.node AND f.time <= r.time
        WHERE $crash IN (r.signature, r.root_cause) AND json_extract_string(f.facts, $fact) = $value
        GROUP BY r.node ORDER BY n DESC, r.node LIMIT {MAX_CRASHED}""",
        {"start": start, "end": end, "crash": finding["signature"], "fact": fact_pointer(lead["fact"]), "value": lead["value"]},
    ) if store else []  # fmt: skip
    return frame.table(
        "crashed", "Nodes that crashed with it", ("Node", "Root incidents", "Latest (UTC)"),
        ((link(frame.to, "nodes", row["node"]), number(row["n"]), when(row["last"])) for row in rows),
        note="In the window of the finding",
    )  # fmt: skip


def _at_risk(frame: Frame, finding: Mapping[str, Any], result: Mapping[str, Any]) -> PageTable:
    named = (finding["facts"][0], finding.get("together_with"))
    facts = " and ".join(str(FactValue(fact=one["fact"], value=one["value"])) for one in named if one)
    risk = next(
        (
            one
            for one in result.get("exposed", ())
            if one["signature"] == finding["signature"] and one["because"] == facts
        ),
        None,
    )
    nodes = risk["nodes"] if risk else ()
    note = (
        f"{count(risk['count'])} nodes have it and have not had this crash; "
        f"{ratio(risk['expected_7d'])} crashes are expected in 7 days"
        if risk
        else ""
    )
    return frame.table(
        "at_risk", "Nodes at risk", ("Node",), ((link(frame.to, "nodes", node),) for node in nodes), note=note
    )


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
