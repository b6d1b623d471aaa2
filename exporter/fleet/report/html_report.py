"""The review as one HTML file: inline SVG and style, no script, nothing from outside. Empty sections are left out."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from exporter import __version__
from exporter.core.text.phrases import counted, printable
from exporter.core.text.redact import redact
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.charts.over_time import Mark, sparkline, stacked_bars
from exporter.fleet.charts.svg import CSS, DARK, LIGHT
from exporter.fleet.report.steps import next_steps
from exporter.fleet.report.wording import (
    ROLLOUT_VERDICTS,
    alerts_of,
    at_risk,
    change_of,
    dates,
    effect_of,
    fact,
    interval_of,
    most_at_risk,
    named,
    safe,
    stamp,
)
from exporter.fleet.results.labels import NO_MODEL, UNITS, hours, interval, ratio, sure
from exporter.fleet.review.event_timeline import duration
from exporter.fleet.review.review_contents import NOT_CORRELATED, AlertQuality, Review, Title, title_of
from exporter.fleet.review.window_review import earlier
from exporter.fleet.statistics.findings import Finding
from exporter.fleet.statistics.ratio import Ratio
from exporter.web.page import render

TEMPLATES = Path(__file__).parent / "templates"


def as_html(review: Review, titles: Mapping[str, Title], notes: tuple[str, ...] = ()) -> str:
    """The whole file. notes: what the source cannot show."""
    style = f":root{{color-scheme:light dark;{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}"
    style += f"@media print{{:root{{{LIGHT}}}}}{CSS}"
    return render(
        "report.html",
        [TEMPLATES],
        review=review,
        dates=dates(review.window),
        charts_style=Markup(style),  # noqa: S704 - constants of ours
        markup=Markup,
        cards=_cards(review),
        completeness=_completeness(review),
        alerts="" if review.alerts and review.alerts.rows else alerts_of(review.alerts),
        steps=[step.text.replace("`", "'") for step in next_steps(review)],
        sections=sections(review, titles),
        notes=notes,
        version=__version__,
        exposure=exposure_words(review),
    )


def _completeness(review: Review) -> tuple[str, bool]:
    """Who was seen, and whether anything is missing."""
    seen = f"{counted(review.nodes, 'node')} seen"
    if review.silent:
        return f"{seen}; {counted(len(review.silent), 'node')} silent for the last day or longer", True
    complete = (review.correlation or NOT_CORRELATED).complete
    return f"{seen}; " + ("nothing missing" if complete else "some of it could not be used: see below"), not complete


def _cards(review: Review) -> list[tuple[str, str, str, str]]:
    """Number, name, note and class of each."""
    now, before = review.totals, review.totals_before
    if not now.incidents and not (before and before.incidents):
        return []
    tone = _tone(review.change)
    note = (
        f"{change_of(review.change)}; {interval_of(review.change)}"
        if review.change
        else f"nothing known of {earlier(review.window)}"
    )
    cards = [(f"{now.incidents:,}", "root incidents", note, tone)]
    if now.lost is not None:
        was = f"; {before.lost.hours:,.0f} in {earlier(review.window)}" if before and before.lost else ""
        cards.append((f"{now.lost.hours:,.0f}", "GPU-hours lost", f"{now.lost.note}{was}", ""))
    else:
        was = f"{before.jobs:,} in {earlier(review.window)}" if before else ""
        cards.append((f"{now.jobs:,}", "jobs hit", was, ""))
    share = f"{now.without_cause / now.incidents * 100:.0f}%" if now.incidents else "0%"
    was_share = (
        f"{before.without_cause / before.incidents * 100:.0f}% in {earlier(review.window)}"
        if before and before.incidents
        else ""
    )
    cards.append((share, "without a known cause", was_share, ""))
    if at_risk := most_at_risk(review.correlation or NOT_CORRELATED):
        cards.append((f"{at_risk[0]:,}", "nodes at risk, not affected yet", at_risk[1], ""))
    else:
        cards.append((f"{now.nodes_crashed:,}", "nodes crashed", f"of {review.nodes:,}", ""))
    return cards


LARGE_JOB = 1024  # GPUs, as published failure rates have it (arXiv:2410.21680)
ROWS = 20  # of a table; JSON and CSV have all
WIDE, NARROW = 1080.0, 340.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A titled part. `charts` are wide and narrow ones; a column whose name begins with `#` is numeric; cells may be HTML."""

    title: str
    note: str = ""
    charts: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    more: int = 0


