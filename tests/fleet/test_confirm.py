"""Confirmation: one later window decides, however often one looks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.core.text.problems import InvalidInput
from exporter.demo.simulator import FleetPlan, Planted, simulate
from exporter.fleet.observations import Observed, Window
from exporter.fleet.results import stored_findings
from exporter.fleet.statistics.confirm import e_value
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.screen import Cells

from .small import DAY

RED = Planted(signature="crash", facts=(("color", "red"),), ratio=12)
TWO = (("color", (("red", 0.2), ("blue", 0.8))),)
FLEET = simulate(FleetPlan(nodes=1500, rate=20, days=21, planted=(RED,), fixed=TWO, seed=1))
START = FLEET.window.start


def week(day: float) -> Window:
    return Window(start=START + day * DAY, end=START + (day + 7) * DAY)


def without_crashes_after(day: float) -> Observed:
    incidents = FLEET.observed.incidents
    return replace(FLEET.observed, incidents=incidents.take(incidents.time < START + day * DAY))


def test_a_finding_is_confirmed_by_the_first_window_that_shares_nothing_with_its_own() -> None:
    remembered = remember(correlate(FLEET.observed, week(0)), ())
    soon = correlate(FLEET.observed, week(6.9), remembered)
    later = correlate(FLEET.observed, week(7), remember(soon, remembered))

    assert [f.status for f in soon.findings] == ["candidate"]
    assert [f.status for f in later.findings] == ["confirmed"]
    assert later.findings[0].first_seen == week(0)


def test_who_looks_every_day_confirms_within_the_week() -> None:
    busy = simulate(FleetPlan(nodes=1500, rate=80, days=14, signatures=2, planted=(RED,), fixed=TWO, seed=2)).observed
    remembered = remember(correlate(busy, week(0)), ())
    for day in np.arange(1.0, 7.0).tolist():
        found = correlate(busy, week(day), remembered)
        remembered = remember(found, remembered)
        if any(f.status == "confirmed" for f in found.findings):
            break
    confirmed = next(f.confirmation for f in found.findings if f.confirmation)

    assert day < 7
    assert confirmed.window == Window(start=week(0).end, end=week(day).end)  # none of the crashes of the discovery
    assert confirmed.p_value <= 0.05
    assert remembered[0].watched


def test_whether_a_finding_was_watched_is_stored(tmp_path: Path) -> None:
    remembered = tuple(replace(old, watched=True) for old in remember(correlate(FLEET.observed, week(0)), ()))
    stored_findings.write(tmp_path / "findings.json", remembered)

    assert len(remembered) == 1
    assert stored_findings.read(tmp_path / "findings.json") == remembered


def test_findings_are_stored_in_the_form_that_earlier_versions_read(tmp_path: Path) -> None:
    first, second = ({"start": start, "end": start + 1.0} for start in (1.0, 2.0))
    finding = {
        "signature": "gpu_oom", "direction": "more", "facts": [{"fact": "rack", "value": "r1"}], "together_with": None,
        "found_in": first, "confirmed_in": second, "watched": False,
    }  # fmt: skip
    path = tmp_path / "findings.json"
    path.write_text(json.dumps({"version": 1, "findings": [finding]}))
    stored_findings.write(path, stored_findings.read(path))
    assert json.loads(path.read_text()) == {"version": 1, "findings": [finding]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Invalid JSON"),
        ('{"version": 2, "findings": []}', "version: "),
        ('{"version": 1, "findings": [{"signature": "s", "direction": "less"}]}', "findings.0.direction: "),
    ],
)
def test_another_file_is_not_taken_for_findings(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "findings.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=rf"findings.json:1:1: not a file of findings \({re.escape(reason)}"):
        stored_findings.read(path)


def test_an_e_value_passes_20_in_fewer_than_one_of_twenty_cases_however_often_it_is_looked_at() -> None:
    rng = np.random.default_rng(1)
    share, passed = 0.2, 0
    for _ in range(2000):
        with_ = np.cumsum(rng.random(200) < share)
        looks = [
            Cells(
                crashes=np.array([float(n)]), observed=np.array([float(with_[n - 1])]),
                everyone=np.array([1.0]), having=np.array([share]),
            )
            for n in range(5, 201, 5)
        ]  # fmt: skip
        passed += any(e_value(each, more=True) >= 20 for each in looks)

    assert 0 < passed <= 100


def test_what_the_later_window_does_not_confirm_is_forgotten_and_asked_no_second_time() -> None:
    observed = without_crashes_after(7)
    remembered = remember(correlate(observed, week(0)), ())
    assert len(remembered) == 1
    assert remember(correlate(observed, week(6.9), remembered), remembered) == (replace(remembered[0], watched=True),)
    assert remember(correlate(observed, week(7), remembered), remembered) == ()


def test_what_is_found_again_begins_anew() -> None:
    old = replace(remember(correlate(FLEET.observed, week(0)), ())[0], signature="another")
    found = correlate(FLEET.observed, week(7), (old,))

    assert [(r.signature, r.discovered_in) for r in remember(found, (old,))] == [("crash", week(7))]


def test_what_is_confirmed_stays_so() -> None:
    remembered = remember(correlate(FLEET.observed, week(0)), ())
    confirmed = remember(correlate(FLEET.observed, week(7), remembered), remembered)
    quiet = correlate(without_crashes_after(14), week(14), confirmed)

    assert confirmed[0].confirmed_in == week(7)
    assert remember(quiet, confirmed) == confirmed
    assert quiet.findings == ()
