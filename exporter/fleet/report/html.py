"""The review as one HTML file: inline SVG and style, no script, nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter import __version__
from exporter.core.text.phrases import counted
from exporter.fleet.charts.style import CSS, DARK, LIGHT
from exporter.fleet.report.sections import exposure_words, sections
from exporter.fleet.report.steps import next_steps
from exporter.fleet.report.wording import alerts_of, change_of, dates, interval_of, most_at_risk
from exporter.fleet.review.sentence import earlier
from exporter.fleet.review.values import Overview, Title
from exporter.web.page import render

TEMPLATES = Path(__file__).parent / "templates"


def as_html(found: Overview, titles: Mapping[str, Title], notes: tuple[str, ...] = ()) -> str:
    """The whole file. notes: what the source cannot show."""
    from markupsafe import Markup

    style = f":root{{color-scheme:light dark;{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}"
    style += f"@media print{{:root{{{LIGHT}}}}}{CSS}"
    return render(
        "report.html",
        [TEMPLATES],
        found=found,
        dates=dates(found.window),
        charts_style=Markup(style),  # noqa: S704 - constants of ours
        markup=Markup,
        cards=_cards(found),
        completeness=_completeness(found),
        alerts="" if found.alerts and found.alerts.rows else alerts_of(found.alerts),
        steps=[step.replace("`", "'") for step in next_steps(found)],
        sections=sections(found, titles),
        notes=notes,
        version=__version__,
        exposure=exposure_words(found),
    )


def _completeness(found: Overview) -> tuple[str, bool]:
    """Who was seen, and whether anything is missing."""
    seen = f"{counted(found.nodes, 'node')} seen"
    if found.silent:
        return f"{seen}; {counted(len(found.silent), 'node')} silent for the last day or longer", True
    complete = found.correlation is None or found.correlation["complete"]
    return f"{seen}; " + ("nothing missing" if complete else "some of it could not be used: see below"), not complete


def _cards(found: Overview) -> list[tuple[str, str, str, str]]:
    """Number, name, note and class of each."""
    now, before = found.totals, found.totals_before
    if not now.incidents and not (before and before.incidents):
        return []
    way = "" if found.change is None else "worse" if found.change.low > 1 else "better" if found.change.high < 1 else ""
    note = (
        f"{change_of(found.change)}; {interval_of(found.change)}"
        if found.change
        else f"nothing known of {earlier(found.window)}"
    )
    cards = [(f"{now.incidents:,}", "root incidents", note, way)]
    if now.lost_gpu_hours is not None:
        was = (
            f"{before.lost_gpu_hours:,.0f} in {earlier(found.window)}"
            if before and before.lost_gpu_hours is not None
            else ""
        )
        cards.append((f"{now.lost_gpu_hours:,.0f}", "GPU-hours lost", was, ""))
    else:
        was = f"{before.jobs:,} in {earlier(found.window)}" if before else ""
        cards.append((f"{now.jobs:,}", "jobs hit", was, ""))
    share = f"{now.without_cause / now.incidents * 100:.0f}%" if now.incidents else "0%"
    known = (
        f"{before.without_cause / before.incidents * 100:.0f}% in {earlier(found.window)}"
        if before and before.incidents
        else ""
    )
    cards.append((share, "without a known cause", known, ""))
    if at_risk := most_at_risk(found.correlation or {}):
        cards.append((f"{at_risk[0]:,}", "nodes at risk, not affected yet", at_risk[1], ""))
    else:
        cards.append((f"{now.nodes_crashed:,}", "nodes crashed", f"of {found.nodes:,}", ""))
    return cards
