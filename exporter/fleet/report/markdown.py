"""The review for a chat: at most 40 lines of Markdown, without tables, which chats do not show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter.core.text.phrases import counted
from exporter.fleet.report.steps import next_steps
from exporter.fleet.report.wording import (
    alerts_of,
    at_risk,
    change_of,
    dates,
    deaths_of,
    effect_of,
    fact,
    interval_of,
    rate_of,
    safe,
    stamp,
    times,
    together,
)
from exporter.fleet.results.labels import ratio
from exporter.fleet.review.sentence import earlier
from exporter.fleet.review.titles import title_of
from exporter.fleet.review.values import CauseRow, Overview, Title

LINES = 40
NAME = 100  # characters of a name
_SPECIAL = re.compile(r"([\\`*\[\]|~#!]|(?<![^\W_])_|_(?![^\W_]))")


def as_markdown(found: Overview, titles: Mapping[str, Title], notes: tuple[str, ...] = ()) -> str:
    """The verdict first, then what a reviewer decides on; ends with a newline. notes: what the source cannot show."""
    correlation = found.correlation or {}
    lines = [f"**GPU fleet review, {dates(found.window)}**", "", name(found.sentence, 800)]
    lines += [*_totals(found), *_not_seen(found, notes), f"Alerts: {name(alerts_of(found.alerts), 500)}."]
    lines += _section("Why jobs crashed", [_cause(each) for each in found.causes if each.incidents], 3)
    lines += _section(
        "What makes crashes more or less frequent",
        [
            f"{at}. {name(title_of(titles, each['signature']).title)} with {name(together(each), 200)}: {times(each)} "
            f"times as frequent, {each['status']}"
            for at, each in enumerate(correlation.get("findings", ()), 1)
        ],
        2,
    )
    lines += _section("Nodes at risk", [_at_risk(each) for each in at_risk(correlation)], 2)
    lines += _section(
        "Rollouts",
        [
            f"{name(fact(each['facts'][0]))}, before {name(each['before'])}: {counted(each['nodes'], 'node')}; "
            f"effect on crashes: {effect_of(each)}"
            for each in correlation.get("rollouts", ())
        ],
        2,
    )
    lines += _section("New or back", [_novelty(found, i) for i in range(len(found.novelties))], 2)
    lines += _section(
        "Unrecognised crashes",
        [
            f"{name(u.template)}: {u.count:,} on {counted(u.nodes, 'node')}{', new' * u.is_new}"
            for u in found.unrecognised
        ],
        2,
    )
    lines += _section(
        "Unusually bad nodes",
        [
            f"{name(each['name'])}: {counted(each['incidents'], 'crash', 'crashes')}, {each['expected']:.1f} expected"
            for each in correlation.get("lemons", ())
        ],
        2,
    )
    lines += _section("Next", [name(step, 300) for step in next_steps(found)], 3)
    return "\n".join(lines[:LINES]) + "\n"


def escaped(text: str) -> str:
    """A text without meaning for Markdown: no emphasis, link, mention or tag."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    return text.replace("@", "&#64;").replace("://", "&#58;//")


def name(text: str, most: int = NAME) -> str:
    """A name from anywhere, cut and escaped."""
    return escaped(safe(text, most))


def _not_seen(found: Overview, notes: tuple[str, ...]) -> list[str]:
    """What is missing, in one line: before the numbers that it makes incomplete."""
    missing = [*map(escaped, notes), *(name(gap["what"], 150) for gap in (found.correlation or {}).get("gaps", ()))]
    if found.silent:
        last = found.silent[0]
        silent = f"{counted(len(found.silent), 'node')} silent for a day"
        missing.insert(0, f"{silent}, the longest {name(last.node)}, since {stamp(last.last_seen)}")
    more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
    return [f"Not seen: {'; '.join(missing[:3])}{more}."] if missing else []


def _totals(found: Overview) -> list[str]:
    now = found.totals
    ends = [escaped(f"{deaths_of(found.deaths)}.")] if found.deaths else []
    if not now.incidents:
        return ends
    parts = [counted(now.jobs, "job") + " hit"] if now.jobs else []
    if now.lost_gpu_hours is not None:
        parts.append(f"{now.lost_gpu_hours:,.0f} GPU-hours lost (1 for each GPU and crash, assumed)")
    if found.change is not None:
        parts.append(f"rate {rate_of(found.change)} against {earlier(found.window)} ({interval_of(found.change)})")
    parts.append(f"cause unknown for {100 * now.without_cause / now.incidents:.0f}%")
    return [" ".join([escaped("; ".join(parts) + "."), *ends])]


def _section(title: str, rows: list[str], most: int) -> list[str]:
    if not rows:
        return []
    shown = rows[: most - 1] if len(rows) > most else rows
    more = [f"- and {len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    return ["", f"**{title}**", *(f"- {row}" for row in shown), *more]


def _cause(each: CauseRow) -> str:
    change = f", {change_of(each.change)}" if each.change else ""
    kind = ", cause unknown" if each.kind == "signature" else ""
    return f"{name(each.title)} ({each.verdict}{kind}): {each.incidents:,} on {counted(each.nodes, 'node')}{change}"


def _at_risk(each: Mapping[str, Any]) -> str:
    nodes = counted(each["count"], "node")
    return f"{name(each['because'])}: {nodes}, {ratio(each['expected_7d'])} crashes expected in 7 days"


def _novelty(found: Overview, at: int) -> str:
    each = found.novelties[at]
    how = "new" if each.quiet_seconds is None else f"back after {each.quiet_seconds / 86400:.0f} days"
    return f"{name(each.title)}: {how}, {each.incidents:,} on {counted(each.nodes, 'node')} since {stamp(each.first)}"
