"""The overview: one verdict line, the figures with their change, the trend, causes, findings, changes and bad nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.text.phrases import counted
from exporter.fleet.charts.over_time import Mark, small_bar, sparkline, stacked_bars
from exporter.fleet.observations import Window
from exporter.fleet.report.steps import next_steps
from exporter.fleet.report.wording import most_at_risk
from exporter.fleet.review.review_contents import NOT_CORRELATED, CauseRow, Review
from exporter.fleet.review.trends import Key, compared, sums, trends
from exporter.fleet.review.window_review import review_of
from exporter.fleet.service.finding_list import bad_nodes, finding_items, forest_of, rollouts_table
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import change, clip, count, segment, time_of
from exporter.fleet.service.pictures import both, heat_of, rollout_marks
from exporter.fleet.service.tables import Cell, link, number, picture, tag, tone_of, when
from exporter.fleet.service.unknown_crashes import unknowns_table
from exporter.fleet.statistics.findings import Correlation

SHOWN = 8  # causes, findings, nodes on the overview
SILENT_SHOWN = 5  # the page on data quality has all of them
TREND_POINTS = 14
BAR, SPARK = 64.0, 70.0  # pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure with its change and the page that explains it."""

    figure: str
    what: str
    change: str
    tone: str
    address: str


def overview(frame: Frame) -> Response:
    """The landing page, with the numbers of `gpufault report`."""
    store, result = frame.view.store, frame.view.fleet_status.result
    if store is None:
        return findings_only(frame)
    if not frame.newest:
        return frame.page("empty.html", "No record of any node yet", source=frame.view.source)
    with store.cursor() as cursor:
        now = review_of(
            cursor, Window(start=frame.start, end=frame.end), _of_window(frame, result), frame.view.titles.plain,
            lost=frame.view.lost,
        )  # fmt: skip
        shown = Window(start=now.over_time.edges[0], end=now.over_time.edges[-1])
        over_time = trends(cursor, shown, TREND_POINTS)
        changes, unit = compared(cursor, now)
    correlation = result or NOT_CORRELATED
    marks = rollout_marks(result, shown.start)
    if shown.start < frame.start:
        marks += (Mark(time=frame.start, what="the window of this page begins"),)
    findings = correlation.findings
    return frame.page(
        "overview.html", now.sentence, tiles=_tiles(frame, now, result, changes, unit), sub=_seen(frame, now),
        trend=both(lambda width: stacked_bars(
            "Root incidents over time", now.over_time.edges, now.over_time.by_verdict, unit=_unit(now), marks=marks,
            width=width)),
        causes=_causes(frame, now, over_time, changes, unit), steps=_steps(frame, replace(now, correlation=result)),
        forest=forest_of(frame, findings[:SHOWN], 400.0, numbered=True), findings=finding_items(frame, findings[:SHOWN]),
        more_findings=len(findings) - SHOWN, findings_of=_window_of(frame, result),
        no_findings="No fact makes a crash measurably more frequent." if result else "Findings are not computed yet.",
        rollouts=rollouts_table(frame, result, width="half"), novelties=_novelties(frame, now), heat=heat_of(frame, 520.0),
        bad_nodes=bad_nodes(frame, result, width="half", of=_window_of(frame, result)),
        unknowns=unknowns_table(frame, now.unrecognised[:SHOWN], width="half"),
        completeness=_completeness(frame, now, correlation),
    )  # fmt: skip


def _steps(frame: Frame, review: Review) -> list[tuple[str, str]]:
    """What to do next, each with the address of the page that shows whom it concerns."""
    steps = next_steps(review)
    return [
        (step.text, frame.link(f"/{step.kind}" + (f"/{segment(step.name)}" if step.name else ""))) for step in steps
    ]


