"""Facts that say the same: the model and what follows from it, a driver that each model or queue has its own of."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.statistics.associations import rank
from exporter.fleet.statistics.correlation import correlate

from .small import WEEK, fleet

MODELS = ("AMD Instinct MI250X", "AMD Instinct MI300X", "AMD Instinct MI210")
TARGETS = ("gfx90a", "gfx942", "gfx90a")
BASE = 0.02  # crashes of a node in a week


def aliased(seed: int, tied: str, times: float, noise: float = 0.0) -> Observed:
    """1,200 nodes. Crashes are so many times as frequent with what is `tied`: on the second model (`gpu_model`), with a
    driver that only that model has (`driver_version`), or with the driver that two of four queues have (`partition`).
    """
    rng = np.random.default_rng([seed, 23])
    facts, incidents = [], []
    for i in range(1200):
        model = int(rng.choice(3, p=(0.45, 0.3, 0.25)))
        known = {"gpu_model": MODELS[model], "gfx_target": TARGETS[model], "cgroup_version": str(i % 2 + 1)}
        queue = int(rng.integers(4))
        bad = model == 1
        if tied == "driver_version":
            bad = rng.random() < 0.3 if noise and rng.random() < noise else bad
            known["driver_version"] = "6.10.5" if bad else f"6.{8 + int(rng.integers(2))}.{int(rng.integers(3))}"
        if tied == "partition":
            bad = queue < 2
            known |= {"partition": f"q{queue}", "driver_version": "550.54" if bad else "535.104"}
        if rng.random() < noise:
            known["gfx_target"] = TARGETS[int(rng.integers(3))]
        facts.append((f"n{i:04}", 0.0, {**known, **{f"fact_{k}": f"v{rng.integers(3)}" for k in range(4)}}))
        for signature, ratio in (("crash", times if bad else 1.0), ("other", 1.0)):
            if rng.random() < BASE * ratio:
                incidents.append((f"n{i:04}", float(rng.uniform(0.01, 6.9)), signature, f"{signature}{i}"))
    return fleet(facts, incidents)


def told(seed: int, tied: str, times: float, noise: float = 0.0) -> list[list[str]]:
    return [list(map(str, each.facts)) for each in correlate(aliased(seed, tied, times, noise), WEEK).findings]


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_model_and_what_follows_from_it_are_one_finding_by_the_model(noise: float) -> None:
    ((first, *others),) = told(1, "gpu_model", 12, noise)

    assert first == f"gpu_model={MODELS[1]}"
    assert "gfx_target=gfx942" in others


def test_a_driver_that_few_other_nodes_have_too_is_mostly_named_without_the_model() -> None:
    named = [findings[0] for seed in range(8) if (findings := told(seed, "driver_version", 12, noise=0.15))]

    assert len(named) >= 6
    assert all("driver_version=6.10.5" in facts for facts in named)
    assert named.count(["driver_version=6.10.5"]) > len(named) / 2


def test_a_driver_that_only_one_model_has_is_named_before_the_model() -> None:
    ((first, *others),) = told(1, "driver_version", 12)

    assert first == "driver_version=6.10.5"
    assert {f"gpu_model={MODELS[1]}", "gfx_target=gfx942"} <= set(others)


def test_a_driver_that_does_not_vary_within_the_queues_is_compared_beside_them() -> None:
    (finding,) = correlate(aliased(1, "partition", 12), WEEK).findings

    assert str(finding.facts[0]) == "driver_version=550.54"
    assert finding.adjusted_for == ("gpu_model", "day", "earlier crash of the node")


def test_facts_that_people_change_are_named_first() -> None:
    facts = ("gfx_target", "gpu_model", "rocm_version", "container_image", "vbios_version", "driver_version", "fact_1")

    assert sorted(facts, key=rank) == [
        "driver_version", "vbios_version", "container_image", "rocm_version", "gpu_model", "fact_1", "gfx_target",
    ]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("tied", ["gpu_model", "driver_version", "partition"])
def test_over_30_fleets_an_effect_of_tied_facts_is_one_finding_and_nothing_else_is(tied: str) -> None:
    first = "gpu_model" if tied == "gpu_model" else "driver_version"

    found = [told(seed, tied, 12) for seed in range(30)]
    assert sum(len(each) == 1 and each[0][0].startswith(first) for each in found) >= 28
    assert sum(bool(told(seed, tied, 1)) for seed in range(30)) <= 1
    assert sum(bool(told(seed, tied, 2)) for seed in range(30)) <= 1  # models and queues differ so much for no reason


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


@pytest.mark.nightly
def test_over_30_fleets_hidden_places_are_found_and_none_where_there_is_none() -> None:
    assert sum(len(places(seed, times=5)) == 1 for seed in range(30)) >= 28
    assert sum(len(places(seed, times=1)) > 0 for seed in range(30)) <= 1


def configuration(seed: int, times: float) -> list[str]:
    """The first facts of what is found where the kernel takes the cage's part."""
    found = correlate(masked(seed, times, "kernel_release"), WEEK).findings
    return sorted(str(each.facts[0]) for each in found if each.direction == "more")


def test_configuration_is_compared_within_what_other_configuration_explains() -> None:
    assert configuration(1, times=5) == ["gpu_batch=old", "kernel_release=2"]


@pytest.mark.nightly
def test_over_30_fleets_hidden_configuration_is_found_and_none_where_there_is_none() -> None:
    assert sum(configuration(seed, times=5) == ["gpu_batch=old", "kernel_release=2"] for seed in range(30)) >= 28
    assert sum(configuration(seed, times=1) == ["gpu_batch=old"] for seed in range(30)) >= 28
