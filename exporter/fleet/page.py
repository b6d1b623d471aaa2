"""The fleet service's page: findings, lemons, exposed nodes, and how far to trust them. Every text in it may be hostile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from exporter.fleet.standing import Standing
from exporter.web.page import document, moment, shown, table

SHOWN = 50  # rows of a table; the API has all
NAMED = 5  # nodes named in a row
JSON = ("correlation", "findings", "lemons", "exposed")


def page(standing: Standing, source: str, not_ready: Sequence[str], telemetry_path: str, *, now: float) -> str:
    """The page, as text that UTF-8 can hold. now: Unix seconds."""
    links = [*(f"/api/v1/{name}" for name in JSON), telemetry_path, "/-/healthy", "/-/ready"]
    names = [*(f"{name}.json" for name in JSON), "Metrics", "Health", "Readiness"]
    menu = "\n".join(f'<a href="{shown(link)}">{name}</a>' for link, name in zip(links, names, strict=True))
    parts = [
        "<h1>Crashes and configuration of the fleet</h1>",
        f"<p>From {shown(source)}. {_trust(standing, now)}",
        _reasons("Not ready:", not_ready),
        f"<nav>\n{menu}\n</nav>",
    ]
    if standing.result is not None:
        parts += _result(standing.result)
    return document("gpufault fleet", "\n".join(part for part in parts if part))


def _trust(standing: Standing, now: float) -> str:
    """How old the result is, whether the last refresh failed, and whether anything was missing."""
    running = " A refresh is under way." if standing.running else ""
    failed = ""
    if standing.failure is not None:
        why = f"{standing.failure.reason}: {standing.failure.told}"
        failed = f"\n<p>The last refresh failed at {moment(standing.failure.time)} UTC ({shown(why)})."
        failed += " What follows is of the one before." if standing.result is not None else ""
    if standing.result is None:
        return f"There is no result yet.{running}{failed}"
    complete = "Nothing was missing." if standing.result["complete"] else "Not complete: no findings are no all-clear."
    return (
        f"The result is {age(now - standing.result_time)} old ({moment(standing.result_time)} UTC).{running}\n"
        f"<p>{complete}{failed}"
    )


def _result(found: Mapping[str, Any]) -> list[str]:
    window = found["window"]
    start, end = (moment(datetime.fromisoformat(window[edge]).timestamp()) for edge in ("start", "end"))
    head = (
        f"<p>{start} to {end} UTC: {found['nodes']:,} nodes, {found['incidents']:,} incidents, "
        f"{window['exposure_hours']:,.0f} {shown(window['exposure'].replace('_', ' '))}, {found['tests']:,} tests."
    )
    return [
        head,
        _reasons("What was missing, or is less exact:", [gap["what"] for gap in found["gaps"]]),
        "<h2>Findings</h2>",
        _rows(
            ("Crash", "With", "How much more frequent", "Status", "Crashed nodes with it", "Against"),
            [_finding(each) for each in found["findings"]],
        ),
        "<h2>Lemons</h2>",
        _rows(
            ("Node or GPU", "Incidents", "Expected", "Jobs, days", "Crashes"),
            [_lemon(each) for each in found["lemons"]],
        ),
        "<h2>Exposed: nodes that meet it and have not crashed</h2>",
        _rows(
            ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
            [_exposed(each) for each in found["exposed"]],
        ),
        "<h2>Not enough data</h2>",
        _rows(
            ("Crash", "Crashed nodes", "What it would take"),
            [[shown(each["signature"]), str(each["crashes"]), shown(each["what"])] for each in found["not_enough_data"]],
        ),
    ]  # fmt: skip


def _finding(each: Mapping[str, Any]) -> list[str]:
    with_ = " and ".join(_fact(one) for one in (each["facts"][0], each["together_with"]) if one)
    if others := each["facts"][1:]:
        with_ += f" (or {', '.join(map(_fact, others[:NAMED]))}: cannot be told apart)"
    low, high = _times(each["rate_ratio_low"]), _times(each["rate_ratio_high"])
    return [
        shown(each["signature"]),
        shown(with_),
        f"{_times(each['rate_ratio'])} times (95 % interval {low} to {high})",
        shown(each["status"]),
        f"{each['observed']} of {each['crashes']}, {each['expected']:.1f} expected",
        shown("; ".join(each["counter_evidence"])),
    ]


def _lemon(each: Mapping[str, Any]) -> list[str]:
    name = each["name"] if each["kind"] == "node" else f"GPU {each['name']}, last in {each['node']}"
    return [
        shown(name),
        str(each["incidents"]),
        f"{each['expected']:.2f}",
        f"{each['jobs']} jobs, {each['days']} days",
        shown(", ".join(each["signatures"])),
    ]


def _exposed(each: Mapping[str, Any]) -> list[str]:
    more = each["count"] - NAMED
    named = ", ".join(each["nodes"][:NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return [
        shown(each["because"]),
        shown(each["signature"]),
        shown(each["status"]),
        f"{each['count']:,}",
        f"{each['expected_7d']:.1f}",
        shown(named),
    ]


def _fact(one: Mapping[str, str]) -> str:
    return f"{one['fact']}={one['value']}"


def _times(ratio: float | None) -> str:
    return "∞" if ratio is None else f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    more = len(rows) - SHOWN
    return table(heads, rows[:SHOWN]) + (f"\n<p>And {more:,} more, in the JSON." if more > 0 else "")


def _reasons(head: str, reasons: Sequence[str]) -> str:
    return f"<p>{head}\n<ul>{''.join(f'<li>{shown(reason)}' for reason in reasons)}</ul>" if reasons else ""


def age(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"
