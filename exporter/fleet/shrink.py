"""Shrinking noisy ratios, as pharmacovigilance does (DuMouchel 1999): 3 crashes where 0.1 were expected are no ratio of 30."""

from __future__ import annotations

import numpy as np
from scipy import optimize, special, stats

from exporter.fleet.observed import Floats

MAX_PAIRS = 20_000  # of observed and expected for the fit; more do not move it
_LOG_BOUNDS = (-4.0, 8.0)  # of both parameters of the prior


def prior(observed: Floats, expected: Floats) -> tuple[float, float]:
    """Shape and rate of the Gamma from which the ratios of all tests come, by maximum likelihood."""
    use = expected > 0
    observed, expected = observed[use][:MAX_PAIRS], expected[use][:MAX_PAIRS]
    if len(observed) < 2:
        return 1.0, 1.0

    def loss(log_parameters: Floats) -> float:
        shape, rate = np.exp(np.clip(log_parameters, *_LOG_BOUNDS))
        like = (
            special.gammaln(shape + observed) - special.gammaln(shape)
            + shape * np.log(rate) - (shape + observed) * np.log(rate + expected)
        )  # fmt: skip
        return -float(like.mean())

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-9})
    shape, rate = np.exp(np.clip(best.x, *_LOG_BOUNDS))
    return float(shape), float(rate)


def bounds(observed: float, expected: float, shape: float, rate: float) -> tuple[float, float]:
    """The 5 % and 95 % points of a ratio, given its counts and the prior."""
    low, high = stats.gamma.ppf([0.05, 0.95], shape + observed, scale=1 / (rate + expected))
    return float(low), float(high)
