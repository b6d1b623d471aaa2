"""A correlation as text for people: findings as sentences, with a forest plot of their rate ratios."""

import math
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime

from exporter.core.text.phrases import counted
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import (
    LEAST,
    NO_MODEL,
    UNITS,
    clipped,
    conditions,
    expected_count,
    hours,
    sure,
    times,
    times_and_interval,
)
from exporter.fleet.results.labels import ratio as written
from exporter.fleet.statistics.beginnings import DAYS_BEFORE
from exporter.fleet.statistics.findings import (
    OVER_REPRESENTED,
    Beginning,
    Correlation,
    Detectable,
    Finding,
    IncidentRates,
    NodesAtRisk,
    NotEnough,
    OutlierNode,
    PrecedingChange,
    Rollout,
    RolloutEffect,
    WorkloadShare,
)
from exporter.fleet.statistics.ratio import Ratio

WIDTH = 100
PLOT = 45  # columns of a forest plot
PLOT_FROM, PLOT_TO = 0.1, 100.0  # rate ratios; what lies beyond ends in an arrow
SHOWN = 10  # rows of each list; the JSON has all
PARTS = 6  # signatures of a group
REPEATED = 1.2  # crashes for each crashed node, from which on the rates of all crashes are worth a row
NAMED_SHARE = 0.005  # of a finding's crashes: a user or job with less is not named
ALTERNATIVES = 4  # facts named of a group