def sections(review: Review, titles: Mapping[str, Title]) -> list[ReportSection]:
    """In the order of a weekly review."""
    correlation = review.correlation or NOT_CORRELATED
    every = [
        _over_time(review),
        _causes(review),
        _table(
            "Failed jobs",
            "Jobs that ended with an exit code or a signal, each once, and what their logs say about the reason",
            ("Its logs have", "#Jobs", "#Share"),
            _outcomes(review),
            lambda o: (o[0], f"{o[1]:,}", f"{o[2]:.0%}"),
        ),
        _findings(correlation.findings, titles),
        _table(
            "Nodes at risk",
            "Nodes that meet a finding or a catalogue's cause and have not crashed yet",
            ("Because of", "Crash", "Status", "#Nodes", "#Crashes expected in 7 days", "Some of them"),
            at_risk(correlation),
            lambda e: (
                safe(e.because), _titled(e.signature, titles), e.status, f"{e.count:,}", ratio(e.expected_7d),
                ", ".join(safe(node, 40) for node in e.nodes[:4]),
            ),
        ),
        _table(
            "Unusually bad nodes",
            "Far worse than nodes of the same configuration: drain and test them",
            ("Node or GPU", "#Crashes", "#Expected", "Jobs, days", "How sure", "Crashes of"),
            correlation.outlier_nodes,
            lambda e: (
                _with_note(safe(e.name, 60), safe(f"GPU, last in {e.node}", 80) if e.kind == "gpu" else ""),
                f"{e.incidents:,}", ratio(e.expected), f"{counted(e.jobs, 'job')}, {counted(e.days, 'day')}",
                sure(e.probability), ", ".join(safe(title_of(titles, s).title) for s in e.signatures[:3]),
            ),
        ),
        _table(
            "Rollouts",
            "Values that nodes took on in this window, and the findings about them",
            ("Change", "#Nodes", "#Never changed", "From", "To", "Effect on crashes"),
            correlation.rollouts,
            lambda e: (
                _with_note(fact(e.facts[0]), safe(f"before: {e.before}", 80)), f"{e.nodes:,}", f"{e.controls:,}",
                stamp(e.first), stamp(e.last), _with_note(effect_of(correlation, e), ROLLOUT_VERDICTS[e.verdict]),
            ),
        ),
        _table(
            "New and returning signatures",
            "First seen in this window, or silent for at least two such windows before",
            ("Signature", "Whose", "#Root incidents", "#Nodes", "First", "Before"),
            review.novelties,
            lambda n: (
                _with_note(safe(n.title), safe(n.signature, 80)), _tag(n.verdict),
                f"{n.incidents:,}", f"{n.nodes:,}", stamp(n.first),
                "new" if n.quiet_seconds is None else f"silent for {n.quiet_seconds / 86400:.0f} days",
            ),
        ),
        _table(
            "Unrecognised crashes",
            "No signature names them; like ones are grouped",
            ("Template", "#Crashes", "#Nodes", "First", "New"),
            review.unrecognised,
            lambda u: (
                _with_note(safe(u.template), safe(f"{u.path}:{u.line}", 100) if u.path else ""),
                f"{u.count:,}", f"{u.nodes:,}", stamp(u.first),
                "new" if u.is_new else "",
            ),
        ),
        _table(
            "Reliability",
            "Mean GPU-hours between crashes, with the exact 95% interval",
            ("GPU", "#Crashes", "#GPU-hours", "#GPU-hours a crash", "#Interval", f"#A job on {LARGE_JOB:,} GPUs runs"),
            correlation.reliability,
            lambda r: (
                NO_MODEL if r.gpu_model == "unknown" else safe(r.gpu_model), f"{r.incidents:,}", f"{r.hours:,.0f}",
                hours(r.mtbf), f"{hours(r.mtbf_low)} to {hours(r.mtbf_high)}", _run(r.mtbf),
            ),
        ),
        _alerts(review.alerts),
        _table(
            "Actions carried over",
            "What the window before asked for, and whether its reason was found again; few crashes in a window may hide it",
            ("Action", "Now"),
            review.actions,
            lambda a: (
                safe(a.what, 400).replace("`", "'"),
                _in_class("still open" if a.is_open else "not found again", "worse" if a.is_open else ""),
            ),
        ),
        _not_seen(review),
    ]  # fmt: skip
    return [section for section in every if section is not None]


