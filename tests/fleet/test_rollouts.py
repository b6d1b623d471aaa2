"""Rollouts: what a change did, told apart from repairs, from other faults of those days and from no control group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exporter.demo.simulated_changes import PlantedRollout, more
from exporter.demo.simulator import Fleet, FleetPlan, random_rollouts, simulate
from exporter.fleet.observations import Observed
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Correlation, Finding

from .small import WEEK, fleet

DAY = 86400.0
REPAIRS = FleetPlan(nodes=1000, rate=20, days=28, signatures=6, repaired=0.5)
UPGRADE = FleetPlan(nodes=1000, rate=20, days=14, signatures=6)


def of_rollouts(found: Correlation) -> list[Finding]:
    return [f for f in found.findings if f.rollout]


def said(fleet_: Fleet) -> Correlation:
    return correlate(fleet_.observed, fleet_.window)


def with_a_fault(fleet_: Fleet, day: float) -> Observed:
    """From a day on, 3% of all nodes crash each day, whatever their facts."""
    observed, window = fleet_.observed, fleet_.window
    rate, since = np.full(len(observed.nodes), 0.03 / 24), np.full(len(observed.nodes), window.start + day * DAY)
    found = more(observed.incidents, rate, since, window, 0, np.random.default_rng(1))
    return replace(observed, incidents=found)


@pytest.mark.parametrize("lemon", [1.0, 50.0])
def test_firmware_that_a_crash_brings_days_later_is_neither_cure_nor_cause(lemon: float) -> None:
    for seed in range(3):
        found = said(simulate(replace(REPAIRS, seed=seed, lemon=lemon)))

        assert of_rollouts(found) == []
        assert [r.verdict for r in found.rollouts] == ["follows_crashes"]
        assert "the changes follow crashes" in " ".join(text(found).split())


def test_a_rollout_that_makes_crashes_more_frequent_is_found_with_its_onset() -> None:
    for seed in range(3):
        plan = random_rollouts(replace(UPGRADE, nodes=2000, seed=seed), 1, 8.0)
        found = said(simulate(plan))
        effect = of_rollouts(found)[0].rollout

        assert [str(f.facts[0]) for f in of_rollouts(found)] == ["rollout_0=2.0"]
        assert effect is not None
        assert effect.onset == pytest.approx(plan.rollouts[0].onset_hours, abs=24)


def test_a_rollout_is_one_finding_in_all_formats() -> None:
    plan = random_rollouts(replace(UPGRADE, nodes=2000, seed=1), 1, 8.0)
    found = said(simulate(plan))
    told = [f for f in to_json(found)["findings"] if f["facts"][0]["fact"] == "rollout_0"]

    assert [f["kind"] for f in told] == ["rollout"]
    assert told[0]["next_step"].startswith("undo it on ")
    assert told[0]["rollout"]["onset_hours_low"] <= told[0]["rollout"]["onset_hours"]
    assert [(r["verdict"], r["findings"]) for r in to_json(found)["rollouts"][:1]] == [("tested", [1])]
    assert "since the rollout of rollout_0=2.0" in text(found)
    assert "see finding 1; compared with nodes not changed yet" in " ".join(text(found).split())
    assert [f.facts[0].fact for f in remember(found, ())].count("rollout_0") == 1


def test_a_fault_after_all_were_upgraded_at_once_is_not_blamed_on_the_upgrade() -> None:
    upgrade = PlantedRollout(fact="driver_version", before="1", after="2", begin_days=7, over_days=0.01)
    fleet_ = simulate(replace(UPGRADE, rollouts=(upgrade,)))
    found = correlate(with_a_fault(fleet_, 9), fleet_.window)

    assert of_rollouts(found) == []
    assert [r.verdict for r in found.rollouts] == ["no_controls"]
    assert "no control group" in text(found)


def test_a_fault_during_a_rollout_is_not_blamed_on_it() -> None:
    upgrade = PlantedRollout(fact="driver_version", before="1", after="2", begin_days=7, over_days=3)
    fleet_ = simulate(replace(UPGRADE, rollouts=(upgrade,)))

    assert of_rollouts(correlate(with_a_fault(fleet_, 9), fleet_.window)) == []


def test_facts_that_change_together_are_one_rollout() -> None:
    facts, incidents = [], []
    rng = np.random.default_rng(0)
    for i in range(300):
        facts.append((f"n{i:03}", 0.0, {"driver_version": "1", "image": "a"}))
        day = 2 + i / 150
        if i < 200:
            facts.append((f"n{i:03}", day, {"driver_version": "2", "image": "b"}))
        if i < 200 and rng.random() < 0.3:
            incidents.append((f"n{i:03}", float(rng.uniform(day, 6.9)), "crash", str(i)))
        elif rng.random() < 0.02:
            incidents.append((f"n{i:03}", float(rng.uniform(0, 6.9)), "crash", str(i)))
    found = of_rollouts(correlate(fleet(facts, incidents), WEEK))

    assert [[str(fact) for fact in f.facts] for f in found] == [["driver_version=2", "image=b"]]


@pytest.mark.nightly
def test_over_30_fleets_planted_rollouts_are_found_and_repairs_are_not() -> None:
    seeds = range(9000, 9030)
    plans = [random_rollouts(replace(UPGRADE, nodes=2000, seed=seed), 1, 8.0) for seed in seeds]
    effects = [next((f.rollout for f in of_rollouts(said(simulate(plan)))), None) for plan in plans]
    late = [abs(e.onset - p.rollouts[0].onset_hours) for e, p in zip(effects, plans, strict=True) if e]

    assert len(late) >= len(plans) - 1  # the last is found as a fact of nodes, not as a rollout
    assert max(late) <= 24
    assert sum(bool(of_rollouts(said(simulate(replace(REPAIRS, nodes=2000, seed=seed))))) for seed in seeds) <= 1