def findings_only(frame: Frame) -> Response:
    """The landing page of a source without lines, nodes and jobs."""
    result = frame.view.fleet_status.result
    heading = "No result yet" if result is None else (
        f"{counted(result.incidents, 'incident')} on {counted(result.nodes, 'node')}; "
        f"{counted(len(result.findings), 'finding')}"
    )  # fmt: skip
    findings = (result or NOT_CORRELATED).findings[:SHOWN]
    tables = [rollouts_table(frame, result), bad_nodes(frame, result)] if result else []
    return frame.page(
        "findings.html", heading, result=result, forest=forest_of(frame, findings), findings=finding_items(frame, findings),
        tables=tables,
    )  # fmt: skip


def _of_window(frame: Frame, result: Correlation | None) -> Correlation | None:
    """The correlator's result where it is of the window shown, give or take a tenth; its ends move with each refresh."""
    if result is None:
        return None
    most = 0.1 * (frame.end - frame.start)
    window = result.window
    return result if abs(window.start - frame.start) <= most and abs(window.end - frame.end) <= most else None


def _window_of(frame: Frame, result: Correlation | None) -> str:
    """The window of the findings, where it is not the one shown."""
    if result is None or _of_window(frame, result) is not None:
        return ""
    start, end = (datetime.fromtimestamp(edge, UTC) for edge in (result.window.start, result.window.end))
    return f" This is of {start:%d %b} to {end:%d %b %Y}; the window of this page does not change it."


def _seen(frame: Frame, now: Review) -> Markup:
    silent = Markup('<a class="worse" href="{}">{} not seen for a day</a>').format(
        frame.link("/quality"), counted(len(now.silent), "node was", "nodes were")
    )  # fmt: skip
    note = "" if now.before else " The records do not reach back over a window before to compare with."
    return Markup("{} of {} nodes had root incidents. {}.{}").format(
        count(now.totals.nodes_crashed), count(now.nodes),
        silent if now.silent else "Every node was seen within the last day" if now.nodes else "No node was seen",
        note,
    )  # fmt: skip


def _tiles(
    frame: Frame, now: Review, result: Correlation | None, changes: Mapping[Key, tuple[int, int]], unit: str
) -> list[Tile]:
    totals, before = now.totals, now.totals_before
    share = totals.without_cause / totals.incidents if totals.incidents else None
    at_risk, because = most_at_risk(result or NOT_CORRELATED) or (0, "no finding with nodes that have not crashed")
    recent = sums(changes)
    lost = totals.lost
    changed_by = _change(*recent, unit)
    tone = tone_of(*recent)
    causes, findings = frame.link("/causes"), frame.link("/findings")
    if lost is not None:
        second = Tile(figure=count(lost.hours), what="GPU-hours lost", change=lost.note, address=causes, tone="dim")
    else:
        changed_nodes = (
            _change(totals.nodes_crashed, before.nodes_crashed, unit) if before else "no window before to compare with"
        )
        second = Tile(
            figure=count(totals.nodes_crashed), what="nodes with root incidents", change=changed_nodes,
            address=frame.link("/nodes"), tone=tone if before else "dim",
        )  # fmt: skip
    return [
        Tile(figure=count(totals.incidents), what="root incidents", change=changed_by,
             address=frame.link("/incidents", role="root"), tone=tone),
        second,
        Tile(figure="–" if share is None else f"{share:.0%}", what="without a known cause", tone="dim", address=causes,
             change=f"{count(len([c for c in now.causes if c.incidents]))} causes and signatures"),
        Tile(figure=count(at_risk) if result else "–", what="nodes at risk, not affected yet", tone="dim",
             address=findings, change=because if result else "not known yet"),
    ]  # fmt: skip


def _change(value: float, before: float, unit: str) -> str:
    if not unit:
        return "nothing to compare with yet"
    return change(value, before) if value and not before else f"{change(value, before)} {unit}"


