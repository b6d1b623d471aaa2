"""The page of one finding: its picture, how sure it is, what speaks against it, and what to do."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.charts.intervals import event_study as drawn
from exporter.fleet.history.schema import ROOTS, fact_pointer
from exporter.fleet.observations import Window
from exporter.fleet.report.steps import step_of
from exporter.fleet.results.labels import (
    clipped,
    conditions,
    expected_count,
    fact,
    finding_id,
    interval,
    ratio,
    times_and_interval,
)
from exporter.fleet.review.event_study import event_study
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.finding_list import STATUS, because, cause_cell, finite, title_of
from exporter.fleet.service.frame import Frame, MissingPage
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, PageTable, link, number, several, when
from exporter.fleet.statistics.findings import Correlation, Finding, whose

SMALLEST_RATE = 1e-4  # of false discovery, that is written out
MAX_CRASHED = 1000  # nodes


def finding_page(frame: Frame, name: str) -> Response:
    """One finding, or one place. Raises MissingPage."""
    result = frame.view.fleet_status.result or NOT_CORRELATED
    every = (*result.findings, *result.locations)
    finding = next((condition for condition in every if finding_id(condition) == name), None)
    if finding is None:
        raise MissingPage("This finding is not in the newest result; the page Findings lists what is")
    chart, steps = _picture(frame, finding, result.window)
    q = finding.q_value
    fdr = f" · false discovery rate {'below 0.0001' if q < SMALLEST_RATE else f'{q:.2g}'}"
    adjusted = f" · adjusted for {', '.join(finding.adjusted_for)}" if finding.adjusted_for else ""
    others = [fact(condition) for condition in finding.facts[1:]]
    return frame.page(
        "finding.html", f"{title_of(frame, finding)}: {times_and_interval(finding.ratio)} {because(finding)}",
        trail=("/findings", "Findings"),
        sub=f"{STATUS[finding.status].capitalize()}{adjusted}{fdr}", finding=finding, chart=chart,
        sure=_how_sure(frame, finding),
        steps=steps, trend=_trend(frame, finding), others=others,
        workload=_workload(frame, finding), crashed=_crashed(frame, finding, result.window),
        at_risk=_at_risk(frame, finding, result),
        tie_breakers=several(link(frame.to, "nodes", node) for node in finding.tie_breakers),
        examples=_examples(frame, finding.examples),
        next_step=step_of(finding), cause=cause_cell(frame, finding.signature),
    )  # fmt: skip


def _picture(frame: Frame, finding: Finding, window: Window) -> tuple[Markup, PageTable | None]:
    """A rollout as an event study with its numbers; another finding as a forest plot with and without its heaviest users."""
    store = frame.view.store
    if finding.rollout and store is not None:
        lead = finding.facts[0]
        with store.cursor() as db:
            length, steps = event_study(db, finding.signature, lead.fact, lead.value, window)
        if steps:
            intervals = [
                Interval(
                    name=f"{step.day:+g} d", ratio=step.ratio, verdict="infrastructure" if step.day >= 0 else "unclear",
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
                     number(finite(step.ratio.value), ratio(step.ratio.value)), interval(step.ratio))
                    for step in steps
                ),
            )  # fmt: skip
            return both(lambda width: drawn(title, intervals, changed_at=at, width=width), 700.0), table
    rows = [Interval(name="all of them", ratio=finding.ratio, verdict="infrastructure")]
    rows += [
        Interval(name=f"without {whose(one.kind)}", ratio=one.ratio)
        for one in finding.workload
        if one.ratio and one.share
    ]
    return both(lambda width: forest("Rate ratio with 95% interval", rows, width=width), 700.0), None


def _examples(frame: Frame, ids: Sequence[str]) -> Cell:
    """Incidents, with links to those that the history still has."""
    store = frame.view.store
    rows = store.rows("SELECT id FROM incidents WHERE id IN (SELECT unnest($ids))", {"ids": list(ids)}) if store else []
    kept_ids = {row["id"] for row in rows}
    return several(link(frame.to if one in kept_ids else lambda _: "", "incidents", one) for one in ids)


def _how_sure(frame: Frame, finding: Finding) -> PageTable:
    rows: list[tuple[Any, Any]] = [
        (f"Crash{'ed nodes' if finding.counts != 'crashes' else 'es'} with it",
         f"{finding.observed:,} of {finding.crashes:,}, {finding.expected:.1f} expected"),
        ("Nodes with it, without it", f"{finding.nodes_with:,}, {finding.nodes_without:,}"),
    ]  # fmt: skip
    if rates := finding.rates:
        rows += [
            ("All crashes with it, in 1,000 hours", f"{rates.incidents_with:,}, {expected_count(rates.rate_with)}"),
            ("All crashes without it, in 1,000 hours", f"{rates.incidents_without:,}, {expected_count(rates.rate_without)}"),
            ("Rate of all crashes, repeated ones included", times_and_interval(rates.ratio)),
        ]  # fmt: skip
    if effect := finding.rollout:
        rollout = effect.rollout
        rows += [
            ("Changed nodes, unchanged nodes", f"{rollout.nodes:,}, {rollout.controls:,}"),
            ("Began", f"{max(effect.onset_low, 0.0):.0f} to {max(effect.onset_high, 0.0):.0f} h after the change"),
            ("Difference before the change", f"{ratio(effect.ratio_before.value)} times ({interval(effect.ratio_before)})"),
            ("Crashed within two weeks before the change",
             f"{rollout.crashed_before:.0%}, {rollout.crashed_before_expected:.0%} expected"),
        ]  # fmt: skip
    if again := finding.confirmation:
        rows.append(("In the later window", f"{again.observed:,} crashes, {again.expected:.1f} expected"))
    return frame.table("sure", "How sure", ("What", ""), rows, width="rest")


def _trend(frame: Frame, finding: Finding) -> PageTable:
    """A continuous fact's crashes by fifths of its values."""
    rows = [
        (
            number(part.low, f"{part.low:.3g}"), number(part.high, f"{part.high:.3g}"), number(part.observed),
            number(part.expected, f"{part.expected:.1f}"),
            number(part.observed / part.expected, f"{ratio(part.observed / part.expected)} times") if part.expected else None,
        )
        for part in finding.trend
    ]  # fmt: skip
    return frame.table(
        "trend", f"Crashes by {clipped(finding.facts[0].fact)}",
        ("From", "To", "Crashed nodes", "Expected", "Seen for each expected"), rows,
        note="Each row is a fifth of all values",
    )  # fmt: skip


