"""How numbers and names of a review are written for people."""

import math
from datetime import UTC, datetime

from exporter.core.text.phrases import counted, printable
from exporter.core.text.redact import redact
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import LEAST, clipped, conditions
from exporter.fleet.review.event_timeline import duration
from exporter.fleet.review.review_contents import AlertQuality, Deaths
from exporter.fleet.review.window_review import changed
from exporter.fleet.statistics.findings import Correlation, FactValue, Finding, NodesAtRisk, Rollout
from exporter.fleet.statistics.ratio import Ratio

ROLLOUT_VERDICTS = {  # how the correlator judged a rollout
    "": "compared with nodes not changed yet",
    "follows_crashes": "not judged: the changes follow crashes (repairs)",
    "no_controls": "not judged: no nodes to compare with",
    "rebooted": "not judged: the nodes rebooted at the change, which may be the cure",
}


def safe(text: str, most: int | None = None) -> str:
    """A text from a journal on one line: printable, without secrets, cut."""
    line = printable(redact(" ".join(text.split())))
    if most is None:
        return clipped(line)
    return line if len(line) <= most else line[: most - 1] + "…"


def deaths_of(deaths: Deaths) -> str:
    """How many failed jobs the logs explain."""
    share = f"{100 * deaths.explained / deaths.jobs:.0f}%"
    parts = [f"{share} of {counted(deaths.jobs, 'failed job')} have a line that a signature matches"]
    parts += [f"{deaths.unrecognised:,} unrecognised"] if deaths.unrecognised else []
    parts += [f"{deaths.no_line:,} without any line"] if deaths.no_line else []
    return ", ".join(parts)


def alerts_of(alerts: AlertQuality | None) -> str:
    """How many alerts fired and how good the pages were, or why that is not known."""
    if alerts is None:
        return "not known; add --prometheus URL to see which alerts fired"
    if alerts.missing and not alerts.rows:
        return f"not known; {safe(alerts.missing, 200)}"
    judged = [
        f"{count:,} {judgement}"
        for count, judgement in ((alerts.pages_justified, "justified"), (alerts.pages_not_justified, "not justified"))
        if count
    ]
    text = counted(alerts.pages, "page") + (f" ({', '.join(judged)})" if judged else "")
    text += f", {counted(alerts.tickets, 'ticket')}"
    if alerts.seconds_to_page is not None:
        text += f"; {duration(alerts.seconds_to_page)} from the first crash to the page (median)"
    worst = max(alerts.rows, key=lambda row: row.not_justified, default=None)
    if worst is not None and worst.not_justified:
        text += f"; most often without a crash: {safe(worst.name, 60)} ({worst.not_justified:,} of {worst.fired:,})"
    return text + (f"; incomplete: {safe(alerts.missing, 200)}" if alerts.missing else "")


def at_risk(correlation: Correlation) -> list[NodesAtRisk]:
    """The reasons that put nodes at risk, except those with hardly a crash expected."""
    return [reason for reason in correlation.exposed if reason.expected_7d >= LEAST]


def most_at_risk(correlation: Correlation) -> tuple[int, str] | None:
    """How many nodes are at risk, each once, and the reason of most of them. Of very many, at least how many."""
    reasons = at_risk(correlation)
    if not reasons:
        return None
    most = max(reasons, key=lambda reason: reason.count)
    named = {node for reason in reasons for node in reason.nodes}
    others = f" and {counted(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return max(most.count, len(named)), safe(most.because, 60) + others


def effect_of(correlation: Correlation, rollout: Rollout) -> str:
    """The findings about a rollout: `see finding 2`; for one that was not compared, `unknown`."""
    if findings := correlation.about(rollout):
        return f"see finding {', '.join(map(str, findings))}"
    return "unknown" if rollout.verdict else "no effect found"


def dates(window: Window) -> str:
    """`16 to 22 November 2026`, in UTC; the end is the last day in it."""
    first, last = (datetime.fromtimestamp(t, UTC) for t in (window.start, window.end - 1))
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {last.day} {last:%B %Y}"
    year = f" {first.year}" if first.year != last.year else ""
    return f"{first.day} {first:%B}{year} to {last.day} {last:%B %Y}"


def stamp(time: float) -> str:
    """`20 Nov 06:41Z`."""
    date = datetime.fromtimestamp(time, UTC)
    return f"{date.day} {date:%b %H:%MZ}"


def change_of(change: Ratio | None) -> str:
    """The change on the window before, empty where there is nothing to compare with."""
    return "" if change is None else changed(change)


def rate_of(change: Ratio) -> str:
    """`+10%`: how much larger a rate is; `new` where it was zero."""
    return "new" if math.isinf(change.value) else f"{(change.value - 1) * 100:+.0f}%".replace("-", "−")


def fact(of: FactValue) -> str:
    """`driver_version 580.105`."""
    return safe(f"{of.fact} {of.value}")


def named(finding: Finding) -> str:
    """The facts of a finding, without those that cannot be distinguished from them."""
    facts = " and ".join(map(fact, conditions(finding)))
    return f"{facts} (rollout)" if finding.rollout else facts


def together(finding: Finding) -> str:
    """The facts of a finding, with those that the data cannot distinguish: `nccl 2.26.2, or torch 2.8.0`."""
    others = finding.facts[1:]
    more = f" and {len(others) - 2} more" if len(others) > 2 else ""
    apart = f", or {', '.join(map(fact, others[:2]))}{more} (not separable)" if others else ""
    return named(finding) + apart


def interval_of(change: Ratio | None) -> str:
    """`95% interval −9 to +33%`."""
    if change is None:
        return ""
    low, high = ((f"{(end - 1) * 100:+.0f}" if end != float("inf") else "∞") for end in (change.low, change.high))
    return f"95% interval {low} to {high}%".replace("-", "−")
