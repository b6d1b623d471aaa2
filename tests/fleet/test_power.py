"""What little data can show: a drastic effect on 24 nodes is found, chance is not, and a rare value that all crashes share
is a lead with its exact p-value.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import NotEnough
from exporter.fleet.statistics.power import crashes_that_decide, smallest_ratio

from .small import WEEK, few_nodes, fleet


def found(seed: int, *, planted: bool) -> set[str]:
    return {str(fact) for f in correlate(few_nodes(seed, planted=planted), WEEK).findings for fact in f.facts}


def test_a_fact_that_all_six_crashed_nodes_and_no_others_have_is_found_on_24_nodes() -> None:
    hits = sum("cause=bad" in found(seed, planted=True) for seed in range(10))

    assert hits >= 9


def test_six_random_crashes_on_24_nodes_give_no_findings() -> None:
    assert [found(seed, planted=False) for seed in range(10)] == [set()] * 10


@pytest.mark.nightly
def test_over_100_small_fleets_nine_in_ten_causes_are_found_and_chance_in_one_of_fifty() -> None:
    assert sum("cause=bad" in found(1000 + seed, planted=True) for seed in range(100)) >= 90
    assert sum(bool(found(1000 + seed, planted=False)) for seed in range(100)) <= 2


def test_the_result_says_what_the_fleet_can_show() -> None:
    facts = [(f"n{i:02}", 0.0, {"color": str(i % 3)}) for i in range(24)]
    result = correlate(fleet(facts, [(f"n{i:02}", 1 + i / 10, "crash", str(i)) for i in range(6)]), WEEK)
    told = to_json(result)["detectable"]

    assert told["crashes"] == 6
    assert [row["share"] for row in told["rate_ratios"]] == [0.1, 0.25, 0.5]
    assert "The most frequent signature crashed on 6 nodes, which can show" in text(result)


def test_the_result_says_so_if_no_ratio_can_be_shown() -> None:
    facts = [(f"n{i:02}", 0.0, {"color": str(i % 3)}) for i in range(24)]
    result = correlate(fleet(facts, [("n01", 1, "crash", "1")]), WEEK)
    assert "The most frequent signature crashed on 1 node, too few to show any rate ratio." in " ".join(
        text(result).split()
    )


def test_more_crashes_show_smaller_effects() -> None:
    ratios = [smallest_ratio(0.25, crashes, 1000, p_cut=1e-3) for crashes in (3, 10, 40, 160)]

    assert ratios[0] == math.inf
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < 2.5


def test_a_strong_effect_needs_few_crashes_to_decide() -> None:
    due = [crashes_that_decide(ratio) for ratio in (math.inf, 10.0, 3.0, 1.05)]

    assert due[0] == (pytest.approx(3.0, abs=0.01), 0)  # of three that are due, none remains
    assert due == [*sorted(due[:-1]), (math.inf, 0)]


def test_a_finding_says_what_it_was_adjusted_for_and_which_experiment_decides() -> None:
    finding = to_json(correlate(few_nodes(0, planted=True), WEEK))["findings"][0]

    assert finding["adjusted_for"] == ["day", "earlier crash of the node"]
    assert finding["next_step"].startswith("change it on 3 of the 6 nodes; ")


def test_a_fact_that_crashed_nodes_lack_may_be_missing_because_they_crashed() -> None:
    facts = [(f"n{i:02}", 0.0, {"color": str(i % 3)} | ({"firmware": "1.0"} if i >= 6 else {})) for i in range(24)]
    result = correlate(fleet(facts, [(f"n{i:02}", 1 + i / 10, "crash", str(i)) for i in range(6)]), WEEK)
    (finding,) = result.findings

    assert [str(fact) for fact in finding.facts] == ["firmware=unknown"]
    assert finding.counter_evidence[0].startswith("the fact is not known of these nodes: that may be the consequence")
    assert "that may be the consequence" in text(result).replace("\n", " ")


def test_nodes_at_risk_of_two_causes_are_one_row() -> None:
    observed = few_nodes(0, planted=True, hit=6)
    nodes = list(range(12))
    found = correlate(observed, WEEK, causes={"cause_a": ("crash", nodes), "cause_b": ("crash", nodes)})
    told = " ".join(text(found).split())

    assert told.count("nodes with cause_") == 1
    assert "cause_a (catalogue), about" in told
    assert "; cause_b (catalogue), about" in told


def rare(seed: int, *, planted: bool, nodes: int = 3000, crashes: int = 3) -> Observed:
    """Ten nodes have a kernel of their own, and a signature crashed on three nodes: three of the ten, or any."""
    rng = np.random.default_rng([seed, 31])
    sizes = rng.integers(2, 6, 20)
    facts = []
    for i in range(nodes):
        known = {f"fact_{k:02}": f"v{rng.integers(0, size)}" for k, size in enumerate(sizes.tolist())}
        facts.append((f"n{i:04}", 0.0, {**known, "kernel_release": "6.9" if i < 10 else "6.8"}))
    hit = rng.permutation(10 if planted else nodes)[:crashes]
    return fleet(facts, [(f"n{i:04}", float(rng.uniform(0.01, 6.9)), "rare_crash", f"j{i}") for i in hit.tolist()])


def lead_of(observed: Observed) -> NotEnough:
    (only,) = correlate(observed, WEEK).not_enough_data
    return only


def test_three_crashes_on_ten_of_3000_nodes_are_a_lead_with_the_exact_p() -> None:
    told = lead_of(rare(0, planted=True))

    assert str(told.lead) == "kernel_release=6.9"
    assert (told.observed, told.crashes) == (3, 3)
    assert told.p_value == pytest.approx(10 * 9 * 8 / (3000 * 2999 * 2998), rel=0.3)  # each node once


def test_a_lead_of_few_crashes_is_told_in_plain_numbers() -> None:
    found = correlate(rare(0, planted=True), WEEK)
    told = " ".join(text(found).split())

    assert found.findings == ()
    assert re.search(
        r"lead: kernel_release=6.9, on 3 of these nodes where 0.0\d+ were expected \(exact p \de-08,", told
    )
    assert to_json(found)["not_enough_data"][0]["p_value"] == pytest.approx(2.7e-8, rel=0.3)


@pytest.mark.nightly
def test_over_many_fleets_rare_crashes_give_a_lead_and_chance_hardly_any() -> None:
    planted = [lead_of(rare(seed, planted=True)).lead for seed in range(8)]
    chance = [lead_of(rare(seed, planted=False)).lead for seed in range(20)]

    assert [str(each) for each in planted] == ["kernel_release=6.9"] * 8
    assert sum(each is not None for each in chance) <= 2
