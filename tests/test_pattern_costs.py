"""What patterns cost is told, the dearest first. A clock that counts its readings stands for time."""

from __future__ import annotations

from exporter.pattern_costs import Cost, costs, slow
from tests.helpers import catalogue_of


def test_every_pattern_and_excuse_has_a_cost_and_the_gates_that_lead_to_it() -> None:
    catalogue = catalogue_of(r"""
signatures: [{id: gpu_fault, patterns: ['GPU fault', 'ring gone'], unless: ['in a test'], examples: ['a GPU fault']}]
echoes: [{id: typed, patterns: ['^\$ ']}]
""")
    found = {(cost.id, cost.pattern): cost.gates for cost in costs(catalogue)}
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
    measured = costs(catalogue, clock=lambda: next(ticks) * 1e-6)
    assert measured[0].id == "endless"
    assert [cost.id for cost in slow(measured)] == ["endless"]


def test_patterns_that_cost_alike_are_none_of_them_slow() -> None:
    assert slow([Cost("a", "x", 1.0, 0.0, ()), Cost("b", "y", 1.1, 0.0, ())]) == []
    assert slow([]) == []
