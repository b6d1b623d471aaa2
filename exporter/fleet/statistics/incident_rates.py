"""Incident rates: all crashes per exposure with a value and without, repeated crashes of a node included.

First crashes say little of how often nodes crash once most have. Their rates do, but crashes of one node are not
independent, so the interval is that of a sum over nodes: Mantel and Haenszel's ratio over the strata, with the robust
variance by node (Liang and Zeger 1986). Rates are shown beside findings; they find nothing by themselves.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics import exposure
from exporter.fleet.statistics.findings import IncidentRates
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import Ratio

LEVEL = 0.95
PER_HOURS = 1000.0


def incident_rates(prepared: Prepared, number: int, label: Ints, column: Bools) -> IncidentRates | None:
    """The rates of a signature or group in the states of `column` and in the others; None without crashes on both sides.

    label: the stratum of each state, -1 for those left out.
    """
    states, origins = prepared.design.states, prepared.origins
    of_these = origins.take(np.isin(origins.signature, prepared.members.get(number, (number,))))
    state = exposure.state_at(states, of_these.node, of_these.time)
    inside = (state >= 0) & (label[np.maximum(state, 0)] >= 0)
    state, part = state[inside], states.bin_of(of_these.time[inside])
    parts = len(states.edges) - 1
    rows = np.flatnonzero(label >= 0)
    cell = (label[rows][:, None] * parts + np.arange(parts)).ravel()
    hours = states.hours[rows].ravel()
    by_state = np.zeros((len(states.node), parts))
    np.add.at(by_state, (state, part), 1.0)
    crashes = by_state[rows].ravel()
    with_ = np.repeat(column[rows], parts)
    node = np.repeat(states.node[rows], parts)
    size = int(cell.max(initial=0)) + 1
    hours_with, hours_without = (np.bincount(cell[each], hours[each], size) for each in (with_, ~with_))
    open_ = ((hours_with > 0) & (hours_without > 0))[cell]
    cell, hours, crashes, with_, node = (each[open_] for each in (cell, hours, crashes, with_, node))
    number_with, number_without = float(crashes[with_].sum()), float(crashes[~with_].sum())
    if not number_with or not number_without:
        return None
    total = hours_with + hours_without
    share = np.divide(hours_with, total, out=np.zeros(size), where=total > 0)
    ratio = _ratio(cell, hours, crashes, with_, node, share)
    return IncidentRates(
        incidents_with=int(number_with), incidents_without=int(number_without),
        rate_with=PER_HOURS * number_with / float(hours[with_].sum()),
        rate_without=PER_HOURS * number_without / float(hours[~with_].sum()), ratio=ratio,
    )  # fmt: skip


def _ratio(cell: Ints, hours: Floats, crashes: Floats, with_: Bools, node: Ints, share: Floats) -> Ratio:
    """share: of each cell's hours those with the value. The other arrays have one row for each state and part."""
    weight = np.where(with_, 1 - share[cell], share[cell])
    above, below = float((weight * crashes)[with_].sum()), float((weight * crashes)[~with_].sum())
    ratio = above / below
    size = len(share)
    at_ratio = np.bincount(cell, np.where(with_, ratio, 1.0) * hours, size)
    base = np.divide(np.bincount(cell, crashes, size), at_ratio, out=np.zeros(size), where=at_ratio > 0)
    usual = base[cell] * hours * np.where(with_, ratio, 1.0)
    residual = np.where(with_, 1.0, -ratio) * weight * (crashes - usual)
    by_node = np.bincount(node, residual)
    hit = max(len(np.unique(node[crashes > 0])), 2)
    spread = float(np.sqrt((by_node**2).sum() * hit / (hit - 1))) / above
    reach = float(np.exp(stats.t.isf((1 - LEVEL) / 2, hit - 1) * spread))
    return Ratio(value=ratio, low=ratio / reach, high=ratio * reach)
