"""Lemons: nodes, and GPUs by their serial numbers, that crash far more often than their like whatever their facts.

Rates of a GPU model's nodes come from a Gamma, fitted to the counts; a lemon is one whose own posterior lies above five
times the usual rate. Its crashes must come from several jobs and days: one job in a loop is no lemon.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import stats

from exporter.fleet.exposure import DAY
from exporter.fleet.finding import Lemon
from exporter.fleet.observed import Bools, Floats, Incidents, Ints
from exporter.fleet.prepare import Prepared
from exporter.fleet.shrink import fit_one

TIMES = 5.0  # the usual rate
SURE = 0.9  # the posterior probability from which on it is listed
MIN_JOBS, MIN_DAYS = 2, 2
MIN_LIKE = 10  # nodes of one GPU model, below which there is no "usual"
SERIAL = "gpu_serial."  # facts gpu_serial.PCI-ADDRESS, so that a card is followed to its next node


def lemons(prepared: Prepared) -> tuple[Lemon, ...]:
    """Lemon nodes and lemon GPUs, the surest first."""
    nodes = len(prepared.observed.nodes)
    states = prepared.design.states
    hours = np.asarray(np.bincount(states.node, states.hours.sum(axis=1), nodes), dtype=float)
    model = np.zeros(nodes, dtype=np.int64)
    facts = prepared.observed.facts
    if "gpu_model" in facts.names:
        model[facts.node] = facts.codes[:, facts.names.index("gpu_model")] + 1
    found = _lemons(prepared, prepared.origins, prepared.origins.node, hours, model, "node", prepared.observed.nodes)
    found += _gpus(prepared, model)
    return tuple(sorted(found, key=lambda each: (-each.probability, -each.incidents, each.name)))


def _gpus(prepared: Prepared, node_model: Ints) -> list[Lemon]:
    """The same over GPUs whose serial numbers the facts tell, each with its nodes' hours."""
    facts, nodes = prepared.observed.facts, prepared.observed.nodes
    slots = {name.removeprefix(SERIAL): i for i, name in enumerate(facts.names) if name.startswith(SERIAL)}
    if not slots:
        return []
    serials: dict[str, int] = {}
    states = prepared.design.states
    hours: dict[int, float] = {}
    model: dict[int, int] = {}
    for slot in slots.values():
        codes = facts.codes[states.row, slot]
        for state in np.flatnonzero(codes >= 0):
            number = serials.setdefault(facts.values[slot][codes[state]], len(serials))
            hours[number] = hours.get(number, 0.0) + float(states.hours[state].sum())
            model[number] = int(node_model[states.node[state]])
    found = prepared.origins
    card: Ints = np.full(len(found.node), -1)
    order = np.lexsort((facts.since, facts.node))
    for i in np.flatnonzero([gpu in slots for gpu in found.gpu]):
        rows = order[(facts.node[order] == found.node[i]) & (facts.since[order] <= found.time[i])]
        code = facts.codes[rows[-1], slots[found.gpu[i]]] if len(rows) else -1
        if code >= 0:
            card[i] = serials[facts.values[slots[found.gpu[i]]][code]]
    size = len(serials)
    of = np.array([hours.get(c, 0.0) for c in range(size)])
    kinds = np.array([model.get(c, 0) for c in range(size)])
    use: Bools = card >= 0
    return _lemons(prepared, found.take(use), card[use], of, kinds, "gpu", tuple(serials), nodes)


def _lemons(
    prepared: Prepared, found: Incidents, owner: Ints, hours: Floats, model: Ints, kind: Literal["node", "gpu"],
    names: tuple[str, ...], nodes: tuple[str, ...] = (),
) -> list[Lemon]:  # fmt: skip
    day = ((found.time - prepared.window.start) // DAY).astype(np.int64)
    job = np.where(found.job >= 0, found.job, -1 - np.arange(len(found.job)))  # without a job, each by itself
    # One fault may show several signatures: of one job on one day, all are one event.
    event = np.unique(np.stack([owner, day, job]), axis=1) if len(owner) else np.zeros((3, 0), dtype=np.int64)
    counts = np.bincount(event[0], minlength=len(names)).astype(float)
    out = []
    for kind_of_gpu in np.unique(model):
        like = np.flatnonzero((model == kind_of_gpu) & (hours > 0))
        if len(like) < MIN_LIKE or counts[like].sum() == 0:
            continue
        usual = counts[like].sum() / hours[like].sum()
        # The usual rate is that of nodes which are no lemons themselves: those with the most crashes are left out.
        calm = like[counts[like] <= np.quantile(counts[like], 0.99)]
        usual = max(counts[calm].sum() / hours[calm].sum(), 0.1 * usual)
        shape, rate = fit_one(counts[like], hours[like] * usual)
        suspects = like[counts[like] >= max(MIN_JOBS, MIN_DAYS)]
        above = stats.gamma.sf(TIMES, shape + counts[suspects], scale=1 / (rate + hours[suspects] * usual))
        for each, probability in zip(suspects, above, strict=True):
            own = event[:, event[0] == each]
            jobs, days = len(np.unique(own[2])), len(np.unique(own[1]))
            if probability < SURE or jobs < MIN_JOBS or days < MIN_DAYS:
                continue
            rows = np.flatnonzero(owner == each)
            kinds = [prepared.observed.signatures[s] for s in np.unique(found.signature[rows])]
            where = names[each] if kind == "node" else nodes[int(found.node[rows[-1]])]
            out.append(
                Lemon(
                    kind=kind, name=names[each], node=where, incidents=int(counts[each]), jobs=jobs, days=days,
                    expected=float(hours[each] * usual), probability=float(probability), signatures=tuple(kinds),
                )
            )  # fmt: skip
    return out
