"""Rates shown beside findings: of crashes, by fifths of a continuous fact, and by GPU model. They find nothing by themselves.

Incident rates are of all crashes per exposure with a value and without, repeated crashes of a node included.

First crashes say little of how often nodes crash once most have. Their rates do, but crashes of one node are not
independent, so the interval is that of a sum over nodes: Mantel and Haenszel's ratio over the strata, with the robust
variance by node (Liang and Zeger 1986).
"""

import itertools

import numpy as np
from scipy import stats

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics import continuous, exposure, screen
from exporter.fleet.statistics.design import Value
from exporter.fleet.statistics.findings import IncidentRates, Reliability, TrendPart
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import Ratio

LEVEL = 0.95
PER_HOURS = 1000.0


def incident_rates(prepared: Prepared, number: int, *, strata: Ints, column: Bools) -> IncidentRates | None:
    """The rates of a signature or group in the states of `column` and in the others; None without crashes on both sides.

    strata: the stratum of each state, -1 for those left out.
    """
    states, origins = prepared.design.states, prepared.origins
    of_these = origins.take(np.isin(origins.signature, prepared.members.get(number, (number,))))
    state = exposure.state_at(states, of_these.node, of_these.time)
    inside = (state >= 0) & (strata[np.maximum(state, 0)] >= 0)
    state, part = state[inside], states.bin_of(of_these.time[inside])
    parts = len(states.edges) - 1
    rows = np.flatnonzero(strata >= 0)
    cell = (strata[rows][:, None] * parts + np.arange(parts)).ravel()
    hours = states.hours[rows].ravel()
    by_state = np.zeros((len(states.node), parts))
    np.add.at(by_state, (state, part), 1.0)
    crashes = by_state[rows].ravel()
    with_ = np.repeat(column[rows], parts)
    node = np.repeat(states.node[rows], parts)
    size = int(cell.max(initial=0)) + 1
    hours_with, hours_without = (np.bincount(cell[values], hours[values], size) for values in (with_, ~with_))
    open_ = ((hours_with > 0) & (hours_without > 0))[cell]
    cell, hours, crashes, with_, node = (values[open_] for values in (cell, hours, crashes, with_, node))
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


PARTS = 5


def trend(prepared: Prepared, units: screen.Units, value: Value, *, strata: Ints) -> tuple[TrendPart, ...]:
    """The fifths of a fact's values, by exposure, within the strata of `strata`; nothing if the fact is not continuous."""
    facts, states = prepared.observed.facts, prepared.design.states
    index = facts.names.index(value.fact)
    codes = facts.codes[states.row, index]
    texts = facts.values[index]
    of_code = continuous.numbers(value.fact, texts, np.bincount(codes[codes >= 0], minlength=len(texts)) > 0)
    if of_code is None:
        return ()
    number = continuous.decoded(of_code, codes)
    finite = np.flatnonzero(np.isfinite(number))
    order = finite[np.argsort(number[finite], kind="stable")]
    upto = np.cumsum(states.hours.sum(axis=1)[order])
    inner = [number[order[np.searchsorted(upto, upto[-1] * i / PARTS)]] for i in range(1, PARTS)]
    edges = np.unique([number[order[0]], *inner, np.nextafter(number[order[-1]], np.inf)])
    out = []
    for low, high in itertools.pairwise(edges.tolist()):
        counts = screen.cells(prepared.design, units, strata=strata, column=(number >= low) & (number < high)).counts()
        observed, expected = int(counts.observed[0]), float(counts.expected[0])
        out.append(TrendPart(low=low, high=high, observed=observed, expected=expected))
    return tuple(out)


def reliability(prepared: Prepared) -> tuple[Reliability, ...]:
    """By GPU model; hours are GPU-busy hours where these are known, else the hours watched times the node's GPUs."""
    states, facts = prepared.design.states, prepared.observed.facts
    hours = states.hours.sum(axis=1)
    if prepared.unit != exposure.BUSY:
        hours = hours * _gpus(prepared)
    index = facts.names.index("gpu_model") if "gpu_model" in facts.names else None
    model = np.full(len(states.row), -1) if index is None else facts.codes[states.row, index]
    at = exposure.state_at(states, prepared.origins.node, prepared.origins.time)
    crashed = np.bincount(at[at >= 0], minlength=len(model))
    out = []
    for code in np.unique(model):
        own = model == code
        node = np.unique(states.node[own], return_inverse=True)[1]
        crashes, watched = (np.asarray(np.bincount(node, of[own]), dtype=float) for of in (crashed, hours))
        low, high = _between_nodes(crashes, watched)
        total, count = float(watched.sum()), int(crashes.sum())
        name = "unknown" if index is None or code < 0 else facts.values[index][code]
        out.append(
            Reliability(
                gpu_model=name, hours=total, incidents=count, mtbf=total / count if count else np.inf, mtbf_low=low,
                mtbf_high=high,
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda row: row.gpu_model))


def interval(count: int, hours: float) -> tuple[float, float]:
    """The exact interval of the mean hours between `count` Poisson events in `hours`."""
    tail = (1 - LEVEL) / 2
    most = stats.chi2.isf(tail, 2 * count + 2) / 2
    least = stats.chi2.isf(1 - tail, 2 * count) / 2 if count else 0.0
    return float(hours / most), float(hours / least) if least else np.inf


def _between_nodes(crashes: Floats, hours: Floats) -> tuple[float, float]:
    """The interval of the mean hours between crashes, which differ from node to node; at least as wide as by chance alone.

    crashes, hours: of each node. The variance is that of a ratio of two sums over nodes, as a bootstrap of nodes has it.
    """
    total, number = float(crashes.sum()), len(crashes)
    low, high = interval(int(total), float(hours.sum()))
    if total < 2 or number < 2:
        return low, high
    rest = crashes - total / float(hours.sum()) * hours
    spread = float(np.sqrt((rest**2).sum() * number / (number - 1))) / total
    reach = float(np.exp(stats.t.isf((1 - LEVEL) / 2, number - 1) * spread))
    mean = float(hours.sum()) / total
    return min(low, mean / reach), max(high, mean * reach)


def _gpus(prepared: Prepared) -> Floats:
    """GPUs of the node in each state; 1 where the facts do not tell."""
    facts, states = prepared.observed.facts, prepared.design.states
    if "gpu_count" not in facts.names:
        return np.ones(len(states.row))
    index = facts.names.index("gpu_count")
    counts = np.array([float(text) if text.isdecimal() else 1.0 for text in facts.values[index]] + [1.0])
    return np.asarray(counts[facts.codes[states.row, index]])
