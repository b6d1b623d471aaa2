"""What one result of the correlator must not say beside something else that it says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.fleet.statistics.associations import is_hardware
from exporter.fleet.statistics.exposure import DAY
from exporter.fleet.statistics.findings import Correlation, Finding

WEEK = 7 * DAY


def contradictions(result: Correlation) -> list[str]:
    """Sentences that contradict each other, or the numbers beside them."""
    out = [f"{finding.signature} {finding.facts[0]}: {what}" for finding in result.findings for what in _of(finding)]
    said = [(f.signature, f.facts[0], f.direction) for f in result.findings if f.rollout is None]
    out += [f"{one}: said twice" for one in set(said) if said.count(one) > 1]
    out += [
        f"{signature} {fact}: both more and fewer"
        for signature, fact, direction in said
        if direction == "more" and (signature, fact, "fewer") in said
    ]
    for row in result.not_enough_data:
        needs = re.match(r"needs ([\d,]+) ", row.message)
        if needs and int(needs[1].replace(",", "")) <= row.crashes:
            out.append(f"{row.signature}: {row.crashes} crashed nodes, {row.message}")
        if row.lead is not None and row.needed == row.crashes + 1:
            out.append(f"{row.signature}: always one more is needed")
    out += [
        f"{b.signature}: began within {(b.last - b.first) / DAY:.0f} days"
        for b in result.beginnings
        if b.last - b.first > WEEK
    ]
    out += [
        f"{r.gpu_model}: {r.mtbf} hours, outside its interval"
        for r in result.reliability
        if r.incidents and not r.mtbf_low <= r.mtbf <= r.mtbf_high
    ]
    return out


def _of(finding: Finding) -> Iterator[str]:
    ratio, facts = finding.ratio, [fact.fact for fact in finding.facts]
    if not ratio.low <= ratio.value <= ratio.high:
        yield f"{ratio} is outside its interval"
    if finding.status == "candidate" and (ratio.value > 1) != (finding.direction == "more"):
        yield f"{finding.direction}, {ratio.value:.2g} times"
    if finding.rollout is None and len(set(facts)) < len(facts):
        yield f"two values of one fact: {', '.join(map(str, finding.facts))}"
    if finding.next_step and (finding.direction == "fewer" or is_hardware(facts[0])):
        yield f"cannot be done: {finding.next_step}"
    rates = finding.rates
    apart = rates is not None and (rates.ratio.low > ratio.high or rates.ratio.high < ratio.low)
    if apart and not any("crash again" in text for text in finding.counter_evidence):
        yield "two intervals that have nothing in common, and no word of why"
    if finding.observed > finding.crashes or finding.expected > finding.crashes:
        yield "more crashes with it than in all"
