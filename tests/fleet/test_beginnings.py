"""When a crash began to be frequent, and what had changed on the nodes that crashed since."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exporter.demo.simulated_changes import PlantedRollout, more
from exporter.demo.simulator import Fleet, FleetPlan, random_rollouts, simulate
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import Beginning, Correlation

DAY = 86400.0
PLAN = FleetPlan(nodes=1000, rate=20, days=14, signatures=6)
AT_ONCE = PlantedRollout(fact="driver_version", before="1", after="2", begin_days=7, over_days=0.01)


def with_a_fault_from(day: float, fleet: Fleet, *, seed: int = 0) -> Correlation:
    """From a day on, 3% of all nodes crash each day, whatever their facts."""
    nodes, window = len(fleet.observed.nodes), fleet.window
    rate, since = np.full(nodes, 0.03 / 24), np.full(nodes, window.start + day * DAY)
    found = more(fleet.observed.incidents, rate, since, window, 0, np.random.default_rng(seed))
    return correlate(replace(fleet.observed, incidents=found), window)


def of(found: Correlation, signature: str) -> Beginning | None:
    return next((each for each in found.beginnings if each.signature == signature), None)


def test_what_changed_on_all_nodes_before_a_crash_began_is_named_though_nothing_can_be_compared() -> None:
    fleet = simulate(replace(PLAN, rollouts=(AT_ONCE,)))
    found = with_a_fault_from(9, fleet)
    began = of(found, "sim_fault_00")

    assert began is not None
    assert began.first - 12 * 3600 < fleet.window.start + 9 * DAY < began.last + 12 * 3600
    assert [str(fact) for fact in began.changes[0].facts] == ["driver_version=2"]
    assert began.changes[0].affected_changed == began.changes[0].affected
    assert began.changes[0].others_changed == began.changes[0].others
    assert "driver_version=2 (before: 1) on" in " ".join(text(found).split())
    assert to_json(found)["beginnings"][0]["changes"][0]["before"] == "1"


def test_a_crash_that_began_though_nothing_changed_says_so() -> None:
    found = with_a_fault_from(9, simulate(PLAN))
    began = of(found, "sim_fault_00")

    assert began is not None
    assert began.changes == ()
    assert "no fact changed on these nodes in the 7 days before" in " ".join(text(found).split())


def test_a_steady_crash_has_no_beginning() -> None:
    assert [with_a_fault_from(0, simulate(replace(PLAN, seed=seed))).beginnings for seed in range(3)] == [()] * 3


@pytest.mark.nightly
def test_over_many_fleets_the_rollout_that_a_crash_began_with_comes_first() -> None:
    plans = [random_rollouts(replace(PLAN, nodes=2000, seed=seed, repaired=0.2), 1, 8.0) for seed in range(8)]
    began = [of(correlate((f := simulate(plan)).observed, f.window), "sim_fault_00") for plan in plans]
    named = [str(each.changes[0].facts[0]) for each in began if each is not None and each.changes]
    null = [random_rollouts(replace(PLAN, seed=seed, lemon=50.0, repaired=0.3), 2, 1.0) for seed in range(8)]

    quiet = [correlate((f := simulate(plan)).observed, f.window).beginnings for plan in null]

    assert named.count("rollout_0=2.0") >= 6
    assert quiet.count(()) >= 7
