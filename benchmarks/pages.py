"""What the shipped rules page for: false pages a week, and how fast events are found, by scenario and size of the fleet.

`make bench ARGS='--only pages'`, or for one scenario
`python benchmarks/pages.py [--nodes 24 200 2000 10000] [--weeks 10] [--runs 10] [--only NAME …]`

Each scenario is written as time series (benchmarks/page_scenarios.py) and given to promtool, which evaluates
deploy/prometheus/rules.yml each five minutes, five times as seldom as shipped: a page comes up to four minutes earlier in
practice. The runs of a scenario are clusters of one evaluation. Only rules that pages depend on are evaluated
(benchmarks/page_rules.py). A bursty week takes a minute of CPU for 24 nodes and two for 200, the largest fleet of which
promtool takes a week; the others take seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import page_rules  # noqa: E402
from benchmarks import page_scenarios as scenarios  # noqa: E402

RULES = ROOT / "deploy/prometheus/rules.yml"
FIRING = 'ALERTS{alertstate="firing"}'
QUIET = 27 * scenarios.HOUR  # before an event: enough hours to compare with
BURSTY = "bursty week"
SLOW = {"3 crashes a day become 6": 3.0, "30 crashes a day become 60": 30.0}
TICKETS = ("GpufaultCrashRateRising", "GpufaultCrashRateHigh")
WEEK = 7 * scenarios.DAY
NODES = (24, 200, 2000, 10_000)
BURSTY_NODES = 200  # at most: a week of a larger fleet has more samples than promtool takes
MAX_SERIES = 1000  # of one evaluation: promtool refuses queries of more than 10,000 samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A cluster: its fleet, and the sample at which a page is due; None if nothing is wrong. `alert`: only this one counts.

    tickets: alerts that are due in place of a page, within ten days.
    """

    fleet: scenarios.Fleet
    due: int | None = None
    alert: str = ""
    tickets: tuple[str, ...] = ()

    @property
    def late_minutes(self) -> int:
        """So long after it is due, an alert is late."""
        return 10 * 24 * 60 if self.tickets else 15


Scenario = Callable[[int, random.Random], Run]


def _around(
    nodes: int, random_: random.Random, *, quiet: int = QUIET, after: int = 2 * scenarios.HOUR
) -> scenarios.Fleet:
    fleet = scenarios.fleet_of(nodes, quiet + after)
    return scenarios.with_crashes(fleet, scenarios.usual(fleet, random_, 1.0))


def _fifth(crashes: Sequence[scenarios.Crash]) -> int:
    return sorted(crash.at for crash in crashes)[4]


def _spiked(fleet: scenarios.Fleet, crashes: Iterator[scenarios.Crash]) -> Run:
    added = list(crashes)
    return Run(fleet=scenarios.with_crashes(fleet, added), due=_fifth(added))


