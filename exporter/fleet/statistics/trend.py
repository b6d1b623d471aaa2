"""The trend of a continuous fact: crashes seen and expected in each fifth of its values."""

from __future__ import annotations

import itertools

import numpy as np

from exporter.fleet.observations import Ints
from exporter.fleet.statistics import continuous, screen
from exporter.fleet.statistics.design import Value
from exporter.fleet.statistics.findings import TrendPart
from exporter.fleet.statistics.prepare import Prepared

PARTS = 5


def trend(prepared: Prepared, units: screen.Units, label: Ints, value: Value) -> tuple[TrendPart, ...]:
    """The fifths of a fact's values, by exposure, within the strata of `label`; nothing if the fact is not continuous."""
    facts, states = prepared.observed.facts, prepared.design.states
    index = facts.names.index(value.fact)
    codes = facts.codes[states.row, index]
    texts = facts.values[index]
    of_code = continuous.numbers(value.fact, texts, np.bincount(codes[codes >= 0], minlength=len(texts)) > 0)
    if of_code is None:
        return ()
    number = np.where(codes >= 0, of_code[np.maximum(codes, 0)], np.nan)
    known = np.flatnonzero(np.isfinite(number))
    order = known[np.argsort(number[known], kind="stable")]
    upto = np.cumsum(states.hours.sum(axis=1)[order])
    inner = [number[order[np.searchsorted(upto, upto[-1] * i / PARTS)]] for i in range(1, PARTS)]
    edges = np.unique([number[order[0]], *inner, np.nextafter(number[order[-1]], np.inf)])
    out = []
    for low, high in itertools.pairwise(edges.tolist()):
        counts = screen.cells(prepared.design, label, (number >= low) & (number < high), units).counts()
        observed, expected = int(counts.observed[0]), float(counts.expected[0])
        out.append(TrendPart(low=low, high=high, observed=observed, expected=expected))
    return tuple(out)