def _causes(
    frame: Frame, now: Review, over_time: Mapping[Key, list[int]], changes: Mapping[Key, tuple[int, int]], unit: str
) -> Any:
    rows = [cause for cause in now.causes if cause.incidents]
    largest = max([1, *(cause.incidents for cause in rows)])

    def row(cause: CauseRow) -> list[Any]:
        pair = changes.get((cause.kind, cause.id))
        points = over_time.get((cause.kind, cause.id), [])
        cells: list[Any] = [
            link(frame.to, "causes", cause.id, cause.title), tag(cause.verdict), bar(cause.incidents, largest, cause.verdict),
            changed(pair), number(cause.nodes),
        ]  # fmt: skip
        if now.totals.lost is not None:
            cells.append(number(cause.lost_gpu_hours))
        trend = sparkline(
            f"Root incidents of {clip(cause.title)} over time", points, verdict=cause.verdict, width=SPARK
        )
        return [*cells, picture(trend, points[-1] if points else None)]

    heads = ["Cause", "Whose", "Root incidents", "Change", "Nodes"]
    heads += ["GPU-hours"] if now.totals.lost is not None else []
    more = Markup('<a href="{}">all {} causes</a>').format(frame.link("/causes"), count(len(rows)))
    return frame.table(
        "causes", "Why jobs crashed", [*heads, "Trend"], map(row, rows[:SHOWN]), more=more, width="larger",
        note=f"Root incidents by cause; change {unit}" if unit else "Root incidents by cause",
        empty="No root incidents in this window.",
    )  # fmt: skip


def bar(value: int, largest: int, verdict: str) -> Cell:
    return Cell(
        shown=Markup('<span class="bar"><span class="figures">{}</span>{}</span>').format(
            count(value), Markup(small_bar(value, largest, verdict, width=BAR))  # noqa: S704 - a chart escapes every text
        ),
        value=value,
    )  # fmt: skip


def changed(pair: tuple[int, int] | None) -> Cell:
    """A change from counts now and before; in colour where chance does not explain it."""
    if pair is None:
        return number(None)
    now, before = pair
    tone = tone_of(now, before)
    return number((now - before) / before if before else float(now), change(now, before), tone)


def _novelties(frame: Frame, now: Review) -> Any:
    rows = [
        (
            link(frame.to, "causes", novelty.signature, novelty.title), tag(novelty.verdict),
            "new" if novelty.quiet_seconds is None else f"back after {novelty.quiet_seconds / 86400:.0f} days",
            number(novelty.incidents), number(novelty.nodes), when(novelty.first),
        )
        for novelty in now.novelties[:SHOWN]
    ]  # fmt: skip
    empty = "No signature is new or back." if now.before else (
        "The records do not reach back far enough to tell what is new."
    )  # fmt: skip
    return frame.table(
        "novelties", "New and regressed", ("Signature", "Whose", "Since", "Incidents", "Nodes", "First (UTC)"), rows,
        note="Signatures first seen in this window, or back after two quiet ones", empty=empty, width="half",
    )  # fmt: skip


def _completeness(frame: Frame, now: Review, correlation: Correlation) -> Any:
    rows: list[tuple[Any, ...]] = [
        ("Nodes seen within the last day of the window", f"{now.nodes - len(now.silent):,} of {now.nodes:,}")
    ]
    rows += [
        (
            link(frame.to, "nodes", silent.node),
            Cell(shown=Markup("last seen {}").format(time_of(silent.last_seen)), value=silent.last_seen),
        )
        for silent in now.silent[:SILENT_SHOWN]
    ]  # fmt: skip
    if (others := len(now.silent) - SILENT_SHOWN) > 0:
        rows.append((counted(others, "more node"), ""))
    rows += [(gap.message, count(gap.count)) for gap in correlation.gaps]
    more = Markup('<a href="{}">data quality</a>').format(frame.link("/quality"))
    return frame.table("seen", "Completeness", ("What", "How many, or since when"), rows, width="half", more=more,
                       note="What these numbers do not include")  # fmt: skip


def _unit(now: Review) -> str:
    days = (now.over_time.edges[1] - now.over_time.edges[0]) / 86400
    if abs(days - 1) < 0.01:
        return "root incidents a day"
    return f"root incidents in {days:.3g} days" if days > 1 else f"root incidents in {days * 24:.3g} hours"
