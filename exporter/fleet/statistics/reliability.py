"""Reliability: the mean time between crashes of each GPU model, and the GPU-hours that crashes cost."""

from __future__ import annotations

import numpy as np
from scipy import stats

from exporter.fleet.observations import Floats, Ints
from exporter.fleet.statistics import exposure
from exporter.fleet.statistics.findings import Reliability
from exporter.fleet.statistics.prepare import Prepared

LEVEL = 0.95
# What one crashed job loses: half of the hour between two checkpoints, and half an hour until it runs again.
LOST_HOURS = 1.0


def reliability(prepared: Prepared) -> tuple[Reliability, ...]:
    """By GPU model; hours are GPU-busy hours where these are known, else the hours watched times the node's GPUs."""
    states, facts = prepared.design.states, prepared.observed.facts
    hours = states.hours.sum(axis=1)
    if prepared.unit != exposure.BUSY:
        hours = hours * _gpus(prepared)
    model = facts.codes[states.row, facts.names.index("gpu_model")] if "gpu_model" in facts.names else _none(states.row)
    at = exposure.state_at(states, prepared.origins.node, prepared.origins.time)
    crashed = np.bincount(model[at[at >= 0]] + 1, minlength=int(model.max(initial=-1)) + 2)
    out = []
    for code in np.unique(model):
        total, count = float(hours[model == code].sum()), int(crashed[code + 1])
        name = "unknown" if code < 0 else facts.values[facts.names.index("gpu_model")][code]
        low, high = interval(count, total)
        out.append(
            Reliability(
                gpu_model=name, hours=total, incidents=count, mtbf=total / count if count else np.inf, mtbf_low=low,
                mtbf_high=high,
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda each: each.gpu_model))


def interval(count: int, hours: float) -> tuple[float, float]:
    """The exact interval of the mean hours between `count` Poisson events in `hours`."""
    tail = (1 - LEVEL) / 2
    most = stats.chi2.isf(tail, 2 * count + 2) / 2
    least = stats.chi2.isf(1 - tail, 2 * count) / 2 if count else 0.0
    return float(hours / most), float(hours / least) if least else np.inf


def lost_gpu_hours(prepared: Prepared) -> float | None:
    """GPU-hours lost to crashed jobs; None where neither GPUs nor jobs are known."""
    if "gpu_count" not in prepared.observed.facts.names:
        return None
    found = prepared.incidents
    per_node = np.zeros(len(prepared.observed.nodes))
    per_node[prepared.design.states.node] = _gpus(prepared)
    key = np.where(found.job >= 0, found.job, -1 - found.node)  # without a job, the node stands for it
    pairs = np.unique(np.stack([key, found.node]), axis=1) if len(key) else np.zeros((2, 0), dtype=np.int64)
    return float(per_node[pairs[1]].sum() * LOST_HOURS)


def _gpus(prepared: Prepared) -> Floats:
    """GPUs of the node in each state; 1 where the facts do not tell."""
    facts, states = prepared.observed.facts, prepared.design.states
    if "gpu_count" not in facts.names:
        return np.ones(len(states.row))
    index = facts.names.index("gpu_count")
    counts = np.array([float(text) if text.isdecimal() else 1.0 for text in facts.values[index]] + [1.0])
    return np.asarray(counts[facts.codes[states.row, index]])


def _none(row: Ints) -> Ints:
    return np.full(len(row), -1)