def text(correlation: Correlation, *, lost: str = "", color: bool = False) -> str:
    """The result as text for a terminal; ends with a newline. lost: a sentence about the GPU-hours of crashed jobs."""
    paint = _Paint(color)
    parts = [_head(correlation, paint)]
    for number, finding in enumerate(correlation.findings, 1):
        parts.append(_finding(number, finding, paint))
    if not correlation.findings:
        parts.append(_nothing(correlation))
    else:
        parts.append(_forest(correlation.findings))
    parts += [
        _section("Places (not configuration: look at power, cooling, cabling)", map(_location, correlation.locations)),
        _section(
            "Rollouts: changed nodes against nodes not changed yet",
            (_rollout(rollout, correlation.about(rollout)) for rollout in correlation.rollouts),
        ),
        _section("What changed before it began: on the nodes that crashed since", map(_beginning, correlation.beginnings)),
        _section("Nodes at risk: they meet a finding or a cause and have not crashed yet", _exposed_rows(correlation.exposed)),
        _section(
            "Unusually bad nodes: far worse than nodes of the same configuration", map(_outlier_node, correlation.outlier_nodes)
        ),
        _section("Not enough data", map(_not_enough, sorted(correlation.not_enough_data, key=lambda n: -n.crashes))),
        _reliability(correlation, lost),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


class _Paint:
    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text


def _head(correlation: Correlation, paint: _Paint) -> str:
    days = (correlation.window.end - correlation.window.start) / 86400
    lines = [
        paint("1", f"Crashes and configuration, {_span(correlation.window)} ({days:.3g} days)"),
        *_wrap(
            f"{counted(correlation.nodes, 'node')}, {correlation.exposure_hours:,.0f} {UNITS[correlation.exposure]}; "
            f"{counted(correlation.incidents, 'incident')}, {correlation.origins:,} of them first in their job; "
            f"{counted(correlation.tests, 'test')}."
        ),
    ]
    if not correlation.complete:
        lines.append(paint("33", "Incomplete: an empty result does not mean that all is well."))
    lines += [line for gap in correlation.gaps for line in _wrap(f"- {gap.message}", "  ", "    ")]
    return "\n".join(lines) + "\n"


def _nothing(correlation: Correlation) -> str:
    if not correlation.incidents and correlation.complete:
        return "There was no crash.\n"
    answer = "No finding: no fact is shown to make a crash more or less frequent."
    answer += "" if correlation.complete else " But see above what was not seen."
    return "\n".join([answer, *_wrap(_detectable(correlation.detectable))]) + "\n"


def _detectable(d: Detectable) -> str:
    if not d.ratios:
        return ""
    most = f"The most frequent signature crashed on {counted(d.crashes, 'node')}"
    shown = ", ".join(
        f"{written(ratio)} where {share:.0%} of the nodes have the value"
        for share, ratio in d.ratios
        if ratio < math.inf
    )
    hidden = " or ".join(f"{share:.0%}" for share, ratio in d.ratios if ratio == math.inf)
    if not shown:
        return f"{most}, too few to show any rate ratio."
    none = f"; none where {hidden} have it" if hidden else ""
    return f"{most}, which can show (in 4 of 5 cases) a rate ratio of {shown}{none}."


def _finding(number: int, f: Finding, paint: _Paint) -> str:
    with_ = " and ".join(clipped(str(fact)) for fact in conditions(f))
    where = "since the rollout of" if f.rollout else "on nodes with"
    subject = {"signature": f"{f.signature} is", "root_cause": f"the crashes that {f.signature} can explain are"}
    sentence = f"{subject.get(f.level, f'{f.signature} are')} {times(f.ratio)} {where} {with_} {_interval(f.ratio)}."
    lines = _wrap(f"{number}. {sentence}", "", "   ")
    lines[0] = paint("1", lines[0])
    row = _row
    what = "crashed nodes" if f.counts == "nodes" else "crashes"
    expected_from = "nodes not changed yet" if f.rollout else "its share of the exposure"
    lines += row("status", paint("32" if f.status == "confirmed" else "33", f.status) + _why(f))
    lines += row(
        "seen",
        f"{f.observed:,} of {f.crashes:,} {what} had it, {expected_count(f.expected)} expected from {expected_from} "
        f"(false discovery rate {_small(f.q_value)})",
    )
    if f.rates and f.rates.incidents_with + f.rates.incidents_without >= REPEATED * f.crashes:
        lines += row("all", _rates(f.rates))
    if f.trend:
        lines += row("trend", _trend(f))
    if f.signatures:
        more = len(f.signatures) - PARTS
        parts = ", ".join(
            f"{p.signature} {written(p.ratio.value)} ({p.observed} of {p.crashes})" for p in f.signatures[:PARTS]
        )
        lines += row("of these", parts + (f" and {more} more signatures" if more > 0 else ""))
    if f.rollout:
        lines += row("onset", _onset(f.rollout))
        rollout = f.rollout.rollout
        lines += row(
            "rollout", f"{counted(rollout.nodes, 'node')}, {_span(Window(start=rollout.first, end=rollout.last))}"
        )
    if len(f.facts) > 1:
        more = len(f.facts) - 1 - ALTERNATIVES
        others = ", ".join(clipped(str(fact)) for fact in f.facts[1 : 1 + ALTERNATIVES]) + (
            f" and {more} more" if more > 0 else ""
        )
        lines += row("or", f"{others}: these nodes cannot tell them apart")
    if any(parts.share >= NAMED_SHARE for parts in f.workload):
        lines += row("whose", ". ".join(_whose(parts) for parts in f.workload if parts.share >= NAMED_SHARE))
    if f.tie_breakers:
        lines += row("to decide", f"watch, or change one of these facts on, {', '.join(f.tie_breakers)}")
    lines += row("adjusted", f"for {', '.join(f.adjusted_for)}") if f.adjusted_for else []
    lines += row("next", f.next_step) if f.next_step else []
    lines += row("against", "; ".join(f.counter_evidence)) if f.counter_evidence else []
    lines += row("examples", ", ".join(f.examples)) if f.examples else []
    return "\n".join(lines) + "\n"


def _trend(f: Finding) -> str:
    parts = ", ".join(
        f"{part.low:.3g} to {part.high:.3g}: {written(part.observed / max(part.expected, 1e-9))}" for part in f.trend
    )
    return f"crashes seen for each one expected, by {f.facts[0].fact}: {parts}"


def _rates(r: IncidentRates) -> str:
    return (
        f"{r.incidents_with:,} crashes with it, {expected_count(r.rate_with)} in 1,000 hours, and {r.incidents_without:,} "
        f"without, {expected_count(r.rate_without)} in 1,000 hours: {times_and_interval(r.ratio)}, nodes that crash again "
        "included"
    )


def _whose(share: WorkloadShare) -> str:
    if share.kind in ("user", "job", "container_image"):
        who = f"{share.kind.replace('_', ' ')} {clipped(share.names[0])} has {share.share:.0%} of these crashes"
    else:
        names = counted(len(share.names), OVER_REPRESENTED[share.kind])
        who = f"{names} with far more of these crashes than of others: {share.share:.0%}"
    apart = "compared within images" if share.kind == "container_image" else "without them"
    if share.ratio is None:
        return f"{who}; {apart}, none is left to compare"
    return f"{who}; {apart}, {times(share.ratio)}"


def _why(f: Finding) -> str:
    if f.confirmation is not None and f.first_seen is not None:
        again = f.confirmation
        return (
            f": found in {_span(f.first_seen)}, and again independently in {_span(again.window)} "
            f"({times_and_interval(again.ratio)}, p {_small(again.p_value)})"
        )
    if f.status == "confirmed":
        return ": confirmed by an earlier window"
    return ": found in this window only; a later one has to show it again"


def _forest(findings: tuple[Finding, ...]) -> str:
    names = [f"{i}. {f.facts[0]}" for i, f in enumerate(findings[:SHOWN], 1)]
    width = min(max(map(len, names)), WIDTH - PLOT - 20)
    scale = {0.1: "0.1", 1.0: "1", 10.0: "10", 100.0: "100"}
    axis = [" "] * (PLOT + 3)
    for value, label in scale.items():
        at = _column(value)
        axis[at : at + len(label)] = label
    lines = [f"{'Rate ratio':<{width}}  {''.join(axis).rstrip()}"]
    for name, f in zip(names, findings, strict=False):
        shown = name if len(name) <= width else name[: width - 1] + "…"
        lines.append(f"{shown:<{width}}  {_bar(f.ratio)}  {written(f.ratio.value)}")
    return "\n".join(lines) + "\n"


def _bar(ratio: Ratio) -> str:
    bar = [" "] * PLOT
    bar[_column(1.0)] = "┊"
    low, high = _column(ratio.low), _column(ratio.high)
    bar[low : high + 1] = "─" * (high - low + 1)
    bar[low] = "◂" if ratio.low < PLOT_FROM else "├"
    bar[high] = "▸" if ratio.high > PLOT_TO else "┤"
    bar[_column(ratio.value)] = "●"
    return "".join(bar)


def _column(value: float) -> int:
    inside = min(max(value, PLOT_FROM), PLOT_TO)
    return round(math.log(inside / PLOT_FROM) / math.log(PLOT_TO / PLOT_FROM) * (PLOT - 1))


def _location(f: Finding) -> str:
    return f"{f.signature} is {times(f.ratio)} at {clipped(str(f.facts[0]))} {_interval(f.ratio)}; {f.status}"


def _rollout(r: Rollout, findings: tuple[int, ...]) -> str:
    facts = ", ".join(clipped(str(fact)) for fact in r.facts[: 1 + ALTERNATIVES])
    when = _span(Window(start=r.first, end=r.last))
    return f"{facts} (before: {clipped(r.before)}) on {counted(r.nodes, 'node')}, {when}: {_verdict(r, findings)}"


def _verdict(r: Rollout, findings: tuple[int, ...]) -> str:
    if r.verdict == "follows_crashes":
        return (
            f"not judged, the changes follow crashes. {r.crashed_before:.0%} of the nodes had crashed within two weeks "
            f"before, {r.crashed_before_expected:.0%} expected"
        )
    if r.verdict == "no_controls":
        return "not judged, no control group: too few nodes stayed unchanged to compare with"
    if r.verdict == "rebooted" and not findings:
        return f"crashes became fewer, not judged: {r.rebooted:,} of the nodes rebooted at the change, which may be the cure"
    effect = f"see finding {', '.join(map(str, findings))}" if findings else "no effect found"
    return f"{effect}; compared with nodes not changed yet, {counted(r.controls, 'node')} never changed"


def _beginning(b: Beginning) -> str:
    rate = "not seen before" if math.isinf(b.ratio.value) else f"{times(b.ratio)} since"
    when = _span(Window(start=b.first, end=b.last))
    changed = "; ".join(map(_preceding, b.changes))
    changed = changed or f"no fact changed on these nodes in the {DAYS_BEFORE} days before"
    return f"{b.signature} began {when}, {rate}; {counted(b.crashes_after, 'node')} crashed: {changed}"


def _preceding(c: PrecedingChange) -> str:
    facts = " and ".join(clipped(str(fact)) for fact in c.facts[:ALTERNATIVES])
    others = f"{c.others_changed:,} of {c.others:,} others"
    when = f"{c.hours_before:.0f} h before the crash (median)"
    return f"{facts} (before: {clipped(c.before)}) on {c.affected_changed} of {c.affected} of them, {when}, and on {others}"


def _onset(effect: RolloutEffect) -> str:
    low, high = max(effect.onset_low, 0.0), effect.onset_high
    return f"began {low:.0f} to {high:.0f} h after each node's change (most likely {max(effect.onset, 0.0):.0f} h)"


def _exposed_rows(rows: tuple[NodesAtRisk, ...]) -> Iterator[str]:
    """The same nodes are one row, whatever makes them be at risk."""
    groups: dict[tuple[int, tuple[str, ...]], list[NodesAtRisk]] = {}
    for at_risk in rows:
        if at_risk.expected_7d >= LEAST:
            groups.setdefault((at_risk.count, at_risk.nodes), []).append(at_risk)
    return map(_exposed, groups.values())


def _exposed(rows: list[NodesAtRisk]) -> str:
    first = rows[0]
    why = "; ".join(
        f"{clipped(e.because)} ({e.status}), about {written(e.expected_7d)} crashes of {e.signature} expected in 7 days"
        for e in rows
    )
    return f"{counted(first.count, 'node')} with {why}: {', '.join(first.nodes[:5])}{', …' if first.count > 5 else ''}"


def _outlier_node(bad: OutlierNode) -> str:
    card = f" (GPU {bad.gpu})" if bad.gpu else ""
    where = f"GPU {bad.name} (now in {bad.node})" if bad.kind == "gpu" else bad.name + card
    within = f" in {bad.within_days} days" if bad.within_days else ""
    return (
        f"{where}: {counted(bad.incidents, 'crash', 'crashes')} of {counted(bad.jobs, 'job')} on "
        f"{counted(bad.days, 'day')} where {written(bad.expected)} are usual{within}; {sure(bad.probability)}; "
        f"{', '.join(bad.signatures[:3])}"
    )


def _not_enough(n: NotEnough) -> str:
    lead = ""
    if n.lead and n.p_value is not None:
        lead = (
            f"; lead: {clipped(str(n.lead))}, on {n.observed} of these nodes where {expected_count(n.expected)} were expected "
            f"(exact p {n.p_value:.1g}, the smallest of {counted(n.values, 'value')})"
        )
    return f"{n.signature}: {counted(n.crashes, 'crashed node')}, {n.message}{lead}"


def _reliability(correlation: Correlation, lost: str) -> str:
    lines = []
    for r in correlation.reliability:
        between = f"one crash in {hours(r.mtbf)} GPU-hours (95% interval {hours(r.mtbf_low)} to {hours(r.mtbf_high)})"
        rate = between if r.incidents else f"no crash in {hours(r.hours)} GPU-hours"
        model = NO_MODEL if r.gpu_model == "unknown" else r.gpu_model
        lines += _wrap(f"- {model}: {rate}", "  ", "    ")
    if lost:
        lines += _wrap(f"- {lost}", "  ", "    ")
    return "\n".join(["Reliability", *lines]) + "\n" if lines else ""


def _section(title: str, rows: Iterator[str]) -> str:
    items = list(rows)
    if not items:
        return ""
    lines = [line for row in items[:SHOWN] for line in _wrap(f"- {row}", "  ", "    ")]
    if len(items) > SHOWN:
        lines.append(f"  - and {len(items) - SHOWN} more (--format json has all)")
    return "\n".join([title, *lines]) + "\n"


def _row(name: str, value: str) -> list[str]:
    return _wrap(f"   {name:<10}{value}", "", " " * 13)


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True,
    )  # fmt: skip


def _interval(ratio: Ratio) -> str:
    return f"(95% interval {written(ratio.low)} to {written(ratio.high)})"


def _small(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else f"below {10 ** math.ceil(math.log10(max(value, 1e-300))):.0e}"


def _span(window: Window) -> str:
    start, end = (datetime.fromtimestamp(round(t), UTC) for t in (window.start, window.end))
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
