"""How numbers and names of a review are written for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from exporter.core.text.phrases import counted, printable
from exporter.core.text.redact import redact
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import LEAST, clipped, ratio
from exporter.fleet.review.sentence import changed
from exporter.fleet.review.timeline import duration
from exporter.fleet.review.values import AlertQuality, Deaths
from exporter.fleet.statistics.ratio import Ratio


def safe(text: str, most: int | None = None) -> str:
    """A text from a journal on one line: printable, without secrets, cut."""
    line = printable(redact(" ".join(text.split())))
    if most is None:
        return clipped(line)
    return line if len(line) <= most else line[: most - 1] + "…"


def deaths_of(found: Deaths) -> str:
    """How many failed jobs the logs explain."""
    share = f"{100 * found.explained / found.jobs:.0f}%"
    parts = [f"{share} of {counted(found.jobs, 'failed job')} have a line that a signature knows"]
    parts += [f"{found.unrecognised:,} unrecognised"] if found.unrecognised else []
    parts += [f"{found.no_line:,} without any line"] if found.no_line else []
    return ", ".join(parts)


def alerts_of(found: AlertQuality | None) -> str:
    """How many alerts fired and how good the pages were, or why that is not known."""
    if found is None:
        return "not known; add --prometheus URL to see which alerts fired"
    if found.missing and not found.rows:
        return f"not known; {safe(found.missing, 200)}"
    judged = [
        f"{count:,} {what}"
        for count, what in ((found.pages_justified, "justified"), (found.pages_not_justified, "not justified"))
        if count
    ]
    text = counted(found.pages, "page") + (f" ({', '.join(judged)})" if judged else "")
    text += f", {counted(found.tickets, 'ticket')}"
    if found.seconds_to_page is not None:
        text += f"; {duration(found.seconds_to_page)} from the first crash to the page (median)"
    worst = max(found.rows, key=lambda row: row.not_justified, default=None)
    if worst is not None and worst.not_justified:
        text += f"; most often without a crash: {safe(worst.name, 60)} ({worst.not_justified:,} of {worst.fired:,})"
    return text + (f"; incomplete: {safe(found.missing, 200)}" if found.missing else "")


def at_risk(correlation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The reasons that put nodes at risk, except those with hardly a crash expected."""
    return [each for each in correlation.get("exposed", ()) if each["expected_7d"] >= LEAST]


def most_at_risk(correlation: Mapping[str, Any]) -> tuple[int, str] | None:
    """How many nodes are at risk, each once, and the reason of most of them. Of very many, at least how many."""
    reasons = at_risk(correlation)
    if not reasons:
        return None
    most = max(reasons, key=lambda each: each["count"])
    named = {node for each in reasons for node in each["nodes"]}
    others = f" and {counted(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return max(most["count"], len(named)), safe(most["because"], 60) + others


def effect_of(rollout: Mapping[str, Any]) -> str:
    """The findings about a rollout: `see finding 2`; for one that was not compared, `unknown`."""
    if rollout["findings"]:
        return f"see finding {', '.join(map(str, rollout['findings']))}"
    return "no effect found" if rollout["verdict"] == "tested" else "unknown"


def dates(window: Window) -> str:
    """`16 to 22 November 2026`, in UTC; the end is the last day in it."""
    first, last = (datetime.fromtimestamp(t, UTC) for t in (window.start, window.end - 1))
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {last.day} {last:%B %Y}"
    year = f" {first.year}" if first.year != last.year else ""
    return f"{first.day} {first:%B}{year} to {last.day} {last:%B %Y}"


def stamp(time: float) -> str:
    """`20 Nov 06:41Z`."""
    found = datetime.fromtimestamp(time, UTC)
    return f"{found.day} {found:%b %H:%MZ}"


def times(each: Mapping[str, Any]) -> str:
    """A finding's rate ratio and interval: `6.2 (4.1 to 9.5)`."""
    low, high = ratio(each["rate_ratio_low"]), ratio(each["rate_ratio_high"])
    return f"{ratio(each['rate_ratio'])} ({low} to {high})"


def change_of(change: Ratio | None) -> str:
    """The change on the window before, empty where there is nothing to compare with."""
    return "" if change is None else changed(change)


def rate_of(change: Ratio) -> str:
    """`+10%`: how much larger a rate is; `new` where it was zero."""
    return "new" if math.isinf(change.value) else f"{(change.value - 1) * 100:+.0f}%".replace("-", "−")


def together(each: Mapping[str, Any]) -> str:
    """The facts of a finding, with those that the data cannot distinguish: `nccl 2.26.2, or torch 2.8.0`."""
    others = each["facts"][1:]
    more = f" and {len(others) - 2} more" if len(others) > 2 else ""
    apart = f", or {', '.join(map(fact, others[:2]))}{more} (not separable)" if others else ""
    return conditions(each) + apart


def interval_of(change: Ratio | None) -> str:
    """`95% interval −9 to +33%`."""
    if change is None:
        return ""
    low, high = ((f"{(end - 1) * 100:+.0f}" if end != float("inf") else "∞") for end in (change.low, change.high))
    return f"95% interval {low} to {high}%".replace("-", "−")


def fact(each: Mapping[str, Any]) -> str:
    """`driver_version 580.105`."""
    return safe(f"{each['fact']} {each['value']}")


def conditions(each: Mapping[str, Any]) -> str:
    """The facts of a finding, without those that cannot be distinguished from them."""
    named = " and ".join(fact(one) for one in (each["facts"][0], each["together_with"]) if one)
    return f"{named} (rollout)" if each["kind"] == "rollout" else named
