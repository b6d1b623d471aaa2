"""Wording and number formats that the terminal and the pages share. Imports nothing heavy, for the fleet service."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

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


def expected_count(expected: float) -> str:
    """A number of expected crashes as people write it; small ones keep one digit, so that none reads as zero."""
    if expected >= 10:
        return f"{expected:,.0f}"
    return f"{expected:.1f}" if expected >= 0.1 else f"{max(expected, 1e-4):.1g}"


def sure(probability: float) -> str:
    """A probability as text; at most "over 99% sure"."""
    return "over 99% sure" if probability > 0.99 else f"{probability * 100:.0f}% sure"


def clipped(text: str) -> str:
    """A text cut in its middle to a readable length; versions differ at their ends."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 41]}…{text[-40:]}"


def finding_id(finding: Mapping[str, Any]) -> str:
    """The permanent name of a finding: its crash, and a digest of its facts."""
    key = json.dumps([finding["signature"], finding["facts"][0], finding.get("together_with")], sort_keys=True)
    return f"{finding['signature'][:60]}-{hashlib.blake2b(key.encode(errors='replace'), digest_size=5).hexdigest()}"
