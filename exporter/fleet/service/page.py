"""The fleet service's page: findings, lemons, exposed nodes, and how far to trust them. Every text in it may be hostile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from exporter.fleet.results.labels import NO_MODEL, UNITS, clipped, ratio, sure
from exporter.fleet.service.status import FleetStatus
from exporter.web.page import document, moment, shown, table

SHOWN = 50  # rows of a table; the API has all
NAMED = 5  # nodes named in a row
JSON = ("correlation", "findings", "lemons", "exposed")


def page(standing: FleetStatus, source: str, not_ready: Sequence[str], telemetry_path: str, *, now: float) -> str:
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


def _trust(standing: FleetStatus, now: float) -> str:
    """How old the result is, whether the last refresh failed, and whether anything was missing."""
    running = " A refresh is running." if standing.running else ""
    failed = ""
    if standing.failure is not None:
        why = f"{standing.failure.reason}: {standing.failure.told}"
        failed = f"\n<p>The last refresh failed at {moment(standing.failure.time)} UTC ({shown(why)})."
        failed += " What follows is of the one before." if standing.result is not None else ""
    if standing.result is None:
        return f"No result yet.{running}{failed}"
    complete = (
        "Nothing was missing."
        if standing.result["complete"]
        else "Incomplete: an empty result does not mean that all is well."
    )
    return (
        f"The result is {age(now - standing.result_time)} old ({moment(standing.result_time)} UTC).{running}\n"
        f"<p>{complete}{failed}"
    )


def _result(found: Mapping[str, Any]) -> list[str]:
    window = found["window"]
    start, end = (moment(datetime.fromisoformat(window[edge]).timestamp()) for edge in ("start", "end"))
    head = (
        f"<p>{start} to {end} UTC: {found['nodes']:,} nodes, {window['exposure_hours']:,.0f} {UNITS[window['exposure']]}; "
        f"{found['incidents']:,} incidents, {found['origins']:,} of them first in their job; {found['tests']:,} tests."
    )
    return [
        head,
        _reasons("What was missing, or is less exact:", [gap["what"] for gap in found["gaps"]]),
        *_section("Findings", FINDING, map(_finding, found["findings"]), even_empty=True),
        *_section("Places: no configuration; look at power, cooling, cabling", FINDING, map(_finding, found["locations"])),
        *_section(
            "Changes of a fact: nodes against themselves, and nodes without it",
            ("Fact", "Nodes", "Crash", "As frequent after it", "Crashes before, after, expected after"),
            map(_change, found["changes"]),
        ),
        *_section(
            "Exposed: nodes that meet it and have not crashed",
            ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
            map(_exposed, found["exposed"]),
            even_empty=True,
        ),
        *_section(
            "Lemons: far worse than their like, whatever their facts",
            ("Node or GPU", "Incidents", "Usual", "Jobs, days", "How sure", "Crashes"),
            map(_lemon, found["lemons"]),
            even_empty=True,
        ),
        *_section(
            "Not enough data",
            ("Crash", "Crashed nodes", "What it would take"),
            map(_not_enough, sorted(found["not_enough_data"], key=lambda each: -each["crashes"])),
        ),
        *_section("Reliability", ("GPU", "Crashes", "GPU-hours", "GPU-hours a crash"), map(_reliability, found["reliability"])),
    ]  # fmt: skip


FINDING = ("Crash", "With", "As frequent", "Status", "Crashed nodes with it", "Against", "Next")


def _finding(each: Mapping[str, Any]) -> list[str]:
    with_ = " and ".join(_fact(one) for one in (each["facts"][0], each["together_with"]) if one)
    if others := each["facts"][1:]:
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        with_ += f" (or {', '.join(map(_fact, others[:NAMED]))}{more}: cannot be distinguished)"
    told = "another window showed it too" if each["status"] == "confirmed" else "a later window has to show it again"
    watch = f"watch, or change one of these facts on, {', '.join(each['tie_breakers'])}" if each["tie_breakers"] else ""
    examples = f"look at {', '.join(each['examples'])}" if each["examples"] else ""
    return [
        shown(each["signature"]),
        shown(with_),
        _times(each),
        f"{shown(each['status'])}: {told}",
        f"{each['observed']} of {each['crashes']}, {each['expected']:.1f} expected",
        shown("; ".join(each["counter_evidence"])),
        shown("; ".join(filter(None, (watch, examples)))),
    ]


def _change(each: Mapping[str, Any]) -> list[str]:
    return [
        shown(f"{each['fact']} {clipped(each['before'])} → {clipped(each['after'])}"),
        f"{each['nodes']:,}",
        shown(each["signature"]),
        _times(each),
        f"{each['crashes_before']:,}, {each['crashes_after']:,}, {each['expected_after']:.1f}",
    ]


def _lemon(each: Mapping[str, Any]) -> list[str]:
    name = each["name"] if each["kind"] == "node" else f"GPU {each['name']}, last in {each['node']}"
    return [
        shown(name),
        str(each["incidents"]),
        ratio(each["expected"]),
        f"{each['jobs']} jobs, {each['days']} days",
        sure(each["probability"]),
        shown(", ".join(each["signatures"])),
    ]


def _not_enough(each: Mapping[str, Any]) -> list[str]:
    lead = ""
    if each["lead"]:
        lead = f"; lead: {_fact(each['lead'])}, {each['observed']} crashes where {each['expected']:.1f} were expected"
    return [shown(each["signature"]), str(each["crashes"]), shown(each["what"] + lead)]


def _reliability(each: Mapping[str, Any]) -> list[str]:
    low, high = (("∞" if hours is None else f"{hours:,.0f}") for hours in (each["mtbf_low"], each["mtbf_high"]))
    between = "none seen" if not each["incidents"] else f"{each['mtbf_gpu_hours']:,.0f} (95 % interval {low} to {high})"
    model = NO_MODEL if each["gpu_model"] == "unknown" else each["gpu_model"]
    return [shown(model), f"{each['incidents']:,}", f"{each['gpu_hours']:,.0f}", between]


def _exposed(each: Mapping[str, Any]) -> list[str]:
    more = each["count"] - NAMED
    named = ", ".join(each["nodes"][:NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return [
        shown(clipped(each["because"])),
        shown(each["signature"]),
        shown(each["status"]),
        f"{each['count']:,}",
        f"{each['expected_7d']:.1f}",
        shown(named),
    ]


def _fact(one: Mapping[str, str]) -> str:
    return clipped(f"{one['fact']}={one['value']}")


def _times(each: Mapping[str, Any]) -> str:
    low, high = ratio(each["rate_ratio_low"]), ratio(each["rate_ratio_high"])
    return f"{ratio(each['rate_ratio'])} times (95 % interval {low} to {high})"


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, even_empty: bool = False) -> list[str]:
    told = list(rows)
    if not told and not even_empty:
        return []
    more = f"\n<p>And {len(told) - SHOWN:,} more, in the JSON." if len(told) > SHOWN else ""
    return [f"<h2>{title}</h2>", table(heads, told[:SHOWN]) + more]


def _reasons(head: str, reasons: Sequence[str]) -> str:
    return f"<p>{head}\n<ul>{''.join(f'<li>{shown(reason)}' for reason in reasons)}</ul>" if reasons else ""


def age(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"
