"""`gpufault simulate`: writes the history of a fleet with known causes, to test the correlator and the pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli import options as flags
from exporter.cli.options import moment, seconds
from exporter.core.text.phrases import counted

if TYPE_CHECKING:
    from exporter.demo.simulator import Fleet, FleetPlan

DESCRIPTION = (
    "Writes the journals of a simulated fleet into a new or empty folder, for `gpufault correlate --journal`, or what a "
    "Prometheus would have scraped from it, for `promtool tsdb create-blocks-from openmetrics`. One seed, one fleet."
)
NUMBERS = (  # of a plan, with the names of their flags
    "nodes", "seed", "rate", "facts", "signatures", "lemon", "reimaged", "repaired", "renamed", "missing",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "output", nargs="?", metavar="OUTPUT", help="a folder, or a file with --format openmetrics (- is stdout)"
    )
    parser.add_argument("--format", default="journal", choices=("journal", "openmetrics"), help="default: journal")
    parser.add_argument(
        "--case",
        metavar="CASE",
        help="`review`, six weeks of a fleet for the pages and the report, or a founding case by its root cause; `list` "
        "names them",
    )
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="number of nodes; default: 2000, or the number of the case"
    )
    parser.add_argument("--window", metavar="7d", help="length of the window; default: 7d")
    parser.add_argument(
        "--end", metavar="TIME", help="RFC 3339 or Unix seconds; default: fixed, so that one seed gives one fleet"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="default: 0")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="crashes per 1,000 busy node-days; default: 6.5, or 60 with --causes, --rollouts or --team",
    )
    parser.add_argument("--facts", type=int, metavar="N", help="default: 24")
    parser.add_argument("--signatures", type=int, metavar="N", help="default: 12")
    parser.add_argument(
        "--causes", type=int, default=0, metavar="N", help="number of causes to plant at random; default: 0"
    )
    parser.add_argument(
        "--rate-ratio", type=float, default=8.0, metavar="R", help="rate ratio of each planted cause; default: 8"
    )
    parser.add_argument("--lemon", type=float, metavar="R", help="how much worse one node in a hundred is")
    parser.add_argument("--reimaged", type=float, metavar="SHARE", help="share of crashed nodes that get a new image")
    parser.add_argument(
        "--repaired",
        type=float,
        metavar="SHARE",
        help="share of crashed nodes that get new firmware 4 to 12 days later",
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        default=0,
        metavar="N",
        help="number of rollouts to plant, with --rate-ratio; default: 0",
    )
    parser.add_argument(
        "--team", type=int, default=0, metavar="N", help="number of users with a program that crashes; default: 0"
    )
    parser.add_argument("--renamed", type=float, metavar="SHARE", help="share of nodes that get another name")
    parser.add_argument("--missing", type=float, metavar="SHARE", help="share of nodes whose journals are missing")
    parser.add_argument(
        "--without-jobs", action="store_true", help="omit jobs; the nodes of each job crash within ten minutes"
    )
    parser.add_argument("--heartbeat", metavar="6h", help="interval of heartbeats; default: 6h")


def run(options: argparse.Namespace) -> int:
    from exporter.demo import review_case
    from exporter.demo.founding_cases import CASES
    from exporter.demo.simulator import simulate

    cases = [review_case.NAME, *CASES]
    if options.case == "list":
        print("\n".join(cases))
        return 0
    if options.output is None:
        raise flags.UsageError("give OUTPUT, a folder that is new or empty")
    if options.case and options.case not in cases:
        raise flags.UsageError(f"{options.case!r} is not a case; use one of: {', '.join(cases)}")
    if (small := _too_small(options)) is not None:
        raise flags.UsageError(f"--{small.replace('_', '-')} is too small")
    plan = _plan(options)
    fleet = review_case.simulate_review(plan) if options.case == review_case.NAME else simulate(plan)
    _write(fleet, options)
    for sentence in _planted(fleet):
        print(sentence, file=sys.stderr)
    return 0


def _given(options: argparse.Namespace) -> dict[str, float]:
    """The numbers of a plan that the command line gives."""
    return {name: value for name in NUMBERS if (value := getattr(options, name)) is not None}


def _too_small(options: argparse.Namespace) -> str | None:
    least = {"nodes": 1, "signatures": 1}
    return next((name for name, value in _given(options).items() if value < least.get(name, 0)), None)


def _plan(options: argparse.Namespace) -> FleetPlan:
    """The plan of a case, or the usual one, with what the command line changes. Raises InvalidInput."""
    from exporter.demo import review_case
    from exporter.demo.founding_cases import CASES
    from exporter.demo.simulator import PLANTED_RATE, FleetPlan, random_causes, random_rollouts, random_team

    given: dict[str, Any] = _given(options)
    if options.heartbeat:
        given["beat_hours"] = seconds("--heartbeat", options.heartbeat) / 3600
    if options.window:
        given["days"] = seconds("--window", options.window) / 86400
    if options.rate is None and not options.case and (options.causes or options.rollouts or options.team):
        given["rate"] = PLANTED_RATE
    if options.case == review_case.NAME:
        usual = review_case.plan(**{name: given[name] for name in ("nodes", "days", "seed") if name in given})
    else:
        usual = CASES.get(options.case) or FleetPlan()
    plan = replace(usual, **given, without_jobs=options.without_jobs)
    if (end := moment("--end", options.end)) is not None:
        plan = replace(plan, start=end - plan.days * 86400)
    if options.causes:
        plan = random_causes(plan, options.causes, options.rate_ratio)
    if options.rollouts:
        plan = random_rollouts(plan, options.rollouts, options.rate_ratio)
    if options.team:
        plan = random_team(plan, options.team, options.rate_ratio)
    return plan


def _write(fleet: Fleet, options: argparse.Namespace) -> None:
    """Write the fleet to OUTPUT. Raises OSError."""
    from exporter.demo import review_case
    from exporter.demo.review_crashes import write_review
    from exporter.demo.simulated_journals import write_journals, write_openmetrics

    if options.format == "openmetrics":
        with nullcontext(sys.stdout) if options.output == "-" else open(options.output, "w", encoding="utf-8") as file:
            write_openmetrics(fleet, file)
        return
    folder = Path(options.output)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty; two fleets in one folder would be read as one")
    lines = write_review(fleet, folder) if options.case == review_case.NAME else write_journals(fleet, folder)
    print(f"{folder}: {counted(lines, 'record')} of {counted(len(fleet.observed.nodes), 'node')}", file=sys.stderr)


def _planted(fleet: Fleet) -> Iterator[str]:
    """One sentence for each planted cause, rollout and team."""
    for cause in fleet.planted:
        facts = " and ".join(f"{fact}={value}" for fact, value in cause.facts)
        yield f"planted: {cause.signature} {cause.ratio:g} times as frequent with {facts}"
    for rollout in fleet.plan.rollouts:
        facts = " and ".join([rollout.fact, *(fact for fact, *_ in rollout.together)])
        changed = f"{facts} {rollout.before} to {rollout.after} on {rollout.share:.0%} of the nodes"
        begins = f"from day {rollout.begin_days:g} on for {rollout.over_days:g} days"
        effect = f"{rollout.signature} {rollout.ratio:g} times as frequent {rollout.onset_hours:g} h after the change"
        yield f"rollout: {changed}, {begins}; {effect}"
    for team in fleet.plan.teams:
        where = "=".join(team.fact)
        yield f"team: {team.users} users whose program crashes with {team.signature} on {where}"
