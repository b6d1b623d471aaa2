"""What the correlator finds in fleets whose truth is known: `python benchmarks/correlator.py [--fleets 200] [--write]`.

Null fleets of six kinds, over two weeks: how often anything is found in the first, and confirmed in the second. Planted
fleets: how many causes are found, what share of the findings is false, how often the interval holds the true ratio. Beside
it what a dashboard does: the highest lift of a fact's value among all crash reports, with the facts of today. Prints
Markdown; --write puts it into docs/internals/correlation.md. Two cores and ten minutes for 200 fleets.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from exporter.demo.founding_cases import CASES
from exporter.demo.simulator import Fleet, FleetPlan, Planted, random_causes, simulate
from exporter.fleet.observations import Observed, Window
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Finding

PAGE = Path(__file__).resolve().parent.parent / "docs" / "internals" / "correlation.md"
MARK = "<!-- What follows is printed by `python benchmarks/correlator.py --write`. -->\n"
WEEK = 7.0
NULLS: Mapping[str, FleetPlan] = {
    "pure": FleetPlan(),
    "lemons: 1% of the nodes 100 times worse": FleetPlan(lemon=100.0),
    "multi-node jobs: 30% of the crashes take all nodes": FleetPlan(multi_node=0.3),
    "re-imaged: 30% of the crashed nodes": FleetPlan(reimaged=0.3),
    "utilisation goes with a fact": FleetPlan(busy_tied=True),
    "twin facts": FleetPlan(twins=8),
    "all of these": FleetPlan(lemon=100.0, multi_node=0.3, reimaged=0.3, busy_tied=True, twins=8),
}
PLANTED: Mapping[str, FleetPlan] = {
    "4,000 nodes, ratio 8": FleetPlan(nodes=4000, rate=20, twins=4, multi_node=0.1),
    "4,000 nodes, ratio 10": FleetPlan(nodes=4000, rate=20, twins=4, multi_node=0.1),
    "20,000 nodes, ratio 5": FleetPlan(nodes=20_000, rate=9, facts=60, twins=20, signatures=20, skew=0, multi_node=0.1),
}
CAUSES, SHARES = 3, (0.05, 0.4)
LIFT, SUPPORT = 2.0, 5  # what a dashboard's reader would take for a cause


@dataclass(frozen=True, slots=True)
class Score:
    """One planted fleet."""

    causes: int
    found: int
    first: int
    findings: int
    false: int
    intervals: int
    covering: int
    naive: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", type=int, default=200, help="null fleets; planted ones are a tenth for each row")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/internals/correlation.md")
    options = parser.parse_args()
    lines = [*nulls(options.fleets), "", *planted(max(options.fleets // 10, 2)), "", *founding()]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + "\n" + text)


def nulls(fleets: int) -> list[str]:
    """The rows of null fleets of 4,000 nodes."""
    each = -(-fleets // len(NULLS))
    out = [
        f"Null fleets: 4,000 nodes, 24 facts, 12 signatures, two weeks, {each} fleets each.",
        "",
        "| fleet | any candidate in week 1 | any confirmed in week 2 | a lift of 2 or more |",
        "| --- | --- | --- | --- |",
    ]
    total = np.zeros(3)
    for name, plan in NULLS.items():
        hits = np.array([null(replace(plan, nodes=4000, days=2 * WEEK, seed=seed)) for seed in range(each)]).sum(axis=0)
        total += hits
        out.append(f"| {name} | {' | '.join(f'{hit} of {each}' for hit in hits.tolist())} |")
    shares = " | ".join(f"**{share:.3f}**" for share in (total / (each * len(NULLS))).tolist())
    return [*out, f"| all {each * len(NULLS)} | {shares} |"]


def null(plan: FleetPlan) -> tuple[bool, bool, bool]:
    """Whether anything is found, and confirmed, where nothing is."""
    fleet = simulate(plan)
    middle = (fleet.window.start + fleet.window.end) / 2
    first = correlate(fleet.observed, Window(start=fleet.window.start, end=middle))
    second = correlate(fleet.observed, Window(start=middle, end=fleet.window.end), remember(first, ()))
    confirmed = any(f.status == "confirmed" for f in second.findings)
    return bool(first.findings), confirmed, any(value >= LIFT for _, value in lifts(fleet.observed))


def planted(fleets: int) -> list[str]:
    """The rows of planted fleets."""
    out = [
        f"Planted fleets: {CAUSES} causes each, of 5 to 40% of the nodes, one week, {fleets} fleets each.",
        "",
        "| fleet | causes found | said first | false findings | intervals that hold the ratio | top lift is the cause |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    covering = intervals = 0
    for name, plan in PLANTED.items():
        ratio = float(name.rpartition(" ")[2])
        scores = [score(replace(plan, seed=1000 + seed), ratio) for seed in range(fleets)]
        causes, found, first = (sum(getattr(s, n) for s in scores) for n in ("causes", "found", "first"))
        false = np.mean([s.false / max(s.findings, 1) for s in scores])
        covering += sum(s.covering for s in scores)
        intervals += sum(s.intervals for s in scores)
        naive = sum(s.naive for s in scores)
        out.append(
            f"| {name} | {found / causes:.2f} | {first / max(found, 1):.2f} | {false:.3f} | "
            f"{sum(s.covering for s in scores)} of {sum(s.intervals for s in scores)} | {naive / causes:.2f} |"
        )
    return [*out, f"| all | | | | **{covering / max(intervals, 1):.3f}** | |"]


def score(plan: FleetPlan, ratio: float) -> Score:
    """One planted fleet, and what is said of it."""
    fleet = simulate(random_causes(plan, CAUSES, ratio, SHARES))
    findings = correlate(fleet.observed, fleet.window).findings
    found, first, false, intervals, covering = set(), 0, 0, 0, 0
    for finding in findings:
        cause = next((p for p in fleet.planted if explains(finding, p)), None)
        if cause is None:
            false += 1
            continue
        found.add(cause)
        first += (finding.facts[0].fact, finding.facts[0].value) == cause.facts[0]
        intervals += 1
        covering += finding.ratio.low <= ratio <= finding.ratio.high
    top = naive(fleet)
    return Score(
        causes=len(fleet.planted), found=len(found), first=first, findings=len(findings), false=false,
        intervals=intervals, covering=covering, naive=sum(top.get(p.signature) == p.facts[0] for p in fleet.planted),
    )  # fmt: skip


def explains(finding: Finding, cause: Planted) -> bool:
    """Whether a finding says a planted cause, alone or as one of those that cannot be told apart."""
    said = {(each.fact, each.value) for each in finding.facts}
    return finding.direction == "more" and finding.signature == cause.signature and not said.isdisjoint(cause.facts)


def founding() -> list[str]:
    """The five founding cases."""
    out = ["The founding cases, planted:", "", "| root cause | first finding | rate ratio |", "| --- | --- | --- |"]
    for name, plan in CASES.items():
        fleet = simulate(plan)
        own = [f for f in correlate(fleet.observed, fleet.window).findings if f.signature == plan.planted[0].signature]
        if not own:
            out.append(f"| {name} | none | |")
            continue
        told = " and ".join(map(str, filter(None, (own[0].facts[0], own[0].together_with))))
        ratio = own[0].ratio
        out.append(
            f"| {name} | {told} | {ratio.value:.1f} ({ratio.low:.1f} to {ratio.high:.1f}), planted {plan.planted[0].ratio:g} |"
        )
    return out


def lifts(observed: Observed) -> list[tuple[tuple[str, str, str], float]]:
    """The highest lift of each signature, counting every crash report with its node's facts of today."""
    facts, incidents = observed.facts, observed.incidents
    order = np.argsort(facts.since, kind="stable")
    latest = np.zeros(len(observed.nodes), dtype=np.int64)
    latest[facts.node[order]] = order
    today = facts.codes[latest]
    out = []
    for number, signature in enumerate(observed.signatures):
        crashed = today[incidents.node[incidents.signature == number]]
        best: tuple[tuple[str, str, str], float] | None = None
        for i, fact in enumerate(facts.names):
            if fact in ("rack", "gpu_model"):
                continue
            size = len(facts.values[i])
            with_ = np.bincount(crashed[:, i][crashed[:, i] >= 0], minlength=size)
            usual = np.bincount(today[:, i][today[:, i] >= 0], minlength=size) / len(today)
            lift = np.divide(
                with_ / max(len(crashed), 1), usual, out=np.zeros(size), where=(with_ >= SUPPORT) & (usual > 0)
            )
            top = int(np.argmax(lift))
            if best is None or lift[top] > best[1]:
                best = (signature, fact, facts.values[i][top]), float(lift[top])
        if best is not None:
            out.append(best)
    return out


def naive(fleet: Fleet) -> dict[str, tuple[str, str]]:
    """The value with the highest lift, by signature."""
    return {signature: (fact, value) for (signature, fact, value), _ in lifts(fleet.observed)}


if __name__ == "__main__":
    main()
