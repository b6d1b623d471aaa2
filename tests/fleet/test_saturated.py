"""Fleets in which nearly all nodes crash: who crashes first, and how often each crashes, still tells nodes apart."""

from __future__ import annotations

import pytest

from exporter.demo.simulator import Fleet, FleetPlan, Planted, simulate
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate

BAD = Planted(signature="sim_fault_00", facts=(("firmware_version", "1.1"),), ratio=5)
BUSY = 8 / 11  # of the hours, on average


def saturated(seed: int, a_day: float, *, planted: bool = True, lemon: float = 1.0, signatures: int = 1) -> Fleet:
    """500 nodes, each of which crashes so often a day with each signature; a quarter of them five times as often."""
    return simulate(
        FleetPlan(
            nodes=500, rate=1000 * a_day * signatures / BUSY, signatures=signatures, skew=0.0, seed=seed, lemon=lemon,
            fixed=(("firmware_version", (("1.1", 0.25), ("1.0", 0.75))),), planted=(BAD,) if planted else (),
        )
    )  # fmt: skip


@pytest.mark.parametrize("a_day", [0.3, 1.0, 5.0])
def test_bad_nodes_are_found_where_all_crash_daily_and_the_rates_hold_the_truth(a_day: float) -> None:
    fleet = saturated(3, a_day)
    found = correlate(fleet.observed, fleet.window)
    (finding,) = found.findings

    assert str(finding.facts[0]) == "firmware_version=1.1"
    assert finding.ratio.low > 3
    ratio = finding.ratio if finding.rates is None else finding.rates.ratio
    assert (finding.rates is None) == (finding.counts == "crashes")
    assert ratio.low < 5 < ratio.high
    assert ratio.value == pytest.approx(5, abs=0.7)
    assert to_json(found)["findings"][0]["counts"] == finding.counts
    assert ("crashes had it" in " ".join(text(found).split())) == (finding.rates is None)


def test_a_calm_fleet_is_compared_by_day_as_before() -> None:
    fleet = simulate(FleetPlan(nodes=500, rate=20))

    assert "nodes that crash again" not in text(correlate(fleet.observed, fleet.window))


@pytest.mark.nightly
def test_over_many_fleets_saturation_hides_nothing_and_makes_nothing_up() -> None:
    found = [correlate((f := saturated(seed, 1.0)).observed, f.window).findings for seed in range(20)]
    ratios = [one.ratio if one.rates is None else one.rates.ratio for one, *_ in found]
    null = [
        correlate(
            (f := saturated(100 + seed, 1.0, planted=False, lemon=lemon, signatures=3)).observed, f.window
        ).findings
        for seed in range(10)
        for lemon in (1.0, 50.0)
    ]

    assert [str(each[0].facts[0]) for each in found if each] == ["firmware_version=1.1"] * 20
    assert sum(ratio.low < 5 < ratio.high for ratio in ratios) >= 17
    assert sum(map(bool, null)) <= 2


@pytest.mark.parametrize("nodes", [1, 2, 3, 10])
@pytest.mark.parametrize("lemon", [1.0, 50.0])
def test_a_few_nodes_that_crash_daily_make_no_finding(nodes: int, lemon: float) -> None:
    plan = FleetPlan(nodes=nodes, rate=1000 / BUSY, signatures=1, skew=0.0, seed=4, lemon=lemon)
    fleet = simulate(plan)
    assert correlate(fleet.observed, fleet.window).findings == ()
