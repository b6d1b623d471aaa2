"""A signature that never crashed with a value, though many crashes were expected."""

from __future__ import annotations

from exporter.fleet.statistics.correlation import correlate

from .small import WEEK, fleet


def test_a_crash_that_is_never_seen_with_a_value_is_a_finding_without_an_experiment() -> None:
    facts = [(f"n{i:03}", 0.0, {"kernel_release": "abc"[i % 3]}) for i in range(600)]
    incidents = [(f"n{i:03}", 0.1 + i / 100, "crash", str(i)) for i in range(0, 600, 3)]
    incidents += [(f"n{i:03}", 0.1 + i / 100, "crash", str(i)) for i in range(1, 600, 3)]
    found = [f for f in correlate(fleet(facts, incidents), WEEK).findings if f.direction == "fewer"]

    assert [(str(f.facts[0]), f.ratio.value, f.next_step) for f in found] == [("kernel_release=c", 0.0, "")]
