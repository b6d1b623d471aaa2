"""Whole fleets with a known truth: silence where there is nothing, the cause where there is one.

The light part runs everywhere; the heavy part is benchmarks/correlator.py with the gates of the issue.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from exporter.demo.founding_cases import CASES
from exporter.demo.simulator import FleetPlan, simulate
from exporter.fleet.statistics.correlation import correlate


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "correlator.py"
    spec = importlib.util.spec_from_file_location("benchmarks_correlator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES)
def test_the_founding_case_is_found_with_the_right_fact_first(case: str) -> None:
    plan = CASES[case]
    fleet = simulate(plan)
    found = correlate(fleet.observed, fleet.window).findings[0]
    cause = plan.planted[0]

    assert found.signature == cause.signature
    assert (found.facts[0].fact, found.facts[0].value) == cause.facts[0]
    assert (
        [(found.together_with.fact, found.together_with.value)] == list(cause.facts[1:])
        if found.together_with
        else True
    )
    assert found.ratio.low > 1.5


def test_one_seed_is_one_fleet() -> None:
    one, other = (simulate(FleetPlan(nodes=300, lemon=50.0, multi_node=0.3, reimaged=0.3, seed=5)) for _ in range(2))

    assert np.array_equal(one.observed.incidents.time, other.observed.incidents.time)
    assert np.array_equal(one.observed.facts.codes, other.observed.facts.codes)


def test_a_fleet_without_a_cause_gives_no_findings() -> None:
    """Ten times the incidents of a calm fleet, all traps at once: the lift of a dashboard finds plenty."""
    plan = FleetPlan(nodes=800, rate=20, lemon=100.0, multi_node=0.3, reimaged=0.3, busy_tied=True, twins=6)
    found = [correlate((f := simulate(replace(plan, seed=seed))).observed, f.window).findings for seed in range(4)]

    assert found == [(), (), (), ()]


def test_wall_hours_would_blame_what_goes_with_use() -> None:
    """The trap is real: the same fleet without its GPU-busy hours gives findings, and says what it counted in."""
    pools = (("pool", (("long", 0.5), ("short", 0.5))),)
    fleet = simulate(FleetPlan(nodes=4000, rate=40, busy_tied=True, fixed=pools, signatures=3, seed=1))
    blind = replace(
        fleet.observed, beats=replace(fleet.observed.beats, busy=np.full(len(fleet.observed.beats.node), np.nan))
    )

    assert correlate(fleet.observed, fleet.window).findings == ()
    found = correlate(blind, fleet.window)
    assert "pool" in {f.facts[0].fact for f in found.findings}
    assert found.exposure == "observed_hours"


@pytest.mark.nightly
def test_over_200_null_fleets_hardly_anything_is_found_or_confirmed(benchmark: ModuleType) -> None:
    last = benchmark.nulls(200)[-1]
    candidate, confirmed, lift = (float(cell.strip(" *")) for cell in last.split("|")[2:5])

    assert candidate <= 0.10
    assert confirmed <= 0.05
    assert lift > 0.9  # what the same fleets show to whoever counts reports


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "least"), [("4,000 nodes, ratio 8", 0.9), ("4,000 nodes, ratio 10", 0.9), ("20,000 nodes, ratio 5", 0.8)]
)
def test_planted_causes_are_found_and_little_else(benchmark: ModuleType, name: str, least: float) -> None:
    ratio = float(name.rpartition(" ")[2])
    scores = [benchmark.score(replace(benchmark.PLANTED[name], seed=3000 + seed), ratio) for seed in range(12)]

    assert sum(s.found for s in scores) / sum(s.causes for s in scores) >= least
    assert np.mean([s.false / max(s.findings, 1) for s in scores]) <= 0.05
