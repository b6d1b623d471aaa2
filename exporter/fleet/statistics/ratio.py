"""Rate ratios with exact intervals, common to several strata.

Given the crashes of each stratum, those with the value are binomial with odds of r times the exposure's odds. The
interval inverts the exact tails of their sum; with one stratum it is Clopper and Pearson's, transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, special  # not stats, which takes longer to import than the service may take to start

from exporter.fleet.observations import Floats

if TYPE_CHECKING:
    from exporter.fleet.statistics.screen import Cells

LEVEL = 0.95
EXACT_UP_TO = 800  # crashes; beyond, the sum's normal tail is as good, and a thousand times faster
_BOUNDS = (-14.0, 14.0)  # of log r: a ratio of a million


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A rate ratio and its interval; `inf` where nothing else crashed."""

    value: float
    low: float
    high: float


def rate_ratio(observed: float, crashes: Floats, odds: Floats) -> Ratio:
    """The ratio of the crash rate with a value to that without.

    observed: crashes with the value; crashes, odds: of each stratum, all crashes and the exposure with / without.
    """
    use = (crashes > 0) & (odds > 0) & np.isfinite(odds)
    crashes, odds = crashes[use], odds[use]
    total = float(crashes.sum())
    tail = (1 - LEVEL) / 2
    low = 0.0 if observed <= 0 else _root(lambda r: _at_least(observed, crashes, odds, r) - tail)
    high = np.inf if observed >= total else _root(lambda r: tail - _at_most(observed, crashes, odds, r))
    if observed <= 0 or observed >= total:
        return Ratio(value=0.0 if observed <= 0 else np.inf, low=low, high=high)
    return Ratio(value=_root(lambda r: float((crashes * _share(odds, r)).sum()) - observed), low=low, high=high)


def _root(rises: Callable[[float], float]) -> float:
    """The ratio at which a rising function of log r is 0."""
    low, high = _BOUNDS
    if rises(low) >= 0:
        return 0.0
    if rises(high) <= 0:
        return np.inf
    return float(np.exp(optimize.brentq(rises, low, high, xtol=1e-6)))


def _share(odds: Floats, log_ratio: float) -> Floats:
    return np.asarray(special.expit(np.log(odds) + log_ratio))


def _at_least(observed: float, crashes: Floats, odds: Floats, log_ratio: float) -> float:
    share = _share(odds, log_ratio)
    if crashes.sum() > EXACT_UP_TO:
        return float(special.ndtr(-_score(observed - 0.5, crashes, share)))
    return float(_distribution(crashes, share)[round(observed) :].sum())


def _at_most(observed: float, crashes: Floats, odds: Floats, log_ratio: float) -> float:
    share = _share(odds, log_ratio)
    if crashes.sum() > EXACT_UP_TO:
        return float(special.ndtr(_score(observed + 0.5, crashes, share)))
    return float(_distribution(crashes, share)[: round(observed) + 1].sum())


def _score(observed: float, crashes: Floats, share: Floats) -> float:
    spread = float(np.sqrt((crashes * share * (1 - share)).sum()))
    return (observed - float((crashes * share).sum())) / max(spread, 1e-12)


def _distribution(crashes: Floats, share: Floats) -> Floats:
    """Of the sum of binomials."""
    total = np.ones(1)
    for size, p in zip(crashes.tolist(), share.tolist(), strict=True):
        own = np.array([1 - p, p]) if size == 1 else _binomial(round(size), p)
        total = np.convolve(total, own)
    return total


def _binomial(size: int, p: float) -> Floats:
    """The probability of each number of successes."""
    k = np.arange(size + 1.0)
    ways = special.gammaln(size + 1) - special.gammaln(k + 1) - special.gammaln(size - k + 1)
    return np.asarray(np.exp(ways + special.xlogy(k, p) + special.xlog1py(size - k, -p)))


def of_cells(found: Cells) -> Ratio:
    """The rate ratio that the cells of one column have in common."""
    use = found.open
    odds = found.having[use] / (found.everyone[use] - found.having[use])
    return rate_ratio(float(found.observed[use].sum()), found.crashes[use], odds)
