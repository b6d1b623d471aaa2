"""The review for a chat: at most 40 lines of Markdown, without tables, which chats do not show.

From it are made the blocks of a Slack-compatible webhook.
"""

import html
import re
from collections.abc import Mapping, Sequence
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
    together,
)
from exporter.fleet.results.labels import interval, ratio
from exporter.fleet.review.review_contents import NOT_CORRELATED, CauseRow, Review, Title, title_of
from exporter.fleet.review.window_review import earlier
from exporter.fleet.statistics.findings import NodesAtRisk

LINES = 40
NAME = 100  # characters of a name
_SPECIAL = re.compile(r"([\\`*\[\]|~#!]|(?<![^\W_])_|_(?![^\W_]))")


def as_markdown(review: Review, titles: Mapping[str, Title], notes: tuple[str, ...] = ()) -> str:
    """The verdict first, then what a reviewer decides on; ends with a newline. notes: what the source cannot show."""
    correlation = review.correlation or NOT_CORRELATED
    lines = [f"**GPU fleet review, {dates(review.window)}**", "", name(review.sentence, 800)]
    lines += [*_totals(review), *_not_seen(review, notes), f"Alerts: {name(alerts_of(review.alerts), 500)}."]
    lines += _section("Why jobs crashed", [_cause(cause) for cause in review.causes if cause.incidents], 3)
    lines += _section(
        "What makes crashes more or less frequent",
        [
            f"{at}. {name(title_of(titles, finding.signature).title)} with {name(together(finding), 200)}: "
            f"{ratio(finding.ratio.value)} ({interval(finding.ratio)}) times as frequent, {finding.status}"
            for at, finding in enumerate(correlation.findings, 1)
        ],
        2,
    )
    lines += _section("Nodes at risk", [_at_risk(reason) for reason in at_risk(correlation)], 2)
    lines += _section(
        "Rollouts",
        [
            f"{name(fact(rollout.facts[0]))}, before {name(rollout.before)}: {counted(rollout.nodes, 'node')}; "
            f"effect on crashes: {effect_of(correlation, rollout)}"
            for rollout in correlation.rollouts
        ],
        2,
    )
    lines += _section("New or back", [_novelty(review, i) for i in range(len(review.novelties))], 2)
    lines += _section(
        "Unrecognised crashes",
        [
            f"{name(u.template)}: {u.count:,} on {counted(u.nodes, 'node')}{', new' * u.is_new}"
            for u in review.unrecognised
        ],
        2,
    )
    lines += _section(
        "Unusually bad nodes",
        [
            f"{name(node.name)}: {counted(node.incidents, 'crash', 'crashes')}, {node.expected:.1f} expected"
            for node in correlation.outlier_nodes
        ],
        2,
    )
    lines += _section("Next", [name(step.text, 300) for step in next_steps(review)], 3)
    return "\n".join(lines[:LINES]) + "\n"


def escaped(text: str) -> str:
    """A text without meaning for Markdown: no emphasis, link, mention or tag."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    return text.replace("@", "&#64;").replace("://", "&#58;//")


def name(text: str, most: int = NAME) -> str:
    """A name from anywhere, cut and escaped."""
    return escaped(safe(text, most))


def _not_seen(review: Review, notes: tuple[str, ...]) -> list[str]:
    """What is missing, in one line: before the numbers that it makes incomplete."""
    missing = [*map(escaped, notes), *(name(gap.message, 150) for gap in (review.correlation or NOT_CORRELATED).gaps)]
    if review.silent:
        last = review.silent[0]
        silent = f"{counted(len(review.silent), 'node')} silent for a day"
        missing.insert(0, f"{silent}, the longest {name(last.node)}, since {stamp(last.last_seen)}")
    more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
    return [f"Not seen: {'; '.join(missing[:3])}{more}."] if missing else []


def _totals(review: Review) -> list[str]:
    now = review.totals
    ends = [escaped(f"{deaths_of(review.deaths)}.")] if review.deaths else []
    if not now.incidents:
        return ends
    parts = [counted(now.jobs, "job") + " hit"] if now.jobs else []
    if now.lost is not None:
        parts.append(now.lost.sentence)
    if review.change is not None:
        parts.append(f"rate {rate_of(review.change)} against {earlier(review.window)} ({interval_of(review.change)})")
    parts.append(f"cause unknown for {100 * now.without_cause / now.incidents:.0f}%")
    return [" ".join([escaped("; ".join(parts) + "."), *ends])]


def _section(title: str, rows: list[str], most: int) -> list[str]:
    if not rows:
        return []
    shown = rows[: most - 1] if len(rows) > most else rows
    more = [f"- and {len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    return ["", f"**{title}**", *(f"- {row}" for row in shown), *more]


def _cause(cause: CauseRow) -> str:
    change = f", {change_of(cause.change)}" if cause.change else ""
    kind = ", cause unknown" if cause.kind == "signature" else ""
    return f"{name(cause.title)} ({cause.verdict}{kind}): {cause.incidents:,} on {counted(cause.nodes, 'node')}{change}"


def _at_risk(reason: NodesAtRisk) -> str:
    nodes = counted(reason.count, "node")
    return f"{name(reason.because)}: {nodes}, {ratio(reason.expected_7d)} crashes expected in 7 days"


def _novelty(review: Review, at: int) -> str:
    novelty = review.novelties[at]
    how = "new" if novelty.quiet_seconds is None else f"back after {novelty.quiet_seconds / 86400:.0f} days"
    nodes = counted(novelty.nodes, "node")
    return f"{name(novelty.title)}: {how}, {novelty.incidents:,} on {nodes} since {stamp(novelty.first)}"


MAX_BLOCK_CHARS = 2900  # Slack takes 3,000
_ESCAPED = re.compile(r"\\([\\`*\[\]|~#!_])")


def slack_payload(review: Review, markdown: str, link: str = "") -> dict[str, Any]:
    """The JSON body. Nothing in it mentions a person or a channel, or becomes a link, but `link`."""
    title, _, *rest = markdown.splitlines()
    texts = [_chat_text(line) for line in rest]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": plain(title.strip("*"))[:150]}}
    ]
    blocks += [
        {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": text}} for text in _parts(texts)
    ]
    if link:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{link}|Open the fleet page>"}})
    return {"text": _chat_text(review.sentence), "blocks": blocks}


def plain(text: str) -> str:
    """A line of the review's Markdown as text."""
    text = re.sub(r"\*\*(.+)\*\*$", r"\1", text) if text.startswith("**") else text
    return html.unescape(_ESCAPED.sub(r"\1", text))


def _chat_text(line: str) -> str:
    is_title = line.startswith("**")
    text = plain(line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("@", "@\u200b")  # Mattermost takes @all for a mention, without any markup
    if is_title:
        return f"*{text}*"
    return f"• {text[2:]}" if text.startswith("- ") else text


def _parts(lines: Sequence[str]) -> list[str]:
    """The lines as texts that a block can hold, a section of the review each where that fits."""
    parts: list[str] = []
    for section in "\n".join(lines).split("\n\n"):
        while section:
            cut = len(section) if len(section) <= MAX_BLOCK_CHARS else section.rfind("\n", 1, MAX_BLOCK_CHARS)
            cut = cut if cut > 0 else MAX_BLOCK_CHARS
            parts.append(section[:cut])
            section = section[cut:].lstrip("\n")
    return parts