def _one_rack(fleet: scenarios.Fleet, random_: random.Random, count: int = 6) -> list[int]:
    rack = random_.randrange(fleet.nodes // fleet.rack)
    return random_.sample(range(rack * fleet.rack, (rack + 1) * fleet.rack), count)


def rack(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    return _spiked(fleet, scenarios.spike(random_, QUIET, _one_rack(fleet, random_)))


def rack_on_first_day(nodes: int, random_: random.Random) -> Run:
    at = random_.randrange(1, 12) * scenarios.HOUR
    fleet = _around(nodes, random_, quiet=at)
    return _spiked(fleet, scenarios.spike(random_, at, _one_rack(fleet, random_)))


def one_cause(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    return _spiked(fleet, scenarios.spike(random_, QUIET, random_.sample(range(nodes), 8), ["new_cause"]))


def six_causes(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    return _spiked(fleet, scenarios.spike(random_, QUIET, random_.sample(range(nodes), 12), scenarios.CAUSES[:6]))


def fabric_outage(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    added = list(scenarios.fabric_outage(fleet, random_, QUIET))
    first = {crash.job: crash.at for crash in reversed(added)}
    return Run(fleet=scenarios.with_crashes(fleet, added), due=sorted(first.values())[4])


def driver(nodes: int, random_: random.Random) -> Run:
    fleet = replace(_around(nodes, random_), new_driver=range(nodes // 4))
    return _spiked(fleet, scenarios.spike(random_, QUIET, random_.sample(range(nodes // 4), 6)))


def rollout(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    fleet = replace(fleet, rollout=QUIET + random_.randrange(1, 6))
    return _spiked(fleet, scenarios.spike(random_, QUIET, _one_rack(fleet, random_)))


def scrapes_missing(nodes: int, random_: random.Random) -> Run:
    """70 minutes without scrapes of any node; the spike is in the last half hour of them."""
    fleet = _around(nodes, random_)
    blind = range(QUIET - 14, QUIET)
    run = _spiked(fleet, scenarios.spike(random_, QUIET - 6, _one_rack(fleet, random_)))
    return replace(run, fleet=replace(run.fleet, unseen=dict.fromkeys(range(nodes), blind)), due=QUIET)


def back_with_fault(nodes: int, random_: random.Random) -> Run:
    """A node is down for 90 minutes, and is back with the first lost GPU of the cluster."""
    fleet = _around(nodes, random_)
    fleet = replace(fleet, unseen={3: range(QUIET - 18, QUIET)})
    return Run(fleet=scenarios.with_crashes(fleet, [scenarios.lost_gpu(QUIET, 3)]), due=QUIET)


def third_lost_gpu(nodes: int, random_: random.Random) -> Run:
    fleet = _around(nodes, random_)
    times = (QUIET - 20 * scenarios.HOUR, QUIET - 9 * scenarios.HOUR, QUIET)
    faults = [scenarios.lost_gpu(at, node) for at, node in zip(times, random_.sample(range(nodes), 3), strict=True)]
    return Run(
        fleet=scenarios.with_crashes(fleet, faults), due=QUIET, alert="GpufaultFatalNodes"
    )  # the first has its own page


def _slow(a_day: float) -> Scenario:
    def scenario(nodes: int, random_: random.Random) -> Run:
        """Two quiet weeks, then a rate that doubles within three days."""
        fleet = scenarios.fleet_of(nodes, 4 * WEEK)
        rising = scenarios.rise(fleet, random_, a_day, 2 * WEEK)
        return Run(fleet=scenarios.with_crashes(fleet, rising), due=2 * WEEK, tickets=TICKETS)

    return scenario


def _harmless(crashes: Callable[[scenarios.Fleet, random.Random, int], Iterator[scenarios.Crash]]) -> Scenario:
    def scenario(nodes: int, random_: random.Random) -> Run:
        fleet = _around(nodes, random_, after=4 * scenarios.HOUR)
        return Run(fleet=scenarios.with_crashes(fleet, crashes(fleet, random_, QUIET)))

    return scenario


def busy_rack(nodes: int, random_: random.Random) -> Run:
    fleet = scenarios.fleet_of(nodes, QUIET + 4 * scenarios.HOUR)
    return Run(fleet=scenarios.with_crashes(fleet, scenarios.busy_rack(fleet, random_, QUIET)))


def bursty_week(nodes: int, random_: random.Random) -> Run:
    fleet = scenarios.fleet_of(nodes, 7 * scenarios.DAY)
    return Run(fleet=scenarios.with_crashes(fleet, scenarios.bursty_week(fleet, random_)))


SCENARIOS: dict[str, Scenario] = {
    "6 of one rack": rack,
    "6 of one rack, first day": rack_on_first_day,
    "6 of one rack, pods replaced": rollout,
    "6 of one rack, 70 min without scrapes": scrapes_missing,
    "6 with a new driver": driver,
    "8 nodes, a new cause": one_cause,
    "12 nodes over 6 causes": six_causes,
    "10 jobs without connections, unexplained": fabric_outage,
    "back after 90 min with a lost GPU": back_with_fault,
    "third lost GPU within a day": third_lost_gpu,
    **{name: _slow(a_day) for name, a_day in SLOW.items()},
    "one user's loop on 4 nodes": _harmless(scenarios.loop),
    "one job of 5 nodes": _harmless(lambda fleet, random_, at: scenarios.job(fleet, random_, at, 5)),
    "one job of 64 nodes": _harmless(lambda fleet, random_, at: scenarios.job(fleet, random_, at, 64)),
    "one job of 16 nodes, partly not named": _harmless(scenarios.partly_named),
    "one job of 64 nodes, unexplained": _harmless(
        lambda fleet, random_, at: scenarios.unexplained(fleet, random_, at, 64)
    ),
    "one JobSet of 8 pods": _harmless(scenarios.job_set),
    "9 in a rack that has 3 an hour": busy_rack,
    "scancel of an array on 8 nodes": _harmless(scenarios.cancelled_array),
    BURSTY: bursty_week,
}


@dataclass(frozen=True, slots=True)
class Page:
    """The start of a page: its alert, its cluster, its sample."""

    alert: str
    cluster: str
    at: int


def weight(fleet: scenarios.Fleet) -> int:
    """About as many series as a rule reads of a fleet."""
    return len(fleet.racks()) + 2 * len({(crash.node, crash.cause, crash.verdict) for crash in fleet.crashes})


def batches(runs: Sequence[Run]) -> Iterator[dict[str, Run]]:
    """The runs by name, so many at a time as promtool takes."""
    batch: dict[str, Run] = {}
    for number, run in enumerate(runs):
        if batch and sum(weight(r.fleet) for r in batch.values()) + weight(run.fleet) > MAX_SERIES:
            yield batch
            batch = {}
        batch[str(number)] = run
    yield batch


def pages(runs: Mapping[str, Run], folder: Path) -> list[Page]:
    """What the rules page for in each run; the cluster of a page is the run's name."""
    samples = max(run.fleet.samples for run in runs.values())
    asked = f"timestamp({FIRING}) unless {FIRING} offset {scenarios.SAMPLE_MINUTES}m"
    tickets = next(iter(runs.values())).tickets
    rules = page_rules.paging(RULES.read_text(encoding="utf-8"), scenarios.GIVEN, tickets)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    path = folder / "test.yaml"
    with path.open("w") as file:
        file.write(f"rule_files: [rules.yaml]\nevaluation_interval: {scenarios.SAMPLE_MINUTES}m\n")
        file.write(f"group_eval_order: [{', '.join(group['name'] for group in rules['groups'])}]\n")
        file.write(f"tests:\n  - interval: {scenarios.SAMPLE_MINUTES}m\n    input_series:\n")
        for cluster, run in runs.items():
            for name, values in scenarios.series(cluster, run.fleet):
                file.write(f"      - {{series: '{name}', values: '{values}'}}\n")
        file.write("    promql_expr_test:\n")
        for sample in range(samples):
            minutes = sample * scenarios.SAMPLE_MINUTES
            file.write(f"      - {{eval_time: {minutes}m, expr: {json.dumps(asked)}}}\n")
    done = subprocess.run(["promtool", "test", "rules", str(path)], check=False, capture_output=True, text=True)
    return [page for page in _read(done.stdout + done.stderr) if runs[page.cluster].alert in ("", page.alert)]


def _read(output: str) -> Iterator[Page]:
    """The samples that promtool got where none was expected."""
    if "err:" in output or ("got:" not in output and "SUCCESS" not in output):
        raise RuntimeError(output[:2000])
    for got in re.findall(r"^ +got: (.+)$", output, re.MULTILINE):
        for labels, value in re.findall(r"\{([^}]*)\} ([0-9.E+]+)", got):
            named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            yield Page(named["alertname"], named["cluster"], round(float(value)) // 60 // scenarios.SAMPLE_MINUTES)


def row(name: str, nodes: int, count: int, seed: int, folder: Path) -> str:
    """One line of the table."""
    runs = [SCENARIOS[name](nodes, random.Random(f"{name} {nodes} {seed} {run}")) for run in range(count)]
    found = [page for batch in batches(runs) for page in pages(batch, folder)]
    false, delays = 0, []
    for number, run in enumerate(runs):
        of_run = [page for page in found if page.cluster == str(number)]
        right = [] if run.due is None else [page for page in of_run if page.at >= run.due - scenarios.HOUR // 2]
        false += len(of_run) - len(right)
        delays += [(min(page.at for page in right) - (run.due or 0)) * scenarios.SAMPLE_MINUTES] if right else []
    weeks = sum(run.fleet.samples for run in runs) / 7 / scenarios.DAY
    alerts = ", ".join(sorted({page.alert.removeprefix("Gpufault") for page in found}))
    if runs[0].due is None:
        return f"| {name} | {nodes:,} | {false} in {weeks:.1f} weeks | – | {alerts} |"
    in_time = sum(delay <= runs[0].late_minutes for delay in delays)
    slowest = f", after at most {_duration(max(delays))}" if delays else ""
    return f"| {name} | {nodes:,} | {false} in {weeks:.1f} weeks | {in_time} of {count}{slowest} | {alerts} |"


def _duration(minutes: int) -> str:
    return f"{minutes} min" if minutes < 600 else f"{minutes / 60 / 24:.1f} days"


def table(names: Sequence[str], sizes: Sequence[int], *, runs: int, weeks: int, seed: int = 1) -> Iterator[str]:
    yield "| scenario | nodes | false pages | found in time | alerts |"
    yield "|---|---|---|---|---|"
    for name in names:
        for nodes in (size for size in sizes if name != BURSTY or size <= BURSTY_NODES):
            with tempfile.TemporaryDirectory() as folder:
                yield row(name, nodes, weeks if name == BURSTY else runs, seed, Path(folder))


def section(*, quick: bool) -> Iterator[str]:
    """Part of docs/performance.md. Quick: one cluster of 24 nodes of each scenario that takes no week."""
    yield "## Pages\n"
    yield "Simulated fleets, and the shipped rules in promtool. A page is in time within 15 minutes of the fifth crash, a"
    yield "ticket for a rate that rises slowly within 10 days of the beginning.\n"
    names = [name for name in SCENARIOS if not quick or name not in (BURSTY, *SLOW)]
    yield from table(names, NODES[:1] if quick else NODES, runs=1 if quick else 10, weeks=10)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    parser.add_argument("--runs", type=int, default=10, help="clusters of each scenario (default: 10)")
    parser.add_argument("--weeks", type=int, default=10, help="weeks of a bursty fleet (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    asked = parser.parse_args(argv)
    for line in table(asked.only, asked.nodes, runs=asked.runs, weeks=asked.weeks, seed=asked.seed):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
