"""The page of findings: findings, outlier nodes, nodes at risk, and how far to trust them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from exporter.fleet.results.labels import LEAST, NO_MODEL, UNITS, clipped, ratio, sure
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.overview import forest_of
from exporter.web.page import utc

SHOWN = 50  # rows of a table; the API has all
NAMED = 5  # nodes named in a row


def findings_page(frame: Frame) -> Response:
    """The page of all findings."""
    standing = frame.view.standing
    result = standing.result
    values: dict[str, Any] = {"sub": "No result yet.", "sections": []}
    if result is not None:
        found = _result(result)
        told = "Nothing was missing." if result["complete"] else (
            "Incomplete: an empty result does not mean that all is well.")  # fmt: skip
        old = age(time.time() - standing.result_time)
        values = {
            "sub": f"{found['start']:%d %b %Y %H:%M} to {found['end']:%d %b %Y %H:%M} UTC: {found['summary']} {told} "
                   f"The result is {old} old.",
            "sections": found["sections"],
        }  # fmt: skip
        if gaps := [[gap["what"]] for gap in result["gaps"]]:
            values["sections"] = [*found["sections"], _section("Missing or less exact", ("What",), gaps)]
    findings = list(result["findings"]) if result else []
    return frame.page(
        "findings.html", f"Findings: {len(findings)}" if result else "Findings", result=result, max_rows=SHOWN,
        forest=forest_of(frame, findings[:SHOWN]), **values,
    )  # fmt: skip


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    window = found["window"]
    sections = [
        _section("Findings", FINDING, map(_finding, found["findings"]), even_empty=True),
        _section("Places (not configuration): check power, cooling and cabling", FINDING, map(_finding, found["locations"])),
        _section(
            "Effects of rollouts: changed nodes against nodes not changed yet",
            ("Fact", "Nodes", "Crash", "As frequent after it", "Crashes before, after, expected after"),
            map(_change, found["changes"]),
        ),
        _section(
            "Rollouts in the window",
            ("Fact", "Nodes", "Never changed", "Crashed within two weeks before, expected", "Verdict"),
            map(_rollout, found.get("rollouts", ())),
        ),
        _section(
            "Nodes at risk that have not crashed yet",
            ("Because of", "Crash", "Status", "Nodes", "Crashes expected in 7 days", "Some of them"),
            (_exposed(each) for each in found["exposed"] if each["expected_7d"] >= LEAST),
            even_empty=True,
        ),
        _section(
            "Unusually bad nodes: far worse than similar ones, whatever their facts",
            ("Node or GPU", "Incidents", "Usual", "Jobs, days", "How sure", "Crashes"),
            map(_lemon, found["lemons"]),
            even_empty=True,
        ),
        _section(
            "Not enough data",
            ("Crash", "Crashed nodes", "What it would take"),
            map(_not_enough, sorted(found["not_enough_data"], key=lambda each: -each["crashes"])),
        ),
        _section("Reliability", ("GPU", "Crashes", "GPU-hours", "GPU-hours a crash"), map(_reliability, found["reliability"])),
    ]  # fmt: skip
    return {
        "start": utc(datetime.fromisoformat(window["start"]).timestamp()),
        "end": utc(datetime.fromisoformat(window["end"]).timestamp()),
        "summary": (
            f"{found['nodes']:,} nodes, {window['exposure_hours']:,.0f} {UNITS[window['exposure']]}; "
            f"{found['incidents']:,} incidents, {found['origins']:,} of them first in their job; "
            f"{found['tests']:,} tests."
        ),
        "sections": sections,
    }


FINDING = ("Crash", "With", "As frequent", "Status", "Crashed nodes with it", "Against", "Next")


def _finding(each: Mapping[str, Any]) -> list[str]:
    with_ = " and ".join(_fact(one) for one in (each["facts"][0], each["together_with"]) if one)
    if each.get("kind") == "rollout":
        low, high = (max(each["rollout"][f"onset_hours_{end}"], 0.0) for end in ("low", "high"))
        with_ = f"rollout of {with_}, began {low:.0f} to {high:.0f} h after the change"
    if others := each["facts"][1:]:
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        with_ += f" (or {', '.join(map(_fact, others[:NAMED]))}{more}: cannot be distinguished)"
    told = "another window showed it too" if each["status"] == "confirmed" else "a later window has to show it again"
    watch = f"watch, or change one of these facts on, {', '.join(each['tie_breakers'])}" if each["tie_breakers"] else ""
    examples = f"look at {', '.join(each['examples'])}" if each["examples"] else ""
    return [
        each["signature"],
        with_,
        _times(each),
        f"{each['status']}: {told}",
        f"{each['observed']} of {each['crashes']}, {each['expected']:.1f} expected",
        "; ".join(each["counter_evidence"]),
        "; ".join(filter(None, (watch, examples))),
    ]


def _change(each: Mapping[str, Any]) -> list[str]:
    return [
        f"{each['fact']} {clipped(each['before'])} → {clipped(each['after'])}",
        f"{each['nodes']:,}",
        each["signature"],
        _times(each),
        f"{each['crashes_before']:,}, {each['crashes_after']:,}, {each['expected_after']:.1f}",
    ]


VERDICTS = {
    "tested": "tested",
    "follows_crashes": "not judged: the changes follow crashes (repairs)",
    "no_controls": "not judged: no control group",
}


def _rollout(each: Mapping[str, Any]) -> list[str]:
    return [
        f"{', '.join(map(_fact, each['facts'][:NAMED]))} (before: {clipped(each['before'])})",
        f"{each['nodes']:,}",
        f"{each['controls']:,}",
        f"{each['crashed_before']:.0%}, {each['crashed_before_expected']:.0%}",
        VERDICTS[each["verdict"]],
    ]


def _lemon(each: Mapping[str, Any]) -> list[str]:
    name = each["name"] if each["kind"] == "node" else f"GPU {each['name']}, last in {each['node']}"
    return [
        name,
        str(each["incidents"]),
        ratio(each["expected"]),
        f"{each['jobs']} jobs, {each['days']} days",
        sure(each["probability"]),
        ", ".join(each["signatures"]),
    ]


def _not_enough(each: Mapping[str, Any]) -> list[str]:
    lead = ""
    if each["lead"]:
        lead = f"; lead: {_fact(each['lead'])}, {each['observed']} crashes where {each['expected']:.1f} were expected"
    return [each["signature"], str(each["crashes"]), each["what"] + lead]


def _reliability(each: Mapping[str, Any]) -> list[str]:
    low, high = (("∞" if hours is None else f"{hours:,.0f}") for hours in (each["mtbf_low"], each["mtbf_high"]))
    between = "none seen" if not each["incidents"] else f"{each['mtbf_gpu_hours']:,.0f} (95 % interval {low} to {high})"
    model = NO_MODEL if each["gpu_model"] == "unknown" else each["gpu_model"]
    return [model, f"{each['incidents']:,}", f"{each['gpu_hours']:,.0f}", between]


def _exposed(each: Mapping[str, Any]) -> list[str]:
    more = each["count"] - NAMED
    named = ", ".join(each["nodes"][:NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return [
        clipped(each["because"]),
        each["signature"],
        each["status"],
        f"{each['count']:,}",
        ratio(each["expected_7d"]),
        named,
    ]


def _fact(one: Mapping[str, str]) -> str:
    return clipped(f"{one['fact']}={one['value']}")


def _times(each: Mapping[str, Any]) -> str:
    low, high = ratio(each["rate_ratio_low"]), ratio(each["rate_ratio_high"])
    return f"{ratio(each['rate_ratio'])} times (95 % interval {low} to {high})"


def _section(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, even_empty: bool = False
) -> dict[str, Any]:
    return {"title": title, "heads": heads, "rows": list(rows), "even_empty": even_empty}


def age(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "less than two minutes"
