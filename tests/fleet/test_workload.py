"""Whose workload: one user, or a team with a program of its own, never becomes a confirmed configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.demo.simulated_journals import write_journals
from exporter.demo.simulator import Fleet, FleetPlan, random_causes, random_team, simulate
from exporter.fleet.input.journals import load
from exporter.fleet.observations import Window
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Correlation
from exporter.fleet.statistics.workload import _over_represented

from .stories import STORIES

SIGNATURE = "sim_fault_00"


def plan(seed: int) -> FleetPlan:
    return FleetPlan(nodes=1500, rate=20, days=14, seed=seed, signatures=8)


def second_week(fleet: Fleet) -> Correlation:
    middle = (fleet.window.start + fleet.window.end) / 2
    first = correlate(fleet.observed, Window(start=fleet.window.start, end=middle))
    return correlate(fleet.observed, Window(start=middle, end=fleet.window.end), remember(first, ()))


def confirmed(fleet: Fleet) -> bool:
    return any(f.status == "confirmed" and f.signature == SIGNATURE for f in second_week(fleet).findings)


@pytest.mark.parametrize(("users", "image"), [(1, ""), (5, "team")])
def test_a_fact_of_one_workloads_nodes_is_not_confirmed(users: int, image: str) -> None:
    found = [second_week(simulate(random_team(plan(seed), users, 12.0, image))) for seed in (7000, 7001, 7002)]

    assert all(f.status == "candidate" for each in found for f in each.findings if f.signature == SIGNATURE)
    assert any("does not hold without" in " ".join(f.counter_evidence) for each in found for f in each.findings)


def test_an_effect_with_one_team_is_confirmed_if_the_team_runs_elsewhere_without_it() -> None:
    _, second = STORIES["a driver with the image of a team"].weeks(72000)
    (finding,) = (f for f in second.findings if f.status == "confirmed")

    assert "driver_version=560.1" in map(str, finding.facts)
    assert all(share.holds or share.elsewhere > 3 for share in finding.workload)
    assert any("run elsewhere without this crash" in said for said in finding.counter_evidence)


def test_an_image_that_crashes_where_it_runs_is_not_confirmed() -> None:
    assert STORIES["the image of a team runs with a driver and crashes"].verdict(72001).false_confirmed == ()


def test_a_fact_that_makes_everybody_crash_is_confirmed() -> None:
    assert sum(confirmed(simulate(random_causes(plan(seed), 1, 12.0, (0.1, 0.3)))) for seed in (7000, 7001, 7003)) >= 2


@pytest.mark.nightly
def test_over_30_fleets_no_workload_is_confirmed_and_most_causes_are() -> None:
    seeds = range(8000, 8030)

    assert not any(confirmed(simulate(random_team(plan(seed), 1, 12.0))) for seed in seeds)
    assert not any(confirmed(simulate(random_team(plan(seed), 5, 12.0, "team"))) for seed in seeds)
    assert sum(confirmed(simulate(random_causes(plan(seed), 1, 12.0, (0.05, 0.3)))) for seed in seeds) >= 21


def test_a_finding_names_the_largest_user_and_its_share(tmp_path: Path) -> None:
    fleet = simulate(random_team(plan(7000), 1, 12.0))
    write_journals(fleet, tmp_path)
    loaded = load(tmp_path, now=fleet.window.end, start=fleet.window.start, end=fleet.window.end)
    found = correlate(loaded.observed, loaded.window)
    finding = next(f for f in to_json(found)["findings"] if f["signature"] == SIGNATURE)
    user = next(each for each in finding["workload"] if each["kind"] == "user")

    assert user["names"] == ["u200"]
    assert user["share"] > 0.7
    assert user["rate_ratio_without"] is None or user["rate_ratio_without"] < 3
    assert "user u200" in text(found)


def test_users_in_proportion_to_their_other_crashes_are_not_over_represented() -> None:
    elsewhere = np.repeat([0, 1, 2, 3], [50, 25, 15, 10])

    assert _over_represented(np.repeat([0, 1, 2, 3], [5, 3, 2, 1]), elsewhere).tolist() == []
    assert _over_represented(np.repeat([3, 0, 7], [8, 2, 1]), elsewhere).tolist() == [3, 7]
