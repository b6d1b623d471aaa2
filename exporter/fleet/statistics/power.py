"""How many crashes a finding takes, and how many nodes and days the experiment takes that decides about one."""

from __future__ import annotations

import numpy as np
from scipy import stats

POWER = 0.8
MAX_CRASHES = 100_000
MAX_DECIDING = 50
DECIDING_DAYS, MOST_DAYS = 7, 90  # of an experiment: as planned, and the longest that is proposed


def needed(share: float, ratio: float, cut: float) -> int:
    """Crashes of a signature until a value with this share of the exposure and this rate ratio is found in 4 of 5 cases.

    cut: the p-value to be reached. 10% and a ratio of 5 at 1e-5 take 58.
    """
    with_ = ratio * share / (ratio * share + 1 - share)
    sizes = np.unique(np.round(np.geomspace(5, MAX_CRASHES, 400)).astype(int))
    least = stats.binom.isf(cut, sizes, share) + 1  # the first count whose tail is below the cut
    enough = np.flatnonzero(stats.binom.sf(least - 1, sizes, with_) >= POWER)
    return int(sizes[enough[0]]) if len(enough) else MAX_CRASHES


def smallest_ratio(share: float, crashes: int, nodes: int, cut: float) -> float:
    """The smallest rate ratio that is found in 4 of 5 cases with so many crashed nodes; inf if none is.

    share: of the nodes that have the value. Each crash leaves fewer nodes to crash, which matters on a small fleet.
    """
    having = share * nodes
    left = (having - crashes * share / 2) / max(nodes - crashes / 2, 1e-9)
    ratios = np.geomspace(1.5, 1000, 200)
    with_ = ratios * left / (ratios * left + 1 - left)
    least = stats.binom.isf(cut, crashes, left) + 1
    enough = np.flatnonzero(stats.binom.sf(least - 1, crashes, with_) >= POWER)
    return float(ratios[enough[0]]) if len(enough) else float("inf")


def crashes_that_decide(ratio: float) -> float:
    """How many crashes must be due on nodes with a value so that taking it away decides: if the ratio is true, so few
    remain in 4 of 5 cases that chance gives them in one of twenty.
    """
    for most in range(MAX_DECIDING):
        due = float(stats.chi2.isf(0.05, 2 * (most + 1)) / 2)  # of which chance leaves `most` in one of twenty cases
        if stats.poisson.cdf(most, due / ratio) >= POWER:
            return due
    return float("inf")


def experiment(ratio: float, observed: int, nodes: int, hours: float) -> tuple[int, int] | None:
    """On how many of the nodes to take a value away, and for how many days, to decide whether it makes them crash.

    observed: crashes on the nodes that have the value, within so many hours. None if it would take too long.
    """
    due = crashes_that_decide(ratio) if ratio > 1 else float("inf")
    if not np.isfinite(due) or not observed:
        return None
    a_day = observed / max(nodes * hours / 24, 1e-9)  # crashes of one node
    changed = int(np.clip(np.ceil(due / (a_day * DECIDING_DAYS)), 1, max(nodes // 2, 1)))
    days = int(np.ceil(due / (a_day * changed)))
    return (changed, days) if days <= MOST_DAYS else None