def _workload(frame: Frame, finding: Finding) -> PageTable:
    rows = [
        (
            whose(one.kind), ", ".join(one.names) or None, number(one.share, f"{one.share * 100:.0f}%"),
            number(finite(one.ratio.value), f"{ratio(one.ratio.value)} times ({interval(one.ratio)})")
            if one.ratio else number(None),
            "yes" if one.holds else "no; but they run elsewhere without this crash" if one.elsewhere else "no",
        )
        for one in finding.workload
    ]  # fmt: skip
    return frame.table(
        "workload", "Is it one user's program?", ("Without", "Names", "Share of the crashes", "As frequent without", "Holds"),
        rows, note="The finding without its largest users, jobs and images",
    )  # fmt: skip


def _crashed(frame: Frame, finding: Finding, window: Window) -> PageTable:
    """The nodes that had the crash while they had the fact, as far as the history knows."""
    lead, store = finding.facts[0], frame.view.store
    rows = store.rows(
        f"""WITH {ROOTS} SELECT r.node, count(*) AS n, max(r.time) AS last
        FROM roots AS r ASOF JOIN facts AS f ON f.node = r.node AND f.time <= r.time
        WHERE $crash IN (r.signature, r.root_cause) AND json_extract_string(f.facts, $fact) = $value
        GROUP BY r.node ORDER BY n DESC, r.node LIMIT {MAX_CRASHED}""",
        {"start": window.start, "end": window.end, "crash": finding.signature, "fact": fact_pointer(lead.fact),
         "value": lead.value},
    ) if store else []  # fmt: skip
    return frame.table(
        "crashed", "Nodes that crashed with it", ("Node", "Root incidents", "Latest (UTC)"),
        ((link(frame.to, "nodes", row["node"]), number(row["n"]), when(row["last"])) for row in rows),
        note="In the window of the finding",
    )  # fmt: skip


def _at_risk(frame: Frame, finding: Finding, result: Correlation) -> PageTable:
    facts = " and ".join(map(str, conditions(finding)))
    own = (one for one in result.exposed if one.signature == finding.signature and one.because == facts)
    risk = next(own, None)
    note = (
        f"{risk.count:,} nodes have it and have not had this crash; {ratio(risk.expected_7d)} crashes are expected in 7 days"
        if risk
        else ""
    )
    nodes = ((link(frame.to, "nodes", node),) for node in (risk.nodes if risk else ()))
    return frame.table("at_risk", "Nodes at risk", ("Node",), nodes, note=note)
