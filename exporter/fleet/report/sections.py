"""The sections of the HTML report: charts as SVG, and tables with the same numbers. What is empty is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from exporter.core.text.phrases import counted
from exporter.fleet.charts.intervals import Interval, forest
from exporter.fleet.charts.over_time import Mark, sparkline, stacked_bars
from exporter.fleet.report.wording import alerts_of, at_risk, change_of, conditions, effect_of, fact, safe, stamp, times
from exporter.fleet.results.labels import NO_MODEL, UNITS, ratio, sure
from exporter.fleet.review.timeline import duration
from exporter.fleet.review.titles import title_of
from exporter.fleet.review.values import AlertQuality, Overview, Title

LARGE_JOB = 1024  # GPUs, as published failure rates have it (arXiv:2410.21680)
ROWS = 20  # of a table; JSON and CSV have all
WIDE, NARROW = 1080.0, 340.0
VERDICTS = {
    "tested": "compared with nodes not changed yet",
    "follows_crashes": "not judged: the changes follow crashes (repairs)",
    "no_controls": "not judged: no nodes to compare with",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: text, a second line (an id), a class, or a chart."""

    text: str = ""
    small: str = ""
    class_: str = ""
    svg: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part. `charts` are wide and narrow ones; a column whose name begins with `#` is numeric."""

    title: str
    note: str = ""
    charts: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    more: int = 0


def sections(found: Overview, titles: Mapping[str, Title]) -> list[Section]:
    """In the order of a weekly review."""
    correlation = found.correlation or {}
    every = [
        _over_time(found),
        _causes(found),
        _table(
            "Failed jobs",
            "Jobs that ended with an exit code or a signal, each once, and what their logs say about the reason",
            ("Its logs have", "#Jobs", "#Share"),
            _outcomes(found),
            lambda o: (Cell(text=o[0]), Cell(text=f"{o[1]:,}"), Cell(text=f"{o[2]:.0%}")),
        ),
        _findings(correlation, titles),
        _table(
            "Nodes at risk",
            "Nodes that meet a finding or a catalogue's cause and have not crashed yet",
            ("Because of", "Crash", "Status", "#Nodes", "#Crashes expected in 7 days", "Some of them"),
            at_risk(correlation),
            lambda e: (
                Cell(text=safe(e["because"])), _titled(e["signature"], titles), Cell(text=e["status"]),
                Cell(text=f"{e['count']:,}"), Cell(text=ratio(e["expected_7d"])),
                Cell(text=", ".join(safe(node, 40) for node in e["nodes"][:4])),
            ),
        ),
        _table(
            "Unusually bad nodes",
            "Far worse than nodes of the same configuration: drain and test them",
            ("Node or GPU", "#Crashes", "#Expected", "Jobs, days", "How sure", "Crashes of"),
            correlation.get("lemons", ()),
            lambda e: (
                Cell(text=safe(e["name"], 60), small=safe(f"GPU, last in {e['node']}", 80) if e["kind"] == "gpu" else ""),
                Cell(text=f"{e['incidents']:,}"), Cell(text=ratio(e["expected"])),
                Cell(text=f"{counted(e['jobs'], 'job')}, {counted(e['days'], 'day')}"), Cell(text=sure(e["probability"])),
                Cell(text=", ".join(safe(title_of(titles, s).title) for s in e["signatures"][:3])),
            ),
        ),
        _table(
            "Rollouts",
            "Values that nodes took on in this window, and the findings about them",
            ("Change", "#Nodes", "#Never changed", "From", "To", "Effect on crashes"),
            correlation.get("rollouts", ()),
            lambda e: (
                Cell(text=fact(e["facts"][0]), small=safe(f"before: {e['before']}", 80)), Cell(text=f"{e['nodes']:,}"),
                Cell(text=f"{e['controls']:,}"), Cell(text=stamp(_time(e["first"]))), Cell(text=stamp(_time(e["last"]))),
                Cell(text=effect_of(e), small=VERDICTS[e["verdict"]]),
            ),
        ),
        _table(
            "New and returning signatures",
            "First seen in this window, or silent for at least two such windows before",
            ("Signature", "Whose", "#Root incidents", "#Nodes", "First", "Before"),
            found.novelties,
            lambda n: (
                Cell(text=safe(n.title), small=safe(n.signature, 80)), Cell(text=n.verdict, class_=n.verdict),
                Cell(text=f"{n.incidents:,}"), Cell(text=f"{n.nodes:,}"), Cell(text=stamp(n.first)),
                Cell(text="new" if n.quiet_seconds is None else f"silent for {n.quiet_seconds / 86400:.0f} days"),
            ),
        ),
        _table(
            "Unrecognised crashes",
            "No signature names them; like ones are grouped",
            ("Template", "#Crashes", "#Nodes", "First", "New"),
            found.unrecognised,
            lambda u: (
                Cell(text=safe(u.template), small=safe(f"{u.path}:{u.line}", 100) if u.path else ""),
                Cell(text=f"{u.count:,}"), Cell(text=f"{u.nodes:,}"), Cell(text=stamp(u.first)),
                Cell(text="new" if u.is_new else ""),
            ),
        ),
        _table(
            "Reliability",
            "Mean GPU-hours between crashes, with the exact 95% interval",
            ("GPU", "#Crashes", "#GPU-hours", "#GPU-hours a crash", "#Interval", f"#A job on {LARGE_JOB:,} GPUs runs"),
            correlation.get("reliability", ()),
            lambda r: (
                Cell(text=NO_MODEL if r["gpu_model"] == "unknown" else safe(r["gpu_model"])),
                Cell(text=f"{r['incidents']:,}"), Cell(text=f"{r['gpu_hours']:,.0f}"), Cell(text=_hours(r["mtbf_gpu_hours"])),
                Cell(text=f"{_hours(r['mtbf_low'])} to {_hours(r['mtbf_high'])}"), Cell(text=_run(r["mtbf_gpu_hours"])),
            ),
        ),
        _alerts(found.alerts),
        _table(
            "Actions carried over",
            "What the window before asked for, and whether its reason was found again; few crashes in a window may hide it",
            ("Action", "Now"),
            found.actions,
            lambda a: (
                Cell(text=safe(a.what, 400).replace("`", "'")),
                Cell(text="still open" if a.is_open else "not found again", class_="worse" if a.is_open else ""),
            ),
        ),
        _not_seen(found),
    ]  # fmt: skip
    return [each for each in every if each is not None]


def _over_time(found: Overview) -> Section | None:
    if not found.totals.incidents and not (found.totals_before and found.totals_before.incidents):
        return None  # a quiet week's report is short
    correlation = found.correlation or {}
    marks = [
        Mark(time=_time(each["first"]), what=f"{fact(each['facts'][0])} on {counted(each['nodes'], 'node')}")
        for each in correlation.get("rollouts", ())
        if each["verdict"] == "tested"
    ]
    edges = found.over_time.edges
    days = (edges[1] - edges[0]) / 86400
    unit = "root incidents a day" if days == 1 else f"root incidents in {days:.3g} days"
    wide, narrow = (
        stacked_bars(
            "Root incidents over time", edges, found.over_time.by_verdict, unit=unit, marks=marks, width=w
        ) for w in (WIDE, NARROW)
    )  # fmt: skip
    return Section(title="Root incidents over time", charts=(wide, narrow))


def _causes(found: Overview) -> Section | None:
    lost = any(each.lost_gpu_hours is not None for each in found.causes)
    columns = ("Cause", "Whose", "#Root incidents", *(("#Before", "Change") if found.before else ()), "#Nodes", "#Jobs")
    columns += (*(("#GPU-hours lost",) if lost else ()), "Trend")

    def row(each: Any) -> tuple[Cell, ...]:
        kind = "cause unknown; " if each.kind == "signature" and each.id != each.title else ""
        way = (
            ""
            if each.change is None
            else "worse"
            if each.change.low > 1
            else "better"
            if each.change.high < 1
            else "dim"
        )
        return (
            Cell(
                text=safe(each.title),
                small=safe(f"{kind}{each.id}" if kind or each.id != each.title else "cause unknown", 90),
            ),
            Cell(text=each.verdict, class_=each.verdict),
            Cell(text=f"{each.incidents:,}"),
            *((Cell(text=f"{each.before:,}"), Cell(text=change_of(each.change), class_=way)) if found.before else ()),
            Cell(text=f"{each.nodes:,}"),
            Cell(text=f"{each.jobs:,}"),
            *((Cell(text=f"{each.lost_gpu_hours or 0:,.0f}"),) if lost else ()),
            Cell(svg=sparkline(f"Trend of {safe(each.title, 60)}", each.trend, verdict=each.verdict)),
        )

    note = f"The trend shows up to {len(found.causes[0].trend)} such windows" if found.causes else ""
    seen = [each for each in found.causes if each.incidents or (each.change is not None and each.change.high < 1)]
    return _table("Why jobs crashed", note, columns, seen, row)


def _findings(correlation: Mapping[str, Any], titles: Mapping[str, Title]) -> Section | None:
    found = correlation.get("findings", ())
    if not found:
        return None
    rows = [
        Interval(
            name=f"{i}. {conditions(each)}", value=each["rate_ratio"], low=each["rate_ratio_low"] or 0.0,
            high=each["rate_ratio_high"], verdict="workload" if each.get("direction") == "fewer" else "infrastructure",
        )
        for i, each in enumerate(found[:ROWS], 1)
    ]  # fmt: skip
    title = "How much more frequent crashes are with a configuration"
    table = _table(
        "What makes crashes more or less frequent",
        "Rate ratio with its 95% interval; nodes are compared with others of the same GPU model and partition",
        ("With", "Crash", "#Times as frequent", "Status", "#Crashed nodes with it", "Against it"),
        list(enumerate(found, 1)),
        lambda pair: (
            _with(*pair), _titled(pair[1]["signature"], titles), Cell(text=times(pair[1])), Cell(text=pair[1]["status"]),
            Cell(
                text=f"{pair[1]['observed']:,} of {pair[1]['crashes']:,}", small=f"{pair[1]['expected'] or 0:.1f} expected"
            ),
            Cell(text=safe("; ".join(pair[1]["counter_evidence"]), 400)),
        ),
    )  # fmt: skip
    assert table is not None
    return Section(
        title=table.title, note=table.note, charts=(forest(title, rows, width=WIDE), forest(title, rows, width=NARROW)),
        columns=table.columns, rows=table.rows, more=table.more,
    )  # fmt: skip


def _with(number: int, each: Mapping[str, Any]) -> Cell:
    others = each["facts"][1:]
    small = f"cannot be distinguished from {', '.join(map(fact, others[:3]))}" if others else ""
    return Cell(
        text=f"{number}. {conditions(each)}", small=small + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    )


def _alerts(found: AlertQuality | None) -> Section | None:
    summary = alerts_of(found)
    before = found is not None and any(row.from_before for row in found.rows)
    return _table(
        "Alerts",
        f"{summary[0].upper()}{summary[1:]}. Justified: a crash of the alert's cause, signature, node or place is on record "
        "in the span that its rule looks at. Alerts about daemons and trends are not judged",
        ("Alert", "Kind", "#Fired", "#Justified", "#Not justified", "#Lasted", "#After the first crash",
         *(("#From before",) if before else ())),
        () if found is None else found.rows,
        lambda r: (
            Cell(text=safe(r.name, 80)), Cell(text=r.kind), Cell(text=f"{r.fired:,}"),
            *((Cell(text=f"{n:,}") if r.fired > r.not_judged else Cell(text="–")) for n in (r.justified, r.not_justified)),
            *(Cell(text="–" if s is None else duration(s)) for s in (r.median_seconds, r.seconds_from_crash)),
            *((Cell(text=f"{r.from_before:,}"),) if before else ()),
        ),
    )  # fmt: skip


def _not_seen(found: Overview) -> Section | None:
    correlation = found.correlation or {}
    rows = [(safe(gap["what"], 400), f"{gap['count']:,}") for gap in correlation.get("gaps", ())]
    if found.silent:
        names = ", ".join(f"{safe(s.node, 40)} ({stamp(s.last_seen)})" for s in found.silent[:5])
        more = f" and {len(found.silent) - 5} more" if len(found.silent) > 5 else ""
        rows.insert(0, (f"nodes without a heartbeat for a day: {names}{more}", f"{len(found.silent):,}"))
    return _table(
        "What was not seen", "", ("What", "#How many"), rows, lambda row: (Cell(text=row[0]), Cell(text=row[1]))
    )


def _table(
    title: str, note: str, columns: tuple[str, ...], found: Iterable[Any], row: Callable[[Any], tuple[Cell, ...]]
) -> Section | None:
    every = list(found)
    if not every:
        return None
    rows = tuple(row(each) for each in every[:ROWS])
    return Section(title=title, note=note, columns=columns, rows=rows, more=max(len(every) - ROWS, 0))


def _titled(signature: str, titles: Mapping[str, Title]) -> Cell:
    title = title_of(titles, signature).title
    return Cell(text=safe(title), small=safe(signature, 80) if title != signature else "")


def _outcomes(found: Overview) -> list[tuple[str, int, float]]:
    """What the logs of failed jobs have, how many jobs, and their share."""
    deaths = found.deaths
    if deaths is None:
        return []
    counts = (
        ("a crash or an end that a signature names", deaths.explained),
        ("a crash that no signature names", deaths.unrecognised),
        ("no line that says why", deaths.no_line),
    )
    return [(what, count, count / deaths.jobs) for what, count in counts]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _hours(value: float | None) -> str:
    return "∞" if value is None else f"{value:,.0f}"


def _run(mtbf: float | None) -> str:
    """How long a large job runs until the first crash of its GPUs, on average."""
    return "∞" if mtbf is None else f"{mtbf / LARGE_JOB:,.1f} h"


def exposure_words(found: Overview) -> str:
    """What rates are per."""
    return UNITS[found.exposure].partition(" (")[0]
