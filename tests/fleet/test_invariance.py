"""What must not matter does not: how often a line is written, what facts and nodes are called, where files end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.demo.simulated_journals import write_journals
from exporter.demo.simulator import Fleet, FleetPlan, random_causes, simulate
from exporter.fleet.input.journals import load
from exporter.fleet.observations import Beats
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import Correlation

Said = list[tuple[str, frozenset[str], int, float, float]]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    plan = FleetPlan(nodes=1200, rate=40, seed=11, lemon=50.0, multi_node=0.2, reimaged=0.2, twins=2, signatures=6)
    return simulate(random_causes(plan, 2, 9.0, (0.1, 0.3)))


def said(found: Correlation) -> Said:
    return sorted(
        (f.signature, frozenset(map(str, f.facts)), f.observed, round(f.p_value, 12), round(f.ratio.value, 3))
        for f in found.findings
    )


def from_files(folder: Path, fleet: Fleet) -> Correlation:
    loaded = load(folder, now=fleet.window.end, start=fleet.window.start, end=fleet.window.end)
    return correlate(loaded.observed, loaded.window)


def test_the_fleet_has_findings_to_be_changed(fleet: Fleet) -> None:
    assert len(correlate(fleet.observed, fleet.window).findings) >= 2


def test_each_line_twice(fleet: Fleet, tmp_path: Path) -> None:
    write_journals(fleet, tmp_path / "once")
    (tmp_path / "twice").mkdir()
    for path in (tmp_path / "once").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / "twice" / path.name).write_text("".join(line * 2 for line in lines))

    assert said(from_files(tmp_path / "twice", fleet)) == said(from_files(tmp_path / "once", fleet))


def test_lines_in_any_order_in_any_number_of_files(fleet: Fleet, tmp_path: Path) -> None:
    write_journals(fleet, tmp_path / "one")
    lines = [line for path in (tmp_path / "one").iterdir() for line in path.read_text().splitlines(keepends=True)]
    np.random.default_rng(0).shuffle(lines)
    (tmp_path / "many").mkdir()
    for i in range(7):
        (tmp_path / "many" / f"{i}.jsonl").write_text("".join(lines[i::7]))

    assert said(from_files(tmp_path / "many", fleet)) == said(from_files(tmp_path / "one", fleet))


def test_nodes_permuted(fleet: Fleet) -> None:
    observed = fleet.observed
    to = np.random.default_rng(1).permutation(len(observed.nodes))
    moved = replace(
        observed,
        nodes=tuple(observed.nodes[i] for i in np.argsort(to)),
        facts=replace(observed.facts, node=to[observed.facts.node]),
        beats=replace(observed.beats, node=to[observed.beats.node]),
        incidents=replace(observed.incidents, node=to[observed.incidents.node]),
    )

    assert said(correlate(moved, fleet.window)) == said(correlate(observed, fleet.window))


def test_facts_renamed(fleet: Fleet) -> None:
    names = {
        name: name if name in ("gpu_model", "rack") else f"z{i:02}" for i, name in enumerate(fleet.observed.facts.names)
    }
    facts = replace(fleet.observed.facts, names=tuple(names.values()))
    found = said(correlate(replace(fleet.observed, facts=facts), fleet.window))
    expected = said(correlate(fleet.observed, fleet.window))

    assert [(s, o, p, r) for s, _, o, p, r in found] == [(s, o, p, r) for s, _, o, p, r in expected]


def test_heartbeats_cut_in_pieces(fleet: Fleet) -> None:
    beats = fleet.observed.beats
    cut = Beats(
        node=np.repeat(beats.node, 3),
        end=(beats.end[:, None] - beats.hours[:, None] * 3600 * np.array([2 / 3, 1 / 3, 0])).ravel(),
        hours=np.repeat(beats.hours / 3, 3),
        busy=np.repeat(beats.busy / 3, 3),
    )
    found = said(correlate(replace(fleet.observed, beats=cut), fleet.window))

    for one, other in zip(found, said(correlate(fleet.observed, fleet.window)), strict=True):
        assert one[:3] == other[:3]
        assert one[3:] == pytest.approx(other[3:], rel=1e-6)


def test_more_lines_of_the_same_crash(fleet: Fleet) -> None:
    """A storm of one job's incidents on one node is one crash."""
    rows = np.repeat(np.arange(len(fleet.observed.incidents.node)), 5)
    storm = fleet.observed.incidents.take(rows)
    storm = replace(storm, time=storm.time + np.tile(np.arange(5.0), len(fleet.observed.incidents.node)))

    assert said(correlate(replace(fleet.observed, incidents=storm), fleet.window)) == said(
        correlate(fleet.observed, fleet.window)
    )
