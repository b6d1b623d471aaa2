"""One look at a later week, or an e-value at every look: `python -m benchmarks.fleet_looks [--fleets 30]`.

How often each rule confirms what is not there, what was planted, and on which day. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from exporter.demo.simulator import DAY, FleetPlan, random_causes, simulate
from exporter.fleet.observations import Window
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.confirm import LEVEL, e_value
from exporter.fleet.statistics.design import ALL_ALIKE
from exporter.fleet.statistics.prepare import prepare

WEEK = 7 * DAY
VALUES = 20  # asked of each null fleet
NULL = FleetPlan(
    nodes=1500,
    rate=20,
    days=14,
    signatures=4,
    facts=16,
    lemon=100.0,
    multi_node=0.3,
    reimaged=0.3,
    busy_tied=True,
    twins=3,
)
PLANTED = FleetPlan(nodes=1500, rate=20, days=14, signatures=4, facts=16)
Asked = tuple[str, str, str]  # signature, fact, value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", type=int, default=30)
    fleets = parser.parse_args().fleets
    print("| asked | of | confirmed by one look | by an e-value | on day (median) |\n| --- | --- | --- | --- | --- |")
    print(row("null values", [one for seed in range(fleets) for one in looks(*null(seed), 7)]), flush=True)
    for ratio in (5.0, 8.0):
        found = [one for seed in range(fleets) for one in looks(*planted(seed, ratio), 14)]
        print(row(f"planted, ratio {ratio:g}", found), flush=True)


def null(seed: int) -> tuple[FleetPlan, Sequence[Asked]]:
    """A fleet without an effect, and values of it."""
    plan = replace(NULL, seed=seed)
    fleet, rng = simulate(plan), np.random.default_rng(seed)
    design = prepare(fleet.observed, Window(start=plan.start, end=plan.start + WEEK)).design
    values = [(v.fact, v.shown) for v in design.values if v.family == "configuration"]
    chosen = rng.choice(len(values), VALUES, replace=False)
    return plan, [(f"sim_fault_{rng.integers(NULL.signatures):02}", *values[i]) for i in chosen]


def planted(seed: int, ratio: float) -> tuple[FleetPlan, Sequence[Asked]]:
    """A fleet with one cause."""
    plan = random_causes(replace(PLANTED, seed=100 + seed), 1, ratio, (0.05, 0.3))
    return plan, [(cause.signature, *cause.facts[0]) for cause in plan.planted]


def looks(plan: FleetPlan, asked: Sequence[Asked], number: int) -> Iterator[tuple[float, bool]]:
    """For each value asked: the day on which the e-value confirmed it (inf: never), and whether one look at the end does."""
    observed, begin = simulate(plan).observed, plan.start + WEEK
    days = dict.fromkeys(asked, np.inf)
    once: dict[Asked, bool] = {}
    for look in range(1, number + 1):
        end = begin + WEEK * look / number
        prepared = prepare(observed, Window(start=end - WEEK, end=end))
        for one in asked:
            signature, column = prepared.number(one[0]), prepared.design.find(*one[1:])
            if signature is None or column is None:
                continue
            states, units = prepared.design.column(column), prepared.units_of(signature)
            strata = prepared.strata(signature, level=ALL_ALIKE)
            later = screen.cells(
                prepared.design, units.take(units.incidents.time >= begin), strata=strata, column=states
            )
            if e_value(later, more=True) >= 1 / LEVEL:
                days[one] = min(days[one], 7 * look / number)
            if look == number:
                counts = screen.cells(prepared.design, units, strata=strata, column=states).counts()
                once[one] = bool(counts.crashes[0] and screen.p_values(counts, "more")[0] <= LEVEL)
    return iter([(days[one], once[one]) for one in asked if one in once])


def row(name: str, found: Sequence[tuple[float, bool]]) -> str:
    """One row of the table."""
    by_value = [day for day, _ in found if day < np.inf]
    median = f"{np.median(by_value):.1f}" if by_value else ""
    return f"| {name} | {len(found)} | {sum(once for _, once in found)} | {len(by_value)} | {median} |"


if __name__ == "__main__":
    main()
