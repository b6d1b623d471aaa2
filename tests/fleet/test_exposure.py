"""Hours by state of the facts: as of then, split where a fact changes, in GPU-busy hours where these are known."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.fleet.observations import Beats, Window
from exporter.fleet.statistics.exposure import BUSY, OBSERVED, amounts
from exporter.fleet.statistics.prepare import Prepared, prepare

from .small import DAY, START, WEEK, fleet


def hours(prepared: Prepared, fact: str) -> dict[tuple[str, str], float]:
    """Exposure by node and value of a fact."""
    facts, states = prepared.observed.facts, prepared.design.states
    index = facts.names.index(fact)
    out: dict[tuple[str, str], float] = {}
    for node, row, of in zip(states.node, states.row, states.hours, strict=True):
        code = facts.codes[row, index]
        key = prepared.observed.nodes[node], facts.values[index][code] if code >= 0 else "unknown"
        out[key] = round(out.get(key, 0.0) + float(of.sum()), 2)
    return out


def test_exposure_is_split_where_a_fact_changes_even_within_a_heartbeat() -> None:
    observed = fleet([("a", 0, {"driver": "1"}), ("a", 2.25, {"driver": "2"})])

    assert hours(prepare(observed, WEEK), "driver") == {("a", "1"): 54.0, ("a", "2"): 114.0}


def test_an_incident_meets_the_facts_of_its_time_and_not_those_of_today() -> None:
    observed = fleet([("a", 0, {"driver": "1"}), ("a", 3, {"driver": "2"})], [("a", 2.99, "x", "7")])
    prepared = prepare(observed, WEEK)
    row = prepared.design.states.row[prepared.units[0].state[0]]

    assert observed.facts.values[0][observed.facts.codes[row, 0]] == "1"


def test_what_happened_before_the_first_known_facts_is_left_out_and_said() -> None:
    observed = fleet([("a", 3, {"driver": "1"})], [("a", 1, "x", "7")])
    prepared = prepare(observed, WEEK)

    assert hours(prepared, "driver") == {("a", "1"): 120.0}  # a day's stock-taking may be late by a day
    assert prepared.units == {}
    assert [gap.kind for gap in prepared.gaps] == ["incidents_before_facts"]


def test_busy_hours_count_where_they_are_known() -> None:
    observed = fleet([("a", 0, {"driver": "1"}), ("b", 0, {"driver": "1"})], busy={"a": 12.0, "b": 6.0})
    prepared = prepare(observed, WEEK)

    assert prepared.unit == BUSY
    assert hours(prepared, "driver") == {("a", "1"): 84.0, ("b", "1"): 42.0}


def test_a_few_heartbeats_without_busy_hours_take_their_nodes_average() -> None:
    hour = np.ones(20)
    busy = np.where(np.arange(20) == 7, np.nan, 0.5)
    unit, filled, gaps = amounts(
        Beats(node=np.zeros(20, dtype=np.int64), end=np.arange(20) * 3600.0, hours=hour, busy=busy)
    )

    assert unit == BUSY
    assert filled[7] == pytest.approx(0.5)
    assert [gap.kind for gap in gaps] == ["busy_hours_missing"]


def test_without_busy_hours_the_hours_watched_count_and_it_is_said_which() -> None:
    assert prepare(fleet([("a", 0, {"driver": "1"})]), WEEK).unit == OBSERVED


def test_overlapping_heartbeats_count_no_hour_twice() -> None:
    observed = fleet([("a", 0, {"driver": "1"})])
    twice = Beats(
        node=np.zeros(2, dtype=np.int64),
        end=START + np.array([1.0, 1.5]) * DAY,
        hours=np.array([24.0, 24.0]),
        busy=np.full(2, np.nan),
    )
    both = type(observed)(
        nodes=observed.nodes, signatures=(), facts=observed.facts, beats=twice, incidents=observed.incidents
    )

    assert hours(prepare(both, WEEK), "driver") == {("a", "1"): 36.0}


def test_only_the_window_counts() -> None:
    window = Window(start=START + 1.5 * DAY, end=START + 3 * DAY)

    assert hours(prepare(fleet([("a", 0, {"driver": "1"})]), window), "driver") == {("a", "1"): 36.0}


def test_nodes_without_facts_and_facts_without_exposure_are_gaps() -> None:
    facts = [("a", 0, {"driver": "1"}), ("b", 0, {"driver": "1"})]
    observed = fleet(facts, [("b", 1, "x", "1")], busy={"a": 1.0, "c": 1.0})
    kinds = {gap.kind for gap in prepare(observed, WEEK).gaps}

    assert kinds == {"nodes_without_exposure", "incidents_without_exposure", "nodes_without_facts"}


def test_a_node_that_seemed_idle_at_every_look_has_some_exposure_nevertheless() -> None:
    """A job of ten seconds comes and goes between two looks, and can crash."""
    busy = {f"n{i}": 0.0 if i == 0 else 20.0 for i in range(9)}
    prepared = prepare(fleet([(node, 0, {"os": "1"}) for node in busy], [("n0", 1.5, "x", "7")], busy=busy), WEEK)

    assert prepared.gaps == ()
    assert len(prepared.units[0]) == 1