def _over_time(review: Review) -> ReportSection | None:
    if not review.totals.incidents and not (review.totals_before and review.totals_before.incidents):
        return None  # a quiet week's report is short
    marks = [
        Mark(time=rollout.first, what=f"{fact(rollout.facts[0])} on {counted(rollout.nodes, 'node')}")
        for rollout in (review.correlation or NOT_CORRELATED).rollouts
        if not rollout.verdict
    ]
    edges = review.over_time.edges
    days = (edges[1] - edges[0]) / 86400
    unit = "root incidents a day" if days == 1 else f"root incidents in {days:.3g} days"
    wide, narrow = (
        stacked_bars(
            "Root incidents over time", edges, review.over_time.by_verdict, unit=unit, marks=marks, width=w
        ) for w in (WIDE, NARROW)
    )  # fmt: skip
    return ReportSection(title="Root incidents over time", charts=(wide, narrow))


def _causes(review: Review) -> ReportSection | None:
    lost = any(cause.lost_gpu_hours is not None for cause in review.causes)
    columns = (
        "Cause",
        "Whose",
        "#Root incidents",
        *(("#Before", "Change") if review.before else ()),
        "#Nodes",
        "#Jobs",
    )
    columns += (*(("#GPU-hours lost",) if lost else ()), "Trend")

    def row(cause: Any) -> tuple[str, ...]:
        kind = "cause unknown; " if cause.kind == "signature" and cause.id != cause.title else ""
        tone = _tone(cause.change, unclear="dim")
        trend = sparkline(f"Trend of {safe(cause.title, 60)}", cause.trend, verdict=cause.verdict)
        return (
            _with_note(
                safe(cause.title), safe(f"{kind}{cause.id}" if kind or cause.id != cause.title else "cause unknown", 90)
            ),
            _tag(cause.verdict),
            f"{cause.incidents:,}",
            *((f"{cause.before:,}", _in_class(change_of(cause.change), tone)) if review.before else ()),
            f"{cause.nodes:,}",
            f"{cause.jobs:,}",
            *((f"{cause.lost_gpu_hours or 0:,.0f}",) if lost else ()),
            Markup(trend),  # noqa: S704 - the charts escape every text
        )

    note = f"The trend shows up to {len(review.causes[0].trend)} such windows" if review.causes else ""
    seen = [cause for cause in review.causes if cause.incidents or (cause.change is not None and cause.change.high < 1)]
    return _table("Why jobs crashed", note, columns, seen, row)


def _findings(findings: Sequence[Finding], titles: Mapping[str, Title]) -> ReportSection | None:
    if not findings:
        return None
    rows = [
        Interval(
            name=f"{i}. {named(finding)}",
            ratio=finding.ratio,
            verdict="workload" if finding.direction == "fewer" else "infrastructure",
        )
        for i, finding in enumerate(findings[:ROWS], 1)
    ]
    title = "How much more frequent crashes are with a configuration"
    table = _table(
        "What makes crashes more or less frequent",
        "Rate ratio with its 95% interval; nodes are compared with others of the same GPU model and partition",
        ("With", "Crash", "#Times as frequent", "Status", "#Crashed nodes with it", "Against it"),
        list(enumerate(findings, 1)),
        lambda pair: (
            _with(*pair), _titled(pair[1].signature, titles),
            f"{ratio(pair[1].ratio.value)} ({interval(pair[1].ratio)})", pair[1].status,
            _with_note(f"{pair[1].observed:,} of {pair[1].crashes:,}", f"{pair[1].expected:.1f} expected"),
            safe("; ".join(pair[1].counter_evidence), 400),
        ),
    )  # fmt: skip
    assert table is not None
    return replace(table, charts=(forest(title, rows, width=WIDE), forest(title, rows, width=NARROW)))


