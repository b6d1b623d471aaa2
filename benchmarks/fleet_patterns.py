"""What the correlator says of fleets with one pattern each: `python -m benchmarks.fleet_patterns [--fleets 30]`.

Small fleets, crashes of one workload, repairs, rollouts, bursts, saturation and more, each on so many seeds.
Prints Markdown for docs/internals/correlation.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from exporter.demo.simulated_changes import PlantedRollout, more
from exporter.demo.simulator import Fleet, FleetPlan, random_causes, random_rollouts, random_team, simulate
from exporter.fleet.observations import Observed, Window
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Finding
from tests.fleet.small import WEEK, few_nodes
from tests.fleet.test_continuous import WARMER, warm
from tests.fleet.test_power import rare
from tests.fleet.test_saturated import saturated

DAY = 86400.0
TEAMS = FleetPlan(nodes=1500, rate=20, days=14, signatures=8)
REPAIRS = FleetPlan(nodes=2000, rate=20, days=28, signatures=6, repaired=0.5)
ROLLOUTS = FleetPlan(nodes=2000, rate=20, days=14, signatures=6)
AT_ONCE = PlantedRollout(fact="driver_version", before="1", after="2", begin_days=7, over_days=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", type=int, default=30, help="of each pattern")
    fleets = parser.parse_args().fleets
    print("| pattern | said | fleets |\n| --- | --- | --- |")
    for row in chain(small(fleets), workloads(fleets), rollouts(fleets), bursts(fleets), others(fleets)):
        print(row, flush=True)


def small(fleets: int) -> Iterator[str]:
    """24 nodes."""
    for planted, name in (
        (True, "24 nodes, 6 of 6 with a fact crashed, 0 of 18 without"),
        (False, "24 nodes, 6 crashed"),
    ):
        found = [
            {str(fact) for f in correlate(few_nodes(seed, planted=planted), WEEK).findings for fact in f.facts}
            for seed in range(fleets)
        ]
        hits = sum("cause=bad" in each if planted else bool(each) for each in found)
        yield _row(name, "fact found" if planted else "any finding", hits, fleets)


def workloads(fleets: int) -> Iterator[str]:
    """One user or team whose program crashes on the nodes with a fact, and facts that make all crash."""
    plans: dict[str, Callable[[FleetPlan], FleetPlan]] = {
        "one user's program, on the nodes with a fact": lambda plan: random_team(plan, 1, 12.0),
        "a team of five with its own image, on the nodes with a fact": lambda plan: random_team(plan, 5, 12.0, "team"),
        "a fact that makes all users' jobs crash 12 times as often": lambda plan: random_causes(
            plan, 1, 12.0, (0.05, 0.3)
        ),
    }
    for name, of in plans.items():
        hits = sum(_confirmed(simulate(of(replace(TEAMS, seed=7000 + seed)))) for seed in range(fleets))
        yield _row(name, "confirmed", hits, fleets)


def rollouts(fleets: int) -> Iterator[str]:
    """Repairs and rollouts without and with an effect."""
    nulls: dict[str, Callable[[int], tuple[Observed, Window]]] = {
        "repairs 4 to 12 days after half of the crashes": lambda seed: _plain(replace(REPAIRS, seed=seed)),
        "the same, 1% of the nodes 50 times worse": lambda seed: _plain(replace(REPAIRS, seed=seed, lemon=50.0)),
        "two rollouts without effect": lambda seed: _plain(random_rollouts(replace(ROLLOUTS, seed=seed), 2, 1.0)),
        "all upgraded on day 7, another fault from day 9": lambda seed: _with_fault(seed, AT_ONCE),
        "upgraded on days 7 to 10, another fault from day 9": lambda seed: _with_fault(
            seed, replace(AT_ONCE, over_days=3)
        ),
    }
    for name, fleet in nulls.items():
        hits = sum(bool(_of_rollouts(*fleet(9000 + seed))) for seed in range(fleets))
        yield _row(name, "any rollout finding", hits, fleets)
    plans = [random_rollouts(replace(ROLLOUTS, seed=9700 + seed, repaired=0.2), 1, 8.0) for seed in range(fleets)]
    off = []
    for plan in plans:
        effect = next((f.rollout for f in _of_rollouts(*_plain(plan)) if f.facts[0].fact == "rollout_0"), None)
        off.append(np.inf if effect is None else abs(effect.onset - plan.rollouts[0].onset_hours))
    name = "a rollout after which a crash is 8 times as frequent"
    yield _row(name, "rollout found", sum(each < np.inf for each in off), fleets)
    yield _row(name, "onset within a day", sum(each <= 24 for each in off), fleets)


def bursts(fleets: int) -> Iterator[str]:
    """Jobs without ids whose nodes die over ten minutes, on fleets without an effect."""
    plan = FleetPlan(nodes=2000, days=14, multi_node=0.3, without_jobs=True)
    found = [correlate(*_plain(replace(plan, seed=seed))) for seed in range(fleets)]
    name = "jobs without ids, nodes die over ten minutes"
    yield _row(name, "any place", sum(bool(each.locations) for each in found), fleets)
    yield _row(name, "any finding", sum(bool(each.findings) for each in found), fleets)


def others(fleets: int) -> Iterator[str]:
    """Saturated fleets, rare crashes, continuous facts, and what changed before a crash began."""
    for planted, said in ((True, "fact found"), (False, "any finding")):
        name = f"all of 500 nodes crash daily{', a quarter five times as often' if planted else ''}"
        found = [correlate(f.observed, f.window) for f in (saturated(s, 1.0, planted=planted) for s in range(fleets))]
        yield _row(name, said, sum(bool(each.findings) for each in found), fleets)
        if planted:
            ratios = [f.rates.ratio if f.rates else f.ratio for each in found for f in each.findings[:1]]
            holds = sum(ratio.low < 5 < ratio.high for ratio in ratios)
            yield _row(name, "interval of all crashes holds 5", holds, len(ratios))
    for planted, name in ((True, "3 crashes on ten of 3,000 nodes"), (False, "3 crashes on any of 3,000 nodes")):
        leads = [correlate(rare(seed, planted=planted), WEEK).not_enough_data[0].lead for seed in range(fleets)]
        yield _row(name, "lead", sum(each is not None for each in leads), fleets)
    for slope, name in (
        (WARMER, "a crash 2.2 times as frequent with each 6 degrees"),
        (0.0, "no effect of temperature"),
    ):
        results = [correlate(warm(seed, slope), WEEK).findings for seed in range(fleets)]
        yield _row(name, "any finding", sum(bool(each) for each in results), fleets)
    plans = [random_rollouts(replace(ROLLOUTS, seed=seed, repaired=0.2), 1, 8.0) for seed in range(fleets)]
    first = [
        next((b.changes[0].facts[0].fact for b in correlate(*_plain(plan)).beginnings if b.changes), "")
        for plan in plans
    ]
    yield _row(
        "a rollout after which a crash is 8 times as frequent",
        "first of what changed",
        first.count("rollout_0"),
        fleets,
    )
    nulls = [correlate(*_plain(replace(REPAIRS, seed=seed, lemon=50.0))).beginnings for seed in range(fleets)]
    yield _row("repairs, 1% of the nodes 50 times worse", "any beginning", sum(map(bool, nulls)), fleets)


def _confirmed(fleet: Fleet) -> bool:
    middle = (fleet.window.start + fleet.window.end) / 2
    first = correlate(fleet.observed, Window(start=fleet.window.start, end=middle))
    second = correlate(fleet.observed, Window(start=middle, end=fleet.window.end), remember(first, ()))
    return any(f.status == "confirmed" for f in second.findings)


def _plain(plan: FleetPlan) -> tuple[Observed, Window]:
    fleet = simulate(plan)
    return fleet.observed, fleet.window


def _with_fault(seed: int, rollout: PlantedRollout) -> tuple[Observed, Window]:
    """From day 9 on, 3% of all nodes crash each day, whatever their facts."""
    observed, window = _plain(replace(ROLLOUTS, nodes=1000, seed=seed, rollouts=(rollout,)))
    rate, since = np.full(len(observed.nodes), 0.03 / 24), np.full(len(observed.nodes), window.start + 9 * DAY)
    found = more(observed.incidents, rate, since, window, 0, np.random.default_rng(seed))
    return replace(observed, incidents=found), window


def _of_rollouts(observed: Observed, window: Window) -> list[Finding]:
    return [f for f in correlate(observed, window).findings if f.rollout]


def _row(pattern: str, said: str, hits: int, fleets: int) -> str:
    return f"| {pattern} | {said} | {hits} of {fleets} |"


if __name__ == "__main__":
    main()
