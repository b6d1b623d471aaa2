"""Wording and number formats that terminal, report and pages share."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from exporter.fleet.statistics.findings import FactValue, Finding
from exporter.fleet.statistics.ratio import Ratio

LEAST = 0.05  # crashes expected in 7 days: rows of less are left out
LONGEST = 120  # characters of a fact and its value; the JSON has all of them
UNITS = {  # of `exposure` in a result's window
    "gpu_busy_hours": "GPU-busy hours",
    "observed_hours": "hours watched (GPU-busy hours are not known: what is busier looks worse)",
    "assumed_hours": "hours, assumed (no heartbeats)",
}

NO_MODEL = "nodes without a known GPU"


def ratio(value: float | None) -> str:
    """A rate ratio to two digits, as people write it; None is one without bound."""
    if value is None or value == float("inf"):
        return "∞"
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"  # 9.97 is 10 either way


def interval(of: Ratio) -> str:
    """`4.1 to 9.5`."""
    return f"{ratio(of.low)} to {ratio(of.high)}"


def times(of: Ratio) -> str:
    """`6.2 times as frequent`."""
    if of.value == float("inf"):  # of the crashes that were compared, all were with it
        return f"at least {ratio(of.low)} times as frequent"
    return f"{ratio(of.value)} times as frequent" if of.value else "never seen"


def times_and_interval(of: Ratio) -> str:
    """`6.2 times as frequent (95% interval 4.1 to 9.5)`."""
    return f"{times(of)} (95% interval {interval(of)})"


def expected_count(expected: float) -> str:
    """A number of expected crashes as people write it; small ones keep one digit, so that none reads as zero."""
    if expected >= 10:
        return f"{expected:,.0f}"
    return f"{expected:.1f}" if expected >= 0.1 else f"{max(expected, 1e-4):.1g}"


def sure(probability: float) -> str:
    """A probability as text; at most "over 99% sure"."""
    return "over 99% sure" if probability > 0.99 else f"{probability * 100:.0f}% sure"


def hours(value: float) -> str:
    """GPU-hours between crashes; without a crash, ∞."""
    return "∞" if value == float("inf") else f"{value:,.0f}"


def clipped(text: str) -> str:
    """A text cut in its middle to a readable length; versions differ at their ends."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 41]}…{text[-40:]}"


def fact(of: FactValue) -> str:
    """`driver_version 580.95.05`."""
    return clipped(f"{of.fact} {of.value}")


def changed_fact(facts: Sequence[FactValue], before: str) -> str:
    """`driver_version 570.133.20 → 580.95.05`: the first of the facts that changed together."""
    return f"{clipped(facts[0].fact)} {clipped(before)} → {clipped(facts[0].value)}"


def conditions(finding: Finding) -> tuple[FactValue, ...]:
    """The facts of a finding, without those that cannot be distinguished from them."""
    return tuple(filter(None, (finding.facts[0], finding.together_with)))


def finding_id(finding: Finding) -> str:
    """The permanent name of a finding: its crash, and a digest of its facts."""
    facts = [one and asdict(one) for one in (finding.facts[0], finding.together_with)]
    key = json.dumps([finding.signature, *facts], sort_keys=True)
    return f"{finding.signature[:60]}-{hashlib.blake2b(key.encode(errors='replace'), digest_size=5).hexdigest()}"
