"""What patterns cost is told, the dearest first. A clock that counts its readings stands for time."""

from __future__ import annotations

from exporter.core.authoring.pattern_costs import PatternCost, Usual, costs, slow
from tests.support.matches import catalogue_of


def test_every_pattern_and_excuse_has_a_cost_and_the_gates_that_lead_to_it() -> None:
    catalogue = catalogue_of(r"""
signatures: [{id: gpu_fault, patterns: ['GPU fault', 'ring gone'], unless: ['in a test'], examples: ['a GPU fault']}]
echoes: [{id: typed, patterns: ['^\$ ']}]
""")
    found = {(cost.id, cost.pattern): cost.gates for cost in costs(catalogue, lambda: 0.0)}
    assert found == {
        ("gpu_fault", "GPU fault"): ("GPU fault",),
        ("gpu_fault", "ring gone"): ("ring gone",),
        ("gpu_fault", "in a test"): (),
        ("typed", r"^\$ "): (),
    }


def test_a_pattern_that_runs_out_of_time_comes_first_and_is_named_slow() -> None:
    catalogue = catalogue_of(r"""
signatures:
  - {id: endless, patterns: ['(?:a|a)+;GPU fault'], examples: ['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!;GPU fault']}
  - {id: quick, patterns: ['GPU fault', 'ring gone', 'bus lost']}
""")
    ticks = iter(range(1_000_000))
    measured = costs(catalogue, lambda: next(ticks) * 1e-6)
    assert measured[0].id == "endless"
    ((cost, what),) = slow(measured, Usual.of(measured))
    assert (cost.id, "to try on a line" in what) == ("endless", True)


def test_patterns_that_cost_alike_are_none_of_them_slow() -> None:
    alike = [PatternCost("a", "x", 1.0, 0.0, ()), PatternCost("b", "y", 1.1, 0.0, ())]
    assert slow(alike, Usual.of(alike)) == []
    assert slow([], Usual.of([])) == []


def test_a_pattern_whose_literal_other_lines_hold_is_named_with_it() -> None:
    others = "".join(
        f"  - {{id: ring_{n}, patterns: ['ring {n} gone'], examples: ['the ring {n} gone']}}\n" for n in range(20)
    )
    catalogue = catalogue_of(
        f"signatures:\n  - {{id: common, patterns: ['the \\d'], examples: ['the 4 steps']}}\n{others}"
    )
    measured = costs(catalogue, lambda: 0.0)
    ((cost, what),) = slow(measured, Usual.of(measured))
    assert (cost.id, cost.led) == ("common", 1.0)
    assert what == (
        "is tried on 100% of other signatures' lines, for they hold one of 'the '; write more of the line into the pattern,"
        " as a literal"
    )
