"""The verdict: what a reviewer has to know, in two or three sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.core.text.phrases import counted, printable
from exporter.fleet.observations import Window
from exporter.fleet.results.labels import clipped, ratio
from exporter.fleet.review.titles import title_of
from exporter.fleet.review.values import CauseRow, Novelty, Title, Totals
from exporter.fleet.statistics.ratio import Ratio

DAY = 86400.0
MOST = 0.5  # of a rise, that one cause accounts for


def sentence(
    window: Window, now: Totals, before: Totals | None, change: Ratio | None, nodes: int, causes: Sequence[CauseRow],
    novelties: Sequence[Novelty], correlation: Mapping[str, Any] | None, titles: Mapping[str, Title],
) -> str:  # fmt: skip
    """How many root incidents and whether that is more; what made it so; what is new; what was found."""
    if not nodes and not now.incidents:
        return "Nothing was seen: no node reported in this window."
    seen = correlation is None or correlation["complete"]
    parts = [_count(window, now, before, change, nodes, "" if seen else ", as far as was seen")]
    rise = now.incidents - before.incidents if before else 0
    if change and change.low > 1 and causes:
        lead = max(causes, key=lambda c: c.incidents - (c.before or 0))
        if lead.incidents - (lead.before or 0) > MOST * rise > 0:
            parts.append(f"{quoted(lead.title)} accounts for most of the rise.")
    new = [n for n in novelties if n.quiet_seconds is None]
    if new:
        parts.append(f"New: {quoted(new[0].title)}." if len(new) == 1 else f"{len(new)} signatures are new.")
    if correlation is not None and now.incidents:
        parts.append(_findings(correlation, titles))
    return printable(" ".join(" ".join(filter(None, parts)).split()))


def quoted(title: str) -> str:
    """A title within a sentence. Many titles are sentences themselves: `A PyTorch collective timed out`."""
    return f"“{clipped(title)}”"


def earlier(window: Window) -> str:
    """The window before, in words: the week before."""
    days = (window.end - window.start) / DAY
    if abs(days - 7) < 0.01:
        return "the week before"
    return "the day before" if abs(days - 1) < 0.01 else f"the {days:.3g} days before"


def changed(change: Ratio) -> str:
    """How a rate changed: `64% more`, `2.1 times as many`, `30% fewer`; for an unclear change `about as many`."""
    if change.low <= 1 <= change.high:
        return "no clear change"
    if math.isinf(change.value):
        return "none before"
    if change.value >= 2:
        return f"{ratio(change.value)} times as many"
    percent = abs(change.value - 1) * 100
    return f"{percent:.0f}% {'more' if change.value > 1 else 'fewer'}"


def _count(window: Window, now: Totals, before: Totals | None, change: Ratio | None, nodes: int, seen: str) -> str:
    fleet = counted(nodes, "node")
    if not now.incidents:
        was = f"; {before.incidents:,} in {earlier(window)}" if before and before.incidents else ""
        return f"No root incident on {fleet}{seen}{was}."
    incidents = counted(now.incidents, "root incident")
    where = (
        f"on {counted(now.nodes_crashed, 'node') if now.nodes_crashed > nodes else f'{now.nodes_crashed:,} of {fleet}'}"
    )
    lost = f"; jobs lost {now.lost_gpu_hours:,.0f} GPU-hours" if now.lost_gpu_hours else ""
    if change is None or before is None:
        return f"{incidents} {where}{lost}."
    how = changed(change)
    how = f"no clear change from {earlier(window)}" if how == "no clear change" else f"{how} than in {earlier(window)}"
    if "times as many than" in how:
        how = how.replace("many than in", "many as in")
    if how.startswith("none before"):
        how = f"none in {earlier(window)}"
    return f"{incidents} {where}, {how}{lost}."


def _findings(correlation: Mapping[str, Any], titles: Mapping[str, Title]) -> str:
    found = correlation["findings"]
    more = [each for each in found if each["direction"] == "more"]
    if not more:
        return ""
    lead = more[0]
    fact = clipped(f"{lead['facts'][0]['fact']} {lead['facts'][0]['value']}")
    what = quoted(title_of(titles, lead["signature"]).title)
    since = "since the rollout of" if lead["kind"] == "rollout" else "with"
    times = f"{ratio(lead['rate_ratio'])} times as frequent" if lead["rate_ratio"] is not None else "seen only"
    rest = f", and {counted(len(found) - 1, 'more finding')}" if len(found) > 1 else ""
    return f"{what} is {times} {since} {fact} ({lead['status']}){rest}."
