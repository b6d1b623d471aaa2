"""What to do next: what takes minutes first, then what takes days."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.core.text.phrases import counted
from exporter.fleet.report.wording import conditions, safe
from exporter.fleet.results.labels import clipped
from exporter.fleet.review.values import Action, Overview

MOST = 6
FINDINGS, CAUSES, BAD = 3, 2, 3


def next_steps(found: Overview) -> list[str]:
    """A few imperative sentences, with numbers."""
    correlation = found.correlation or {}
    out: list[str] = []
    if bad := [each for each in correlation.get("lemons", ()) if each["kind"] == "node"]:
        names = ", ".join(safe(each["name"], 60) for each in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        out.append(f"Drain and test {counted(len(bad), 'unusually bad node')}: {names}{more}.")
    if found.silent:
        out.append(f"Find out why {counted(len(found.silent), 'node')} sent nothing for a day.")
    out += [
        f"{conditions(each)}: {safe(step, 400)}"
        for each in correlation.get("findings", ())[:FINDINGS]
        if (step := step_of(each))
    ]
    if new := [each for each in found.unrecognised if each.is_new]:
        out.append(f"Begin a signature for {counted(len(new), 'new unrecognised crash', 'new unrecognised crashes')}.")
    out += [
        safe(f"{each.title}: {each.remediation}", 300)
        for each in found.causes[:CAUSES]
        if each.incidents and each.remediation
    ]
    return list(dict.fromkeys(out))[:MOST]


def carried_over(found: Overview, before: Overview) -> tuple[Action, ...]:
    """What the window before asked for, and whether this one still shows the reason. Whether anybody acted is not known."""
    crashed = {each.id for each in found.causes if each.incidents}
    findings = {_key(each) for each in (found.correlation or {}).get("findings", ())}
    bad = {each["name"] for each in (found.correlation or {}).get("lemons", ())}
    earlier = before.correlation or {}
    out = [
        Action(what=f"{conditions(each)}: {safe(step, 400)}", is_open=_key(each) in findings)
        for each in earlier.get("findings", ())[:FINDINGS]
        if (step := step_of(each))
    ]
    out += [
        Action(what=safe(f"{each.title}: {each.remediation}", 300), is_open=each.id in crashed)
        for each in before.causes[:CAUSES]
        if each.incidents and each.remediation
    ]
    out += [
        Action(what=f"Drain and test {safe(each['name'], 60)}.", is_open=each["name"] in bad)
        for each in earlier.get("lemons", ())[:BAD]
        if each["kind"] == "node"
    ]
    return tuple(out)


def _key(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """What stays the same of a finding from window to window."""
    lead = finding["facts"][0]
    return finding["signature"], finding.get("direction"), lead["fact"], lead["value"]


def step_of(finding: Mapping[str, Any]) -> str:
    """What a finding asks for; of a rollout that made crashes more frequent, to hold it."""
    rollout = finding.get("rollout")
    if finding.get("next_step") or not rollout or finding.get("direction") == "fewer":
        return str(finding.get("next_step") or "")
    lead = finding["facts"][0]
    return (
        f"hold the rollout of {clipped(lead['value'])}, and go back to {clipped(rollout['before'])} on some of the "
        f"{rollout['nodes']:,} changed nodes; if the finding is true, their crashes stop"
    )
