"""Which incidents are one fault, and which node it began on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exporter.demo.simulator import FleetPlan, simulate
from exporter.fleet.observations import Observed
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.origins import first_of_nodes, neighbourhoods, origins

from .small import DAY, fleet

SECOND = 1 / DAY


def told(observed: Observed) -> list[tuple[str, str]]:
    found = origins(observed.incidents)
    return [(observed.nodes[n], observed.signatures[s]) for n, s in zip(found.node, found.signature, strict=True)]


def test_a_job_of_three_nodes_is_one_fault_of_the_node_that_failed_first() -> None:
    rows = [("c", 1.0, "x", "7"), ("a", 1.0 + SECOND, "x", "7"), ("b", 1.0 + 2 * SECOND, "x", "7")]

    assert told(fleet([], rows)) == [("c", "x")]


def test_two_signatures_of_a_job_have_each_their_origin() -> None:
    rows = [("a", 1.0, "x", "7"), ("b", 1.0, "y", "7"), ("b", 1.1, "x", "7")]

    assert sorted(told(fleet([], rows))) == [("a", "x"), ("b", "y")]


def test_lines_of_one_node_without_a_job_are_one_fault_until_a_minute_is_quiet() -> None:
    rows = [("a", 1.0 + i * 50 * SECOND, "x", None) for i in range(4)] + [("a", 1.5, "x", None)]

    assert told(fleet([], rows)) == [("a", "x"), ("a", "x")]


def test_where_no_job_is_known_nodes_that_crash_within_a_minute_are_taken_for_one_jobs() -> None:
    rows = [("b", 1.0, "x", None), ("a", 1.0 + 5 * SECOND, "x", None), ("c", 1.0 + 64 * SECOND, "x", None)]
    later = [("d", 1.1, "x", None), ("e", 1.0, "y", None)]

    assert told(fleet([], [*rows, *later])) == [("b", "x"), ("e", "y"), ("d", "x")]


def test_a_lemon_in_a_loop_without_a_job_swallows_nobody_elses_crash() -> None:
    loop = [("a", 1.0 + i * 61 * SECOND, "x", None) for i in range(100)]
    others = [(f"n{i}", 1.0 + (30 + i * 610) * SECOND, "x", None) for i in range(3, 10)]

    assert {node for node, _ in told(fleet([], [*loop, *others]))} == {"a", *(f"n{i}" for i in range(3, 10))}


def test_a_jobs_nodes_are_one_fault_without_its_number_though_the_first_of_them_crashed_before() -> None:
    before = [("a", 0.5, "x", None)]
    job = [(node, 1.0 + i * SECOND, "x", None) for i, node in enumerate("abcd")]

    assert told(fleet([], [*before, *job])) == [("a", "x"), ("a", "x")]


def test_a_lemon_is_one_unit_of_evidence_however_often_it_crashes() -> None:
    found = origins(fleet([], [("a", 1.0 + i / 10, "x", str(i)) for i in range(30)]).incidents)

    assert len(found.node) == 30
    assert len(first_of_nodes(found).node) == 1


def test_of_two_nodes_at_the_same_time_the_incidents_id_decides_and_not_the_nodes_name() -> None:
    rows = [("z", 1.0, "x", "7"), ("a", 1.0, "x", "7")]

    assert told(fleet([], rows)) == [("z", "x")]


def names_of_neighbours(observed: Observed) -> list[str]:
    beside = neighbourhoods(observed.nodes, observed.facts)
    return [observed.nodes[node] for node in origins(observed.incidents, beside).node]


def rare_crashes(of: list[tuple[str, float]]) -> list[tuple[str, float, str, str | None]]:
    """Crashes of one signature without jobs, among 300 nodes that crash once each with another."""
    usual = [(f"n{i}", 0.01 + i / 45, "y", None) for i in range(300)]
    return [*usual, *((node, day, "x", None) for node, day in of)]


def test_neighbours_without_a_job_that_die_over_ten_minutes_are_one_fault() -> None:
    burst = [(f"n{i}", 1.0 + i * 70 * SECOND) for i in range(8, 13)]
    far = [("n290", 1.0 + 3000 * SECOND)]
    found = names_of_neighbours(fleet([], rare_crashes([*burst, *far])))

    assert [name for name in found if name in {"n8", "n9", "n10", "n11", "n12", "n290"}].count("n8") == 2
    assert found.count("n9") == 1  # of the other signature only
    assert found.count("n290") == 2


def test_nodes_of_a_rack_are_neighbours_whatever_their_names() -> None:
    facts = [(f"n{i}", 0.0, {"rack": "r1" if i in (3, 200) else f"r{i}"}) for i in range(300)]
    found = names_of_neighbours(fleet(facts, rare_crashes([("n3", 1.0), ("n200", 1.0 + 300 * SECOND)])))

    assert (found.count("n3"), found.count("n200")) == (2, 1)


def test_neighbours_that_crash_daily_are_not_one_fault() -> None:
    rng = np.random.default_rng(0)
    rows = [(f"n{i}", float(day + rng.random()), "x", None) for i in range(300) for day in range(7)]
    found = origins(fleet([], rows).incidents)
    beside = names_of_neighbours(fleet([], rows))

    assert len(beside) == len(found.node)


def test_jobs_without_ids_whose_nodes_die_over_ten_minutes_make_no_place_bad() -> None:
    """Each such job of a rack was taken for many crashes there: 18 false places on six such fleets."""
    plan = FleetPlan(nodes=1000, days=14, multi_node=0.3, without_jobs=True)
    found = [correlate((each := simulate(replace(plan, seed=seed))).observed, each.window) for seed in range(3)]

    assert [(result.locations, result.findings) for result in found] == [((), ())] * 3
