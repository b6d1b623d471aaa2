"""Shrinkage of noisy ratios towards the usual ones (DuMouchel 1999): 3 crashes for 0.1 expected do not prove 30 times.

Ratios come from a mixture of two Gammas: most tests are of facts that do nothing, some of facts that do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from exporter.fleet.observations import Floats

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
        like = np.log(self.weight) + _marginal(np.array([observed]), np.array([expected]), self.shape, self.rate)[0]
        weight = np.exp(like - special.logsumexp(like))
        shape, scale = self.shape + observed, 1 / (self.rate + expected)

        def below(ratio: float) -> float:
            return float((weight * stats.gamma.cdf(ratio, shape, scale=scale)).sum()) - level

        ends = stats.gamma.ppf(level, shape, scale=scale)
        return float(optimize.brentq(below, 0.999 * ends.min(), 1.001 * ends.max()))


def fit(observed: Floats, expected: Floats) -> Prior:
    """The prior of the ratios of many tests, by maximum likelihood."""
    observed, expected = _some(observed, expected)

    def loss(parameters: Floats) -> float:
        prior = _prior(parameters)
        like = np.log(prior.weight) + _marginal(observed, expected, prior.shape, prior.rate)
        return -float(np.logaddexp(like[:, 0], like[:, 1]).mean()) if len(observed) else 0.0

    best = optimize.minimize(loss, np.array(_START), method="L-BFGS-B", bounds=[(-_BOUND, _BOUND)] * len(_START))
    return _prior(best.x)


def fit_one(observed: Floats, expected: Floats) -> tuple[float, float]:
    """Shape and rate of a single Gamma by maximum likelihood."""
    observed, expected = _some(observed, expected)

    def loss(parameters: Floats) -> float:
        shape, rate = np.exp(parameters[:1]), np.exp(parameters[1:])
        return -float(_marginal(observed, expected, shape, rate).mean())

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


def _marginal(observed: Floats, expected: Floats, shape: Floats, rate: Floats) -> Floats:
    """The log-probability of counts under each Gamma, up to what depends on the counts alone."""
    o, e = observed[:, None], expected[:, None]
    like = special.gammaln(shape + o) - special.gammaln(shape) + shape * np.log(rate) - (shape + o) * np.log(rate + e)
    return np.asarray(like + o * np.log(np.maximum(e, 1e-300)))
