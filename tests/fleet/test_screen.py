"""The screen against the naive way of counting, and what explanations make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from exporter.demo.simulator import FleetPlan, Planted, simulate
from exporter.fleet.input.catalogue_conditions import with_locations
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.design import ALL_ALIKE
from exporter.fleet.statistics.discover import discover
from exporter.fleet.statistics.prepare import prepare

from .small import WEEK, fleet

TWO = (("color", (("red", 0.2), ("blue", 0.8))),)
RED = Planted(signature="crash", facts=(("color", "red"),), ratio=12)


def test_in_one_stratum_and_day_the_test_is_the_binomial_tail_of_the_share_of_exposure() -> None:
    facts = [(f"n{i:02}", 0, {"color": "red" if i < 10 else "blue", "size": str(i % 4)}) for i in range(40)]
    incidents = [(f"n{i:02}", 0.999, "crash", str(i)) for i in (0, 1, 2, 3, 4, 5, 20, 30)]
    prepared = prepare(fleet(facts, incidents, days=1), replace(WEEK, end=WEEK.start + 86400))
    red = next(i for i, v in enumerate(prepared.design.values) if v.text == "red")
    label = prepared.strata(0, level=ALL_ALIKE)
    counts = screen.count(prepared.design, screen.exposure_table(prepared.design, label), prepared.units[0])

    assert counts.observed[red] == 6
    assert counts.expected[red] == pytest.approx(2.0, rel=0.01)
    assert screen.p_values(counts, "more")[red] == pytest.approx(stats.binom.sf(5, 8, 0.25), rel=0.05)


def test_the_tables_way_of_counting_agrees_with_counting_one_column() -> None:
    observed = simulate(FleetPlan(nodes=300, rate=200, reimaged=0.5, multi_node=0.2, seed=3)).observed
    prepared = prepare(observed, WEEK)
    label = prepared.strata(0, level=ALL_ALIKE)
    exposure = screen.exposure_table(prepared.design, label)
    for signature, units in list(prepared.units.items())[:3]:
        counts = screen.count(prepared.design, exposure, units)
        for value in range(0, len(prepared.design.values), 7):
            one = screen.cells(prepared.design, units, strata=label, column=prepared.design.column(value)).counts()
            assert one.observed[0] == counts.observed[value], (signature, value)
            assert one.expected[0] == pytest.approx(counts.expected[value])


def test_a_planted_cause_is_found_and_said_first() -> None:
    fleet_ = simulate(FleetPlan(nodes=1500, rate=20, planted=(RED,), fixed=TWO, seed=1))
    found = correlate(fleet_.observed, fleet_.window)

    assert [(f.signature, str(f.facts[0]), f.direction) for f in found.findings] == [("crash", "color=red", "more")]
    assert found.findings[0].ratio.low < 12 < found.findings[0].ratio.high
    assert found.findings[0].status == "candidate"


def test_the_other_half_of_a_cause_is_no_second_finding() -> None:
    """color=blue is protective only because red is not."""
    fleet_ = simulate(FleetPlan(nodes=1500, rate=20, planted=(RED,), fixed=TWO, seed=2))

    assert all(str(f.facts[0]) != "color=blue" for f in correlate(fleet_.observed, fleet_.window).findings)


def test_a_protective_fact_is_found() -> None:
    green = Planted(signature="crash", facts=(("color", "green"),), ratio=0.02)
    kinds = (("color", (("green", 0.3), ("red", 0.35), ("blue", 0.35))),)
    fleet_ = simulate(FleetPlan(nodes=4000, rate=40, planted=(green,), fixed=kinds, seed=1, signatures=3))
    found = correlate(fleet_.observed, fleet_.window).findings

    assert (str(found[0].facts[0]), found[0].direction) == ("color=green", "fewer")
    assert found[0].ratio.low < 0.02 < found[0].ratio.high


def test_twins_form_a_group_and_the_nodes_that_differ_would_break_the_tie() -> None:
    facts, incidents = [], []
    rng = np.random.default_rng(0)
    for i in range(400):
        red = i % 5 == 0
        twin = red if i not in (0, 1) else not red
        facts.append((f"n{i:03}", 0, {"color": "red" if red else "blue", "paint": "1" if twin else "2"}))
        if rng.random() < (0.5 if red else 0.02):
            incidents.append((f"n{i:03}", float(rng.uniform(0, 6.9)), "crash", str(i)))
    found = correlate(fleet(facts, incidents), WEEK).findings

    assert len(found) == 1
    assert {str(f) for f in found[0].facts} == {"color=red", "paint=1"}
    assert set(found[0].tie_breakers) == {"n000", "n001"}


def test_where_no_node_differs_exposed_nodes_are_the_experiment() -> None:
    facts = [(f"n{i:03}", 0, {"a": str(i % 5 == 0), "b": str(i % 5 == 0)}) for i in range(300)]
    incidents = [(f"n{i:03}", 1 + i / 100, "crash", str(i)) for i in range(0, 200, 5)]
    found = correlate(fleet(facts, incidents), WEEK).findings[0]

    assert len(found.facts) == 2
    assert set(found.tie_breakers) <= {f"n{i:03}" for i in range(200, 300, 5)}
    assert found.tie_breakers


def test_a_pair_is_said_where_each_needs_the_other() -> None:
    plan = FleetPlan(
        nodes=4000, rate=15, seed=3, signatures=4,
        fixed=(("color", (("red", 0.3), ("blue", 0.7))), ("shape", (("round", 0.3), ("square", 0.7)))),
        planted=(Planted(signature="crash", facts=(("color", "red"), ("shape", "round")), ratio=30),),
    )  # fmt: skip
    fleet_ = simulate(plan)
    found = correlate(fleet_.observed, fleet_.window).findings

    assert {str(found[0].facts[0]), str(found[0].together_with)} == {"color=red", "shape=round"}
    assert found[0].ratio.low < 30 < found[0].ratio.high


def test_two_causes_of_one_signature_are_two_findings_and_no_pair() -> None:
    plan = FleetPlan(
        nodes=4000, rate=15, seed=3, signatures=4,
        fixed=(("color", (("red", 0.2), ("blue", 0.8))), ("shape", (("round", 0.2), ("square", 0.8)))),
        planted=(
            Planted(signature="crash", facts=(("color", "red"),), ratio=8),
            Planted(signature="crash", facts=(("shape", "round"),), ratio=8),
        ),
    )  # fmt: skip
    fleet_ = simulate(plan)
    found = correlate(fleet_.observed, fleet_.window).findings

    assert {(str(f.facts[0]), f.together_with) for f in found} == {("color=red", None), ("shape=round", None)}


def test_a_place_is_no_configuration() -> None:
    facts = [(f"n{i:03}", 0, {"rack": f"r{i // 20}", "os": str(i % 2)}) for i in range(400)]
    incidents = [(f"n{i:03}", 1 + i / 1000, "crash", str(i)) for i in range(20)]
    found = correlate(fleet(facts, incidents), WEEK)

    assert found.findings == ()
    assert [str(f.facts[0]) for f in found.locations] == ["rack=r0"]


def test_a_fact_that_the_site_calls_a_place_is_one() -> None:
    facts = [(f"n{i:03}", 0, {"u_position": f"u{i // 20}", "os": str(i % 2)}) for i in range(400)]
    incidents = [(f"n{i:03}", 1 + i / 1000, "crash", str(i)) for i in range(20)]
    observed = fleet(facts, incidents)

    assert [str(f.facts[0]) for f in correlate(observed, WEEK).findings] == ["u_position=u0"]
    found = correlate(with_locations(observed, ("u_*",)), WEEK)
    assert found.findings == ()
    assert [str(f.facts[0]) for f in found.locations] == ["u_position=u0"]


def test_a_vendors_signature_does_not_blame_the_vendors_gpus() -> None:
    """An Xid can only come from NVIDIA's driver: that all its nodes have NVIDIA's GPUs is no discovery."""
    facts = [
        (f"n{i:03}", 0, {"gpu_model": "NVIDIA H100" if i % 3 else "AMD Instinct MI300X", "driver": "550" if i % 3 else "6.8"})
        for i in range(600)
    ]  # fmt: skip
    incidents = [(f"n{i:03}", 1 + i / 1000, "nv_xid_79", str(i)) for i in range(1, 300, 3)]
    observed = replace(fleet(facts, incidents), vendors={"nv_xid_79": "nvidia"})

    assert correlate(observed, WEEK).findings == ()


def test_a_burst_does_not_blame_what_was_rolled_out_that_week() -> None:
    """A file system fails on day 5, half of the fleet was upgraded on day 4: both halves crash alike."""
    rng = np.random.default_rng(1)
    facts, incidents = [], []
    for i in range(600):
        facts.append((f"n{i:03}", 0, {"os": "1", "color": str(i % 3)}))
        if i % 2:
            facts.append((f"n{i:03}", 4, {"os": "2", "color": str(i % 3)}))
        if rng.random() < 0.25:
            incidents.append((f"n{i:03}", 5 + rng.random() * 0.9, "crash", str(i)))
    assert correlate(fleet(facts, incidents), WEEK).findings == ()


def test_equal_columns_are_one_test() -> None:
    facts = [(f"n{i:03}", 0, {"a": str(i % 5), "b": str(i % 5)}) for i in range(300)]
    one = [(n, d, {"a": known["a"]}) for n, d, known in facts]
    incidents = [(f"n{i:03}", 1 + i / 1000, "crash", str(i)) for i in range(0, 300, 3)]

    assert (
        discover(prepare(fleet(facts, incidents), WEEK)).tests == discover(prepare(fleet(one, incidents), WEEK)).tests
    )


def test_too_few_crashes_are_said_with_how_many_it_would_take() -> None:
    facts = [(f"n{i:03}", 0, {"color": "red" if i % 10 == 0 else "blue"}) for i in range(300)]
    found = correlate(fleet(facts, [("n000", 1, "crash", "1"), ("n010", 2, "crash", "2")]), WEEK)

    assert found.findings == ()
    assert [(n.signature, n.crashes) for n in found.not_enough_data] == [("crash", 2)]
    assert found.not_enough_data[0].needed > 10


def test_of_fewer_crashes_two_findings_are_told_with_crashes_that_had_the_fact() -> None:
    rng = np.random.default_rng(5)
    facts, incidents = [], []
    for i in range(1500):
        known = {f"fact_{k}": ("calm", "a", "b")[rng.choice(3, p=(0.4, 0.3, 0.3))] for k in range(4)}
        facts.append((f"n{i:04}", 0.0, known))
        if rng.random() < 0.5 * 0.3 ** list(known.values()).count("calm"):
            incidents.append((f"n{i:04}", float(rng.uniform(0.01, 6.9)), "crash", str(i)))
    observed = fleet(facts, incidents)
    found = correlate(observed, WEEK).findings

    assert [f.direction for f in found] == ["fewer", "fewer"]
    for each in found:
        fact = each.facts[0]
        for example in each.examples:
            node = observed.nodes[observed.incidents.node[observed.incidents.id == example][0]]
            assert next(known for name, _, known in facts if name == node)[fact.fact] == fact.value
        assert each.examples


def test_a_crash_that_is_never_seen_with_a_value_is_a_finding_without_an_experiment() -> None:
    facts = [(f"n{i:03}", 0.0, {"kernel_release": "abc"[i % 3]}) for i in range(600)]
    incidents = [(f"n{i:03}", 0.1 + i / 100, "crash", str(i)) for i in range(0, 600, 3)]
    incidents += [(f"n{i:03}", 0.1 + i / 100, "crash", str(i)) for i in range(1, 600, 3)]
    found = [f for f in correlate(fleet(facts, incidents), WEEK).findings if f.direction == "fewer"]

    assert [(str(f.facts[0]), f.ratio.value, f.next_step) for f in found] == [("kernel_release=c", 0.0, "")]