def _with(number: int, finding: Finding) -> str:
    others = finding.facts[1:]
    small = f"cannot be distinguished from {', '.join(map(fact, others[:3]))}" if others else ""
    return _with_note(
        f"{number}. {named(finding)}", small + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    )


def _alerts(alerts: AlertQuality | None) -> ReportSection | None:
    summary = alerts_of(alerts)
    before = alerts is not None and any(row.from_before for row in alerts.rows)
    return _table(
        "Alerts",
        f"{summary[0].upper()}{summary[1:]}. Justified: a crash of the alert's cause, signature, node or place is on record "
        "in the span that its rule looks at. Alerts about daemons and trends are not judged",
        ("Alert", "Kind", "#Fired", "#Justified", "#Not justified", "#Lasted", "#After the first crash",
         *(("#From before",) if before else ())),
        () if alerts is None else alerts.rows,
        lambda r: (
            safe(r.name, 80), r.kind, f"{r.fired:,}",
            *((f"{n:,}" if r.fired > r.not_judged else "–") for n in (r.justified, r.not_justified)),
            *("–" if s is None else duration(s) for s in (r.median_seconds, r.seconds_from_crash)),
            *((f"{r.from_before:,}",) if before else ()),
        ),
    )  # fmt: skip


def _not_seen(review: Review) -> ReportSection | None:
    rows = [(safe(gap.message, 400), f"{gap.count:,}") for gap in (review.correlation or NOT_CORRELATED).gaps]
    if review.silent:
        names = ", ".join(f"{safe(s.node, 40)} ({stamp(s.last_seen)})" for s in review.silent[:5])
        more = f" and {len(review.silent) - 5} more" if len(review.silent) > 5 else ""
        rows.insert(0, (f"nodes without a heartbeat for a day: {names}{more}", f"{len(review.silent):,}"))
    return _table("What was not seen", "", ("What", "#How many"), rows, lambda row: (row[0], row[1]))


def _table(
    title: str, note: str, columns: tuple[str, ...], values: Iterable[Any], row: Callable[[Any], tuple[str, ...]]
) -> ReportSection | None:
    every = list(values)
    if not every:
        return None
    rows = tuple(row(value) for value in every[:ROWS])
    return ReportSection(title=title, note=note, columns=columns, rows=rows, more=max(len(every) - ROWS, 0))


def _tone(change: Ratio | None, unclear: str = "") -> str:
    """The class of a change, by the side of 1 on which its interval lies."""
    if change is None:
        return ""
    return "worse" if change.low > 1 else "better" if change.high < 1 else unclear


def _with_note(text: str, note: str) -> str:
    """A text with a second line, such as an id."""
    return Markup("{}<small>{}</small>").format(_safe(text), _safe(note)) if note else text


def _in_class(text: str, class_: str) -> str:
    return Markup('<span class="{}">{}</span>').format(_safe(class_), _safe(text)) if class_ else text


def _tag(verdict: str) -> str:
    return _in_class(verdict, f"tag {verdict}")


def _safe(text: str) -> str:
    return printable(redact(text))


def _titled(signature: str, titles: Mapping[str, Title]) -> str:
    title = title_of(titles, signature).title
    return _with_note(safe(title), safe(signature, 80) if title != signature else "")


def _outcomes(review: Review) -> list[tuple[str, int, float]]:
    """What the logs of failed jobs have, how many jobs, and their share."""
    deaths = review.deaths
    if deaths is None:
        return []
    counts = (
        ("a crash or an end that a signature names", deaths.explained),
        ("a crash that no signature names", deaths.unrecognised),
        ("no line that says why", deaths.no_line),
    )
    return [(name, count, count / deaths.jobs) for name, count in counts]


def _run(mtbf: float) -> str:
    """How long a large job runs until the first crash of its GPUs, on average."""
    return "∞" if math.isinf(mtbf) else f"{mtbf / LARGE_JOB:,.1f} h"


def exposure_words(review: Review) -> str:
    """What rates are per."""
    return UNITS[review.exposure].partition(" (")[0]
