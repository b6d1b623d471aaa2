"""Lemons, changes, exposed nodes, reliability: what else a window tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exporter.fleet.observations import Incidents, Window
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import FactValue
from exporter.fleet.statistics.rates import interval

from .small import DAY, START, WEEK, fleet

pytestmark = pytest.mark.heavy

FLEET = [(f"n{i:03}", 0, {"color": str(i % 2), "gpu_count": "8"}) for i in range(200)]


def usual(every: int = 20) -> list[tuple[str, float, str, str | None]]:
    """One crash on every twentieth node."""
    return [(f"n{i:03}", (i % 7) + 0.5 + i / 1000, "x", f"u{i}") for i in range(0, 200, every)]


def with_gpu(incidents: Incidents, gpu: str) -> Incidents:
    return replace(incidents, gpu=np.full(len(incidents.node), gpu, dtype=object))


def test_a_node_that_crashes_every_day_under_job_after_job_is_a_lemon() -> None:
    found = correlate(
        fleet(FLEET, [*usual(), *(("n007", d + 0.1, "x", f"j{d}") for d in range(6))]), WEEK
    ).outlier_nodes

    assert [(each.kind, each.name, each.incidents, each.jobs, each.days) for each in found] == [
        ("node", "n007", 6, 6, 6)
    ]


def test_one_job_in_a_loop_makes_no_lemon() -> None:
    rows = [("n007", d + 0.1, f"x{d}", "same") for d in range(6)]

    assert correlate(fleet(FLEET, [*usual(), *rows]), WEEK).outlier_nodes == ()


def test_many_jobs_of_one_day_make_no_lemon() -> None:
    rows = [("n007", 2 + d / 10, "x", f"j{d}") for d in range(6)]

    assert correlate(fleet(FLEET, [*usual(), *rows]), WEEK).outlier_nodes == ()


def test_a_lemon_gpu_is_followed_to_its_next_node() -> None:
    slot = "gpu_serial.0000:c1:00.0"
    facts = [(n, d, {**known, slot: f"S{n}"}) for n, d, known in FLEET]
    facts += [("n007", 3, {**FLEET[7][2], slot: "new"}), ("n150", 3, {**FLEET[150][2], slot: "Sn007"})]
    rows = [("n007", 0.6, "x", "a"), ("n007", 1.6, "x", "b"), ("n150", 4.5, "x", "c"), ("n150", 5.5, "x", "d")]
    observed = fleet(facts, [*usual(25), *rows])
    observed = replace(observed, incidents=with_gpu(observed.incidents, "0000:c1:00.0"))
    gpus = [each for each in correlate(observed, WEEK).outlier_nodes if each.kind == "gpu"]

    assert [(each.name, each.node, each.incidents) for each in gpus] == [
        ("Sn007", "n150", 5)
    ]  # one of them is a usual crash of n150


def test_nodes_under_a_finding_that_have_not_crashed_are_exposed_with_the_crashes_to_expect() -> None:
    facts = [(f"n{i:03}", 0, {"color": "red" if i % 5 == 0 else "blue"}) for i in range(400)]
    incidents = [(f"n{i:03}", (i % 7) + 0.3 + i / 1000, "x", str(i)) for i in range(0, 200, 5)]
    found = correlate(fleet(facts, incidents), WEEK)

    assert str(found.findings[0].facts[0]) == "color=red"
    assert [(each.because, each.status, each.count) for each in found.exposed] == [("color=red", "candidate", 40)]
    assert set(found.exposed[0].nodes) == {f"n{i:03}" for i in range(200, 400, 5)}
    assert found.exposed[0].expected_7d == pytest.approx(20.0, rel=0.01)  # 40 crashes of 80 nodes a week


def test_a_week_under_a_rollout_is_expected_to_be_as_the_days_since_it() -> None:
    facts = [
        (f"n{i:03}", day, {"color": color})
        for i in range(400)
        for day, color in ((0, "blue"), (21, "red"))[: 1 + (i % 5 == 0)]
    ]
    incidents = [(f"n{i:03}", 21 + (i % 7) + 0.3 + i / 1000, "x", str(i)) for i in range(0, 200, 5)]
    window = replace(WEEK, end=WEEK.start + 28 * 86400)
    found = correlate(fleet(facts, incidents, days=28), window)

    (at_risk,) = {each.because: each for each in found.exposed}.values()
    assert (at_risk.because, at_risk.count) == ("color=red", 40)
    assert at_risk.expected_7d == pytest.approx(20.0, rel=0.05)  # 40 crashes of 80 nodes in the week since


def test_nodes_under_a_cause_of_the_catalogue_are_exposed_without_any_crash() -> None:
    found = correlate(fleet(FLEET), WEEK, causes={"bad_driver": ("x", [3, 4])})

    assert [(each.because, each.nodes, each.expected_7d) for each in found.exposed] == [
        ("bad_driver", ("n003", "n004"), 0.0)
    ]


def upgraded(rate_before: float, rate_after: float, controls: float, seed: int = 0) -> list[tuple[str, str, int, int]]:
    """What 150 of 450 nodes show, upgraded on day 14 of 28, crashing at these rates a day."""
    rng = np.random.default_rng(seed)
    facts, incidents = [], []
    for i in range(450):
        node = f"n{i:03}"
        facts.append((node, 0.0, {"driver": "1", "color": str(i % 3)}))
        if i < 150:
            facts.append((node, 14.0, {"driver": "2", "color": str(i % 3)}))
        for day in range(28):
            rate = controls if i >= 150 else rate_before if day < 14 else rate_after
            if rng.random() < rate:
                incidents.append((node, day + float(rng.random()), "x", f"{i}-{day}"))
    window = replace(WEEK, end=WEEK.start + 28 * 86400)
    effects = [f.rollout for f in correlate(fleet(facts, incidents, days=28), window).findings if f.rollout]
    return [
        (e.rollout.facts[0].fact, e.rollout.facts[0].value, int(e.ratio.value > 1), e.crashes_before < e.observed)
        for e in effects
    ]


def test_an_upgrade_that_makes_it_worse_is_found() -> None:
    assert upgraded(0.005, 0.05, 0.005) == [("driver", "2", 1, True)]


def test_an_upgrade_that_helps_is_found() -> None:
    assert upgraded(0.05, 0.003, 0.05) == [("driver", "2", 0, False)]


def test_an_upgrade_that_changes_nothing_is_found_no_more_often_than_the_gate_allows() -> None:
    assert sum(bool(upgraded(0.02, 0.02, 0.02, seed)) for seed in range(15)) <= 2


def test_mean_hours_between_crashes_come_with_an_exact_interval() -> None:
    """Ten events: 4.80 to 18.39 (Garwood 1936)."""
    low, high = interval(10, 1000.0)

    assert (1000 / high, 1000 / low) == pytest.approx((4.795, 18.39), rel=1e-3)
    assert interval(0, 1000.0)[1] == np.inf


def test_reliability_counts_gpu_hours() -> None:
    found = correlate(fleet(FLEET, [("n000", 1, "x", "7"), ("n001", 1.0001, "x", "7")]), WEEK)

    assert [(r.gpu_model, round(r.hours), r.incidents) for r in found.reliability] == [("unknown", 200 * 168 * 8, 1)]


def test_facts_print_as_people_write_them() -> None:
    assert str(FactValue(fact="rocm_version", value="6.3.*")) == "rocm_version=6.3.*"


def test_a_node_that_is_bad_in_a_week_is_bad_in_the_month_that_holds_it() -> None:
    facts = [(f"n{i:03}", 0.0, {"os": "1"}) for i in range(400)]
    rng = np.random.default_rng(3)
    usual = [(f"n{i:03}", rng.uniform(0, 28), "crash", f"u{i}") for i in rng.integers(8, 400, 300).tolist()]
    bad = [("n007", 12.1 + i * 0.9, "crash", f"b{i}") for i in range(6)]
    month = Window(start=START, end=START + 28 * DAY)

    (found,) = correlate(fleet(facts, [*usual, *bad], days=28), month).outlier_nodes
    assert (found.name, found.incidents, found.jobs, found.within_days) == ("n007", 6, 6, 7)


def test_the_card_that_has_a_bad_nodes_crashes_is_named() -> None:
    facts = [(f"n{i:03}", 0.0, {"os": "1"}) for i in range(100)]
    observed = fleet(facts, [*((f"n{i:03}", 1.0 + i / 50, "x", f"u{i}") for i in range(0, 100, 4)),
                             *(("n001", 0.5 + i / 2, "x", f"b{i}") for i in range(9))])  # fmt: skip
    gpu = np.where(observed.incidents.node == 1, "0000:c1:00.0", "").astype(object)
    found = correlate(replace(observed, incidents=replace(observed.incidents, gpu=gpu)), WEEK).outlier_nodes

    assert [(bad.name, bad.gpu) for bad in found] == [("n001", "0000:c1:00.0")]
