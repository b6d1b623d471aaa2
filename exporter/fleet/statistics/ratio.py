"""Rate ratios with exact intervals, common to several strata, and their shrinkage towards the usual ones.

Given the crashes of each stratum, those with the value are binomial with odds of r times the exposure's odds. The
interval inverts the exact tails of their sum; with one stratum it is Clopper and Pearson's, transformed.

Findings are ordered by shrunk ratios (DuMouchel 1999).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from exporter.fleet.observations import Floats

LEVEL = 0.95
EXACT_UP_TO = 800  # crashes; beyond, the sum's normal tail is as good, and a thousand times faster
PRIOR = 5.0  # crashes by which a ratio is shrunk towards 1; with 1, false findings of the planted fleets come before true ones
_BOUNDS = (-14.0, 14.0)  # of log r: a ratio of a million


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A rate ratio and its interval; `inf` where nothing else crashed."""

    value: float
    low: float
    high: float

    def widened(self, times: float) -> Ratio:
        """The ratio with an interval that is so many times as wide, as logarithms."""
        if times == 1 or not 0 < self.value < np.inf:
            return self
        return Ratio(
            value=self.value, low=self.value * (self.low / self.value) ** times,
            high=self.value * (self.high / self.value) ** times,
        )  # fmt: skip


def rate_ratio(observed: float, crashes: Floats, odds: Floats) -> Ratio:
    """The ratio of the crash rate with a value to that without.

    observed: crashes with the value; crashes, odds: of each stratum, all crashes and the exposure with / without.
    """
    use = (crashes > 0) & (odds > 0) & np.isfinite(odds)
    crashes, odds = crashes[use], odds[use]
    total = float(crashes.sum())
    tail = (1 - LEVEL) / 2
    low = 0.0 if observed <= 0 else _root(lambda r: _tail(observed, crashes, odds, r, upper=True) - tail)
    high = np.inf if observed >= total else _root(lambda r: tail - _tail(observed, crashes, odds, r, upper=False))
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


def _tail(observed: float, crashes: Floats, odds: Floats, log_ratio: float, *, upper: bool) -> float:
    """The probability of at least, or at most, so many crashes with the value: a sum of binomials."""
    share = _share(odds, log_ratio)
    if crashes.sum() > EXACT_UP_TO:
        spread = max(float(np.sqrt((crashes * share * (1 - share)).sum())), 1e-12)
        off = (observed - float((crashes * share).sum())) / spread
        return float(special.ndtr(0.5 / spread - off if upper else off + 0.5 / spread))
    from scipy import stats  # takes longer to import than the service may take to start

    exact = stats.poisson_binom(np.repeat(share, crashes.round().astype(np.int64)))
    return float(exact.sf(observed - 1) if upper else exact.cdf(observed))


def shrunk(level: float, observed: float, expected: float) -> float:
    """A quantile of a ratio that is shrunk towards 1: 3 crashes for 0.1 expected do not prove 30 times."""
    return float(special.gammaincinv(observed + PRIOR, level) / (expected + PRIOR))


MAX_PAIRS = 2_000  # of observed and expected for a fit; more do not move it
_BOUND = 7.0  # of the logarithm of each parameter


def fit_gamma(observed: Floats, expected: Floats) -> tuple[float, float]:
    """Shape and rate of a single Gamma by maximum likelihood."""
    use = np.flatnonzero(expected > 0)
    use = use[:: max(len(use) // MAX_PAIRS, 1)]
    observed, expected = observed[use], expected[use]

    def loss(parameters: Floats) -> float:
        shape, rate = np.exp(parameters[:1]), np.exp(parameters[1:])
        return -float(marginal(observed, expected, shape, rate).mean())

    best = optimize.minimize(loss, np.zeros(2), method="L-BFGS-B", bounds=[(-_BOUND, _BOUND)] * 2)
    shape, rate = np.exp(best.x)
    return float(shape), float(rate)


def marginal(observed: Floats, expected: Floats, shape: Floats, rate: Floats) -> Floats:
    """The log-probability of counts under each Gamma, up to what depends on the counts alone."""
    o, e = observed[:, None], expected[:, None]
    like = special.gammaln(shape + o) - special.gammaln(shape) + shape * np.log(rate) - (shape + o) * np.log(rate + e)
    return np.asarray(like + o * np.log(np.maximum(e, 1e-300)))
