"""Onset: the delay after a change at which its effect most likely began, with a likelihood interval."""

from __future__ import annotations

import numpy as np

from exporter.fleet.observations import Floats, Ints
from exporter.fleet.statistics.exposure import DAY
from exporter.fleet.statistics.risk_sets import Spans, at_risk

HOUR = 3600.0
FROM, TO = -5 * DAY, 7 * DAY  # after the change
COARSE, FINE = 12 * HOUR, HOUR
DROP = 1.92  # of the log-likelihood: a 95% interval
LOG_RATIOS = np.linspace(0.1, 7.0, 40)  # up to a ratio of 1,100


def onset(spans: Spans, stratum: Ints, time: Floats, change: Floats, *, more: bool) -> tuple[float, float, float]:
    """Hours from the change to the onset, and the ends of the interval. Below 0: it began before the change.

    spans: of the nodes at risk; stratum, time, change: of each crash, the last that of its node's change.
    """
    ratios = LOG_RATIOS if more else -LOG_RATIOS
    total, changed = at_risk(spans, stratum, time), spans.changed()

    def like(delay: float) -> float:
        after = at_risk(changed.split(delay)[0], stratum, time)
        share = np.clip(np.divide(after, total, out=np.zeros(len(time)), where=total > 1e-9), 0.0, 1.0)
        hit = time >= change + delay
        each = hit[:, None] * ratios - np.log1p(share[:, None] * np.expm1(ratios))
        return float(each[share > 0].sum(axis=0).max(initial=0.0))

    coarse = np.arange(FROM, TO + 1, COARSE)
    likes = np.array([like(delay) for delay in coarse])
    around = coarse[int(np.argmax(likes))]
    fine = np.arange(around - COARSE, around + COARSE + 1, FINE)
    delays = np.concatenate([coarse, fine])
    likes = np.concatenate([likes, [like(delay) for delay in fine]])
    best = float(delays[int(np.argmax(likes))])
    kept = delays[likes >= likes.max() - DROP]
    return best / HOUR, float(kept.min()) / HOUR, float(kept.max()) / HOUR
