"""What to do next: what stops crashes first, then what takes minutes, then what takes days."""

from typing import NamedTuple

from exporter.core.text.phrases import counted
from exporter.fleet.report.wording import named, safe
from exporter.fleet.results.labels import clipped, finding_id
from exporter.fleet.review.review_contents import NOT_CORRELATED, Action, Review
from exporter.fleet.statistics.findings import Finding

MOST = 6
FINDINGS, CAUSES, BAD = 3, 2, 3


class Advice(NamedTuple):
    """An imperative sentence, and the page of the fleet service that shows whom it concerns: its kind and name."""

    text: str
    kind: str
    name: str = ""


def next_steps(review: Review) -> list[Advice]:
    """The few steps that matter most: rollouts to hold and nodes to drain come first."""
    correlation = review.correlation or NOT_CORRELATED
    of_findings = [
        (bool(finding.rollout), Advice(f"{named(finding)}: {safe(step, 400)}", "findings", finding_id(finding)))
        for finding in correlation.findings[:FINDINGS]
        if (step := step_of(finding))
    ]
    out = [step for is_rollout, step in of_findings if is_rollout]
    if bad := [node for node in correlation.outlier_nodes if node.kind == "node"]:
        names = ", ".join(safe(node.name, 60) for node in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        page = ("nodes", bad[0].name) if len(bad) == 1 else ("findings",)
        out.append(Advice(f"Drain and test {counted(len(bad), 'unusually bad node')}: {names}{more}.", *page))
    if review.silent:
        silent = counted(len(review.silent), "node")
        out.append(Advice(f"Find out why {silent} sent nothing for a day.", "quality"))
    out += [step for is_rollout, step in of_findings if not is_rollout]
    if new := [crash for crash in review.unrecognised if crash.is_new]:
        crashes = counted(len(new), "new unrecognised crash", "new unrecognised crashes")
        out.append(Advice(f"Begin a signature for {crashes}.", "unknowns"))
    out += [
        Advice(safe(f"{cause.title}: {cause.remediation}", 300), "causes", cause.id)
        for cause in review.causes[:CAUSES]
        if cause.incidents and cause.remediation
    ]
    return list(dict.fromkeys(out))[:MOST]


def carried_over(review: Review, before: Review) -> tuple[Action, ...]:
    """What the window before asked for, and whether this one still shows the reason. Whether anybody acted is not known."""
    crashed = {cause.id for cause in review.causes if cause.incidents}
    now, earlier = review.correlation or NOT_CORRELATED, before.correlation or NOT_CORRELATED
    findings = {_key(finding) for finding in now.findings}
    bad = {node.name for node in now.outlier_nodes}
    out = [
        Action(what=f"{named(finding)}: {safe(step, 400)}", is_open=_key(finding) in findings)
        for finding in earlier.findings[:FINDINGS]
        if (step := step_of(finding))
    ]
    out += [
        Action(what=safe(f"{cause.title}: {cause.remediation}", 300), is_open=cause.id in crashed)
        for cause in before.causes[:CAUSES]
        if cause.incidents and cause.remediation
    ]
    out += [
        Action(what=f"Drain and test {safe(node.name, 60)}.", is_open=node.name in bad)
        for node in earlier.outlier_nodes[:BAD]
        if node.kind == "node"
    ]
    return tuple(out)


def _key(finding: Finding) -> tuple[object, ...]:
    """What stays the same of a finding from window to window."""
    return finding.signature, finding.direction, finding.facts[0]


def step_of(finding: Finding) -> str:
    """What a finding asks for; of a rollout that made crashes more frequent, to hold it."""
    if finding.next_step or not finding.rollout or finding.direction == "fewer":
        return finding.next_step
    rollout = finding.rollout.rollout
    return (
        f"hold the rollout of {clipped(finding.facts[0].value)}, and go back to {clipped(rollout.before)} on some of the "
        f"{rollout.nodes:,} changed nodes; if the finding is true, their crashes stop"
    )
