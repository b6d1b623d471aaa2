"""Crashes too few to be tested: a rare value that all of them share is a lead, with its exact p-value."""

from __future__ import annotations

import re

import numpy as np
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.findings import NotEnough

from .small import WEEK, fleet


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


@pytest.mark.heavy
def test_over_many_fleets_rare_crashes_give_a_lead_and_chance_hardly_any() -> None:
    planted = [lead_of(rare(seed, planted=True)).lead for seed in range(8)]
    chance = [lead_of(rare(seed, planted=False)).lead for seed in range(20)]

    assert [str(each) for each in planted] == ["kernel_release=6.9"] * 8
    assert sum(each is not None for each in chance) <= 2
