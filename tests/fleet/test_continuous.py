"""Continuous facts: a crash that becomes more frequent with the temperature, whatever value each node has."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.fleet.observations import Observed
from exporter.fleet.results.terminal import text
from exporter.fleet.results.to_json import to_json
from exporter.fleet.statistics.continuous import meets, numbers, thresholds
from exporter.fleet.statistics.correlation import correlate, remember

from .small import DAY, START, WEEK, Window, fleet

WARMER, COLDER, STEP = 0.8, -0.8, 0.0


def warm(seed: int, slope: float, *, hot: float = 1.0, days: int = 7, nodes: int = 1500) -> Observed:
    """Crashes become exp(slope) times as frequent with each 6 degrees, and `hot` times above 72."""
    rng = np.random.default_rng([seed, 5])
    facts, incidents = [], []
    for i in range(nodes):
        degrees = rng.normal(65, 6)
        known = {f"fact_{k}": f"v{rng.integers(0, 4)}" for k in range(8)}
        known |= {"gpu_temperature": f"{degrees:.1f}", "power_draw": f"{rng.normal(300, 20):.1f} W"}
        facts.append((f"n{i:04}", 0.0, known))
        rate = 0.03 * np.exp(slope * (degrees - 65) / 6) * (hot if degrees > 72 else 1)
        incidents += [
            (f"n{i:04}", float(week * 7 + rng.uniform(0.01, 6.9)), "crash", f"j{week}-{i}")
            for week in range(days // 7)
            if rng.random() < 1 - np.exp(-rate)
        ]
    return fleet(facts, incidents, days=days)


def found(observed: Observed) -> list[str]:
    return [str(each.facts[0]) for each in correlate(observed, WEEK).findings]


@pytest.mark.parametrize(("slope", "hot", "side"), [(WARMER, 1.0, "≥"), (COLDER, 1.0, "<"), (STEP, 6.0, "≥")])
def test_a_trend_is_one_finding_with_a_threshold(slope: float, hot: float, side: str) -> None:
    (only,) = found(warm(1, slope, hot=hot))

    assert only.startswith(f"gpu_temperature {side} ")


def test_a_trend_is_told_by_fifths_in_all_formats() -> None:
    result = correlate(warm(1, WARMER), WEEK)
    parts = to_json(result)["findings"][0]["trend"]
    ratios = [part["observed"] / part["expected"] for part in parts]

    assert len(parts) == 5
    assert ratios[0] < ratios[-1]
    assert "crashes seen for each one expected, by gpu_temperature: " in " ".join(text(result).split())


def test_a_trend_is_confirmed_though_its_threshold_moves() -> None:
    observed = warm(2, WARMER, days=14)
    weeks = [Window(start=START + 7 * DAY * i, end=START + 7 * DAY * (i + 1)) for i in range(2)]
    first = remember(correlate(observed, weeks[0]), ())
    again = correlate(observed, weeks[1], first).findings

    assert [each.status for each in again if each.facts[0].fact == "gpu_temperature"] == ["confirmed"]


def test_numbers_are_read_with_their_units_and_versions_are_not_numbers() -> None:
    texts = [f"{i}.5 W" for i in range(30)]
    used = np.ones(30, dtype=bool)

    assert numbers("power_draw", texts, used) is not None
    assert numbers("driver_version", texts, used) is None
    assert numbers("power_draw", [*texts[:20], *("n/a",) * 10], used) is None
    assert numbers("gpu_count", texts[:5], used[:5]) is None


def test_thresholds_are_rounded_quantiles_and_unknown_values_are_on_neither_side() -> None:
    of_code = np.arange(100.0)
    codes = np.array([10, 90, -1], dtype=np.int32)

    assert thresholds(of_code, np.ones(100)) == [19.0, 39.0, 59.0, 79.0, 89.0, 94.0]
    assert meets("≥ 50", of_code, codes).tolist() == [False, True, False]
    assert meets("< 50", of_code, codes).tolist() == [True, False, False]


@pytest.mark.nightly
def test_over_many_fleets_trends_are_found_and_chance_makes_none() -> None:
    planted = [found(warm(seed, WARMER)) for seed in range(10)]

    assert sum(any("gpu_temperature ≥" in each for each in names) for names in planted) >= 9
    assert sum(bool(found(warm(100 + seed, STEP))) for seed in range(10)) <= 1
