"""Rate ratios with exact intervals, common to several strata, and their shrinkage towards the usual ones.

Given the crashes of each stratum, those with the value are binomial with odds of r times the exposure's odds. The
interval inverts the exact tails of their sum; with one stratum it is Clopper and Pearson's, transformed.

Findings are ordered by shrunk ratios (DuMouchel 1999): 3 crashes for 0.1 expected do not prove 30 times. Ratios come from
a mixture of two Gammas: most tests are of facts that do nothing, some of facts that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special  # not stats, which takes longer to import than the service may take to start

from exporter.fleet.observations import Floats

LEVEL = 0.95
EXACT_UP_TO = 800  # crashes; beyond, the sum's normal tail is as good, and a thousand times faster
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
    log_binomial = special.gammaln(size + 1) - special.gammaln(k + 1) - special.gammaln(size - k + 1)
    return np.asarray(np.exp(log_binomial + special.xlogy(k, p) + special.xlog1py(size - k, -p)))


MAX_PAIRS = 2_000  # of observed and expected for a fit; more do not move it
_START = (np.log(4.0), np.log(4.0), np.log(0.5), np.log(0.25), special.logit(0.95))
_BOUND = 7.0  # of the logarithm of each parameter


@dataclass(frozen=True, slots=True)
class Prior:
    """Shapes and rates of two Gammas, and the weight of the first."""

    shape: Floats
    rate: Floats
    weight: Floats

    def quantile(self, level: float, observed: float, expected: float) -> float:
        """The posterior quantile of a ratio, given its counts."""
        like = np.log(self.weight) + marginal(np.array([observed]), np.array([expected]), self.shape, self.rate)[0]
        weight = np.exp(like - special.logsumexp(like))
        shape, scale = self.shape + observed, 1 / (self.rate + expected)

        def below(ratio: float) -> float:
            return float((weight * special.gammainc(shape, ratio / scale)).sum()) - level

        ends = special.gammaincinv(shape, level) * scale
        return float(optimize.brentq(below, 0.999 * ends.min(), 1.001 * ends.max()))


def fit_mixture(observed: Floats, expected: Floats) -> Prior:
    """The prior of the ratios of many tests, by maximum likelihood."""
    observed, expected = _some(observed, expected)

    def loss(parameters: Floats) -> float:
        prior = _prior(parameters)
        like = np.log(prior.weight) + marginal(observed, expected, prior.shape, prior.rate)
        return -float(np.logaddexp(like[:, 0], like[:, 1]).mean()) if len(observed) else 0.0

    best = optimize.minimize(loss, np.array(_START), method="L-BFGS-B", bounds=[(-_BOUND, _BOUND)] * len(_START))
    return _prior(best.x)


def fit_gamma(observed: Floats, expected: Floats) -> tuple[float, float]:
    """Shape and rate of a single Gamma by maximum likelihood."""
    observed, expected = _some(observed, expected)

    def loss(parameters: Floats) -> float:
        shape, rate = np.exp(parameters[:1]), np.exp(parameters[1:])
        return -float(marginal(observed, expected, shape, rate).mean())

    best = optimize.minimize(loss, np.zeros(2), method="L-BFGS-B", bounds=[(-_BOUND, _BOUND)] * 2)
    shape, rate = np.exp(best.x)
    return float(shape), float(rate)


def _some(observed: Floats, expected: Floats) -> tuple[Floats, Floats]:
    use = np.flatnonzero(expected > 0)
    use = use[:: max(len(use) // MAX_PAIRS, 1)]
    return observed[use], expected[use]


def _prior(parameters: Floats) -> Prior:
    weight = float(special.expit(parameters[4]))
    shape, rate = np.exp(parameters[[0, 2]]), np.exp(parameters[[1, 3]])
    return Prior(shape=shape, rate=rate, weight=np.array([weight, 1 - weight]))


def marginal(observed: Floats, expected: Floats, shape: Floats, rate: Floats) -> Floats:
    """The log-probability of counts under each Gamma, up to what depends on the counts alone."""
    o, e = observed[:, None], expected[:, None]
    like = special.gammaln(shape + o) - special.gammaln(shape) + shape * np.log(rate) - (shape + o) * np.log(rate + e)
    return np.asarray(like + o * np.log(np.maximum(e, 1e-300)))
