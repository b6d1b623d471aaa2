"""Effects that a configuration hides: old cards stay where few crash, so all places, or kernels, look alike."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.statistics.correlation import correlate

from .small import WEEK, fleet


def masked(seed: int, times: float, fact: str = "cage") -> Observed:
    """1,200 nodes in three cages. Old cards crash often, and in cage 2 so many times as often; it has few of them.
    `fact` is what the cage is called.
    """
    rng = np.random.default_rng([seed, 19])
    facts, incidents = [], []
    for i in range(1200):
        cage = i % 3
        old = rng.random() < (0.6 if cage < 2 or times == 1 else 0.1)
        name = f"n{i:04}"
        facts.append((name, 0.0, {"gpu_batch": "old" if old else "new", fact: str(cage), "fact": f"v{i % 7}"}))
        if rng.random() < (0.1 if old else 0.004) * (times if cage == 2 else 1):
            incidents.append((name, float(rng.uniform(0.01, 6.9)), "double_bit_error", f"j{i}"))
    return fleet(facts, incidents)


def places(seed: int, times: float) -> list[tuple[str, ...]]:
    return [tuple(str(fact) for fact in each.facts) for each in correlate(masked(seed, times), WEEK).locations]


def test_a_place_is_compared_within_what_the_configuration_explains() -> None:
    found = correlate(masked(1, times=5), WEEK)
    (batch,) = found.findings
    (place,) = found.locations
    assert "old" in str(batch.facts)
    assert "cage" in str(place.facts)
    assert place.ratio.low < 5 < place.ratio.high


@pytest.mark.heavy
def test_over_30_fleets_hidden_places_are_found_and_none_where_there_is_none() -> None:
    assert sum(len(places(seed, times=5)) == 1 for seed in range(30)) >= 28
    assert sum(len(places(seed, times=1)) > 0 for seed in range(30)) <= 1


def configuration(seed: int, times: float) -> list[str]:
    """The first facts of what is found where the kernel takes the cage's part."""
    found = correlate(masked(seed, times, "kernel_release"), WEEK).findings
    return sorted(str(each.facts[0]) for each in found if each.direction == "more")


def test_configuration_is_compared_within_what_other_configuration_explains() -> None:
    assert configuration(1, times=5) == ["gpu_batch=old", "kernel_release=2"]


@pytest.mark.heavy
def test_over_30_fleets_hidden_configuration_is_found_and_none_where_there_is_none() -> None:
    assert sum(configuration(seed, times=5) == ["gpu_batch=old", "kernel_release=2"] for seed in range(30)) >= 28
    assert sum(configuration(seed, times=1) == ["gpu_batch=old"] for seed in range(30)) >= 28
