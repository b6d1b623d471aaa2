"""Rate ratios and their exact intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exporter.fleet.statistics.power import needed
from exporter.fleet.statistics.ratio import rate_ratio, shrunk


@pytest.mark.parametrize(("observed", "crashes", "share"), [(8, 10, 0.1), (3, 40, 0.02), (120, 300, 0.3)])
def test_one_stratum_is_clopper_and_pearson_transformed(observed: int, crashes: int, share: float) -> None:
    odds = share / (1 - share)
    exact = stats.binomtest(observed, crashes, share).proportion_ci(method="exact")
    found = rate_ratio(observed, np.array([float(crashes)]), np.array([odds]))

    assert found.low == pytest.approx(exact.low / (1 - exact.low) / odds, rel=1e-4)
    assert found.high == pytest.approx(exact.high / (1 - exact.high) / odds, rel=1e-4)
    assert found.value == pytest.approx(observed / (crashes - observed) / odds, rel=1e-4)


def test_cutting_one_stratum_into_equal_ones_changes_nothing() -> None:
    whole = rate_ratio(6, np.array([20.0]), np.array([0.25]))
    parts = rate_ratio(6, np.array([4.0] * 5), np.array([0.25] * 5))

    assert (parts.value, parts.low, parts.high) == pytest.approx((whole.value, whole.low, whole.high), rel=1e-4)


def test_where_nobody_else_crashed_the_ratio_has_no_upper_end() -> None:
    found = rate_ratio(5, np.array([5.0]), np.array([0.1]))

    assert (found.value, found.high) == (np.inf, np.inf)
    assert found.low > 5


def test_the_interval_of_many_crashes_is_that_of_few_seen_from_afar() -> None:
    """Beyond EXACT_UP_TO the normal tail takes over: there must be no step."""
    exact = rate_ratio(200, np.array([800.0]), np.array([0.2]))
    normal = rate_ratio(200, np.array([801.0]), np.array([0.2]))

    assert normal.low == pytest.approx(exact.low, rel=0.01)
    assert normal.high == pytest.approx(exact.high, rel=0.01)


@pytest.mark.heavy
def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(4)
    crashes, odds, ratio = np.array([12.0, 20.0, 9.0]), np.array([0.1, 0.3, 0.05]), 4.0
    share = ratio * odds / (1 + ratio * odds)
    observed = rng.binomial(crashes.astype(int), share, (400, 3)).sum(axis=1)
    found = [rate_ratio(float(o), crashes, odds) for o in observed]
    covered = np.mean([f.low <= ratio <= f.high for f in found])

    assert 0.93 <= covered <= 0.99


@pytest.mark.parametrize(("share", "ratio", "about"), [(0.1, 5, 58), (0.3, 10, 24), (0.02, 3, 577)])
def test_the_crashes_needed_are_those_of_simulation(share: float, ratio: float, about: int) -> None:
    assert needed(share, ratio, p_cut=1e-5) == pytest.approx(about, rel=0.05)


def test_a_ratio_of_few_crashes_shrinks_more_than_one_of_many() -> None:
    assert shrunk(0.05, 3, 0.3) < 1 < shrunk(0.05, 30, 3) < shrunk(0.05, 300, 30) < 10
