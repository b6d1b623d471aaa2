"""What to do next, in the order of what it saves."""

from __future__ import annotations

from exporter.fleet.report.wording import conditions, counted, safe
from exporter.fleet.review.values import Overview

MOST = 6
FINDINGS, CAUSES = 3, 2


def next_steps(found: Overview) -> list[str]:
    """A few imperative sentences, with numbers."""
    correlation = found.correlation or {}
    out = [
        f"{conditions(each)}: {safe(each['next_step'], 400)}"
        for each in correlation.get("findings", ())[:FINDINGS]
        if each["next_step"]
    ]
    out += [
        safe(f"{each.title}: {each.remediation}", 300)
        for each in found.causes[:CAUSES]
        if each.incidents and each.remediation
    ]
    if bad := [each for each in correlation.get("lemons", ()) if each["kind"] == "node"]:
        names = ", ".join(safe(each["name"], 60) for each in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        out.append(f"Drain and test {counted(len(bad), 'unusually bad node')}: {names}{more}.")
    if new := [each for each in found.unrecognised if each.is_new]:
        out.append(f"Begin a signature for {counted(len(new), 'new unrecognised crash', 'new unrecognised crashes')}.")
    if found.silent:
        out.append(f"Find out why {counted(len(found.silent), 'node')} sent nothing for a day.")
    return list(dict.fromkeys(out))[:MOST]
