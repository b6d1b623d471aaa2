"""What cannot be what it claims is reported as a gap: two machines of one name, clocks that are hours off."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from exporter.demo.simulator import FleetPlan, simulate
from exporter.fleet.input.journals import load
from exporter.fleet.observations import Beats, Gap, Observed
from exporter.fleet.statistics.correlation import correlate

from .small import DAY, START, WEEK, fleet

BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
Record = Mapping[str, Any]


def gap(gaps: Sequence[Gap], kind: str) -> str:
    return next((each.message for each in gaps if each.kind == kind), "")


def beats(node: str, off: timedelta = timedelta(), days: int = 3, late: int = 0) -> list[Record]:
    times = [BEGIN + timedelta(hours=6 * i) + off for i in range(1 + 4 * late, 4 * days + 1)]
    facts = {"kind": "facts", "time": (BEGIN + off).isoformat(), "node": node, "facts": {"driver_version": "1"}}
    return [facts, *({"kind": "heartbeat", "time": t.isoformat(), "node": node, "hours": 6} for t in times)]


def loaded(folder: Path, records: Sequence[Record]) -> Sequence[Gap]:
    (folder / "j.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    now = (BEGIN + timedelta(days=30)).timestamp()
    return load(folder, now=now, span=3 * DAY).observed.gaps


def test_a_node_whose_records_all_lie_hours_before_or_after_the_others_is_named(tmp_path: Path) -> None:
    usual = [record for i in range(20) for record in beats(f"n{i:02}")]
    odd = [*beats("ahead", timedelta(hours=5)), *beats("behind", timedelta(hours=-3))]
    told = gap(loaded(tmp_path, [*usual, *odd]), "clock_off")

    assert "ahead (+5.0 h), behind (-3.0 h)" in told


def test_a_late_a_silent_and_a_slightly_wrong_node_are_not_taken_for_wrong_clocks(tmp_path: Path) -> None:
    usual = [record for i in range(20) for record in beats(f"n{i:02}", timedelta(minutes=i))]
    odd = [*beats("late", late=1), *beats("silent", days=2)]

    assert gap(loaded(tmp_path, [*usual, *odd]), "clock_off") == ""


def test_a_node_that_crashes_hours_after_the_other_nodes_of_its_jobs_is_named(tmp_path: Path) -> None:
    records = [record for i in range(8) for record in beats(f"n{i}", days=2 + i % 2, late=i % 2)]
    records += [
        {
            "kind": "incident", "id": f"{job}-{i}", "node": f"n{i}", "signature": "x", "job": {"id": job}, "role": "root",
            "time": (BEGIN + timedelta(days=1, hours=4 if i == 3 else 0, seconds=i)).isoformat(),
        }
        for job in ("1", "2")
        for i in range(8)
    ]  # fmt: skip

    assert "n3 (+4.0 h)" in gap(loaded(tmp_path, records), "clock_off")


def small(rows: Sequence[tuple[str, float, Mapping[str, str]]]) -> Observed:
    return fleet([*rows, *((f"m{i}", 0.0, {"gpu_serial.0": f"s{i}"}) for i in range(5))])


def test_facts_that_change_to_and_fro_are_two_machines_of_one_name() -> None:
    both = [("twin", float(day), {"gpu_serial.0": "ab"[day % 2]}) for day in range(6)]
    swapped = [("repaired", float(day), {"gpu_serial.0": serial}) for day, serial in enumerate("cdc")]
    told = gap(correlate(small([*both, *swapped]), WEEK).gaps, "duplicate_names")

    assert "1 in all" in told
    assert "twin" in told


def test_heartbeats_that_overlap_are_two_machines_of_one_name() -> None:
    observed = small([("twin", 0.0, {"gpu_serial.0": "a"})])
    own = np.full(7, observed.nodes.index("twin"))
    more = START + DAY * (np.arange(7) + 0.5)
    doubled = Beats(
        node=np.concatenate([observed.beats.node, own]), end=np.concatenate([observed.beats.end, more]),
        hours=np.concatenate([observed.beats.hours, np.full(7, 24.0)]),
        busy=np.concatenate([observed.beats.busy, np.full(7, np.nan)]),
    )  # fmt: skip
    told = correlate(Observed(nodes=observed.nodes, signatures=(), facts=observed.facts, beats=doubled,
                              incidents=observed.incidents), WEEK)  # fmt: skip

    assert "twin" in gap(told.gaps, "duplicate_names")
    assert not told.complete


def test_a_sound_fleet_has_no_such_gaps() -> None:
    fleet_ = simulate(FleetPlan(nodes=300, rate=20, reimaged=0.5, repaired=0.5, days=14))

    assert correlate(fleet_.observed, fleet_.window).gaps == ()
