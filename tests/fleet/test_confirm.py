"""Confirmation: one later window decides, however often one looks."""

from __future__ import annotations

from dataclasses import replace

from exporter.demo.simulator import Plan, Planted, simulate
from exporter.fleet.observations import Observed, Window
from exporter.fleet.statistics.correlate import correlate, remember

from .small import DAY

RED = Planted(signature="crash", facts=(("color", "red"),), ratio=12)
TWO = (("color", (("red", 0.2), ("blue", 0.8))),)
FLEET = simulate(Plan(nodes=1500, rate=20, days=21, planted=(RED,), fixed=TWO, seed=1))
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


def test_what_the_later_window_does_not_confirm_is_forgotten_and_asked_no_second_time() -> None:
    observed = without_crashes_after(7)
    remembered = remember(correlate(observed, week(0)), ())
    assert len(remembered) == 1
    assert remember(correlate(observed, week(6.9), remembered), remembered) == remembered
    assert remember(correlate(observed, week(7), remembered), remembered) == ()


def test_what_is_found_again_begins_anew() -> None:
    old = replace(remember(correlate(FLEET.observed, week(0)), ())[0], signature="another")
    found = correlate(FLEET.observed, week(7), (old,))

    assert [(r.signature, r.found_in) for r in remember(found, (old,))] == [("crash", week(7))]


def test_what_is_confirmed_stays_so() -> None:
    remembered = remember(correlate(FLEET.observed, week(0)), ())
    confirmed = remember(correlate(FLEET.observed, week(7), remembered), remembered)
    quiet = correlate(without_crashes_after(14), week(14), confirmed)

    assert confirmed[0].confirmed_in == week(7)
    assert remember(quiet, confirmed) == confirmed
    assert quiet.findings == ()
