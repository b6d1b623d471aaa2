"""Lists of nodes: outliers, and nodes at risk.

Outliers are nodes, and GPUs by serial number, that crash far more often than similar ones, whatever their facts.

Rates of a GPU model's nodes come from a Gamma, fitted to the counts, but for a few bad nodes; an outlier's own posterior lies
above five times the usual rate, in the whole window or in seven days of it. Its crashes must come from several jobs and
days: one job in a loop does not make an outlier.

Nodes at risk meet a finding, or a cause of the catalogue, and have not crashed yet.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import special, stats

from exporter.fleet.observations import NOT_KNOWN, Bools, Floats, Incidents, Ints, Texts
from exporter.fleet.statistics.confirm import column_of
from exporter.fleet.statistics.design import SERIAL
from exporter.fleet.statistics.exposure import DAY, row_at
from exporter.fleet.statistics.findings import Finding, NodesAtRisk, OutlierNode
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import fit_gamma, marginal

TIMES = 5.0  # the usual rate
SURE = 0.9  # the posterior probability from which on it is listed
MIN_JOBS, MIN_DAYS = 2, 2
RARE = 1e-3  # of the nodes are bad before anything is known of them; Meta found 1.2% (arXiv:2410.21680)
BAD = np.geomspace(TIMES, 100 * TIMES, 40)  # times as often as usual that these crash
SPAN = 7  # days in which a node may be bad that is not bad in the whole of a longer window
ONE_CARD = 0.8  # of a node's crashes on one GPU, from which on it is named
MIN_LIKE = 10  # nodes of one GPU model, below which there is no "usual"


def outlier_nodes(prepared: Prepared) -> tuple[OutlierNode, ...]:
    """Outlier nodes and GPUs, the surest first."""
    nodes = len(prepared.observed.nodes)
    states = prepared.design.states
    hours = np.asarray(np.bincount(states.node, states.hours.sum(axis=1), nodes), dtype=float)
    model = np.zeros(nodes, dtype=np.int64)
    facts = prepared.observed.facts
    if "gpu_model" in facts.names:
        model[facts.node] = facts.codes[:, facts.names.index("gpu_model")] + 1
    outliers = _outliers(
        prepared, prepared.origins, prepared.origins.node, hours, model, "node", prepared.observed.nodes
    )
    outliers += _gpus(prepared, model)
    return tuple(sorted(outliers, key=lambda outlier: (-outlier.probability, -outlier.incidents, outlier.name)))


def _gpus(prepared: Prepared, node_model: Ints) -> list[OutlierNode]:
    """Outlier GPUs, by the serial numbers in the facts, each with the hours of its nodes."""
    facts, nodes = prepared.observed.facts, prepared.observed.nodes
    slots = {name.removeprefix(SERIAL): i for i, name in enumerate(facts.names) if name.startswith(SERIAL)}
    if not slots:
        return []
    states, origins = prepared.design.states, prepared.origins
    names, number = np.unique(
        np.array([serial for slot in slots.values() for serial in facts.values[slot]], dtype=object).astype(str),
        return_inverse=True,
    )
    begins = np.cumsum([0, *(len(facts.values[slot]) for slot in slots.values())])
    cards = [
        np.append(number[a:b], NOT_KNOWN) for a, b in itertools.pairwise(begins.tolist())
    ]  # a slot's code to its card
    hours, model = np.zeros(len(names)), np.zeros(len(names), dtype=np.int64)
    card: Ints = np.full(len(origins.node), NOT_KNOWN)
    at = row_at(facts, origins.node, origins.time)
    for (gpu, slot), card_of in zip(slots.items(), cards, strict=True):
        here = card_of[facts.codes[states.row, slot]]
        there = here >= 0
        np.add.at(hours, here[there], states.hours[there].sum(axis=1))
        model[here[there]] = node_model[states.node[there]]
        own = (origins.gpu == gpu) & (at >= 0)
        card[own] = card_of[facts.codes[at[own], slot]]
    use: Bools = card >= 0
    return _outliers(prepared, origins.take(use), card[use], hours, model, "gpu", tuple(map(str, names)), nodes)


def _outliers(
    prepared: Prepared, incidents: Incidents, owner: Ints, hours: Floats, model: Ints, kind: Literal["node", "gpu"],
    names: tuple[str, ...], nodes: tuple[str, ...] = (),
) -> list[OutlierNode]:  # fmt: skip
    day = ((incidents.time - prepared.window.start) // DAY).astype(np.int64)
    # An incident without a job counts by itself.
    job = np.where(incidents.job >= 0, incidents.job, -1 - np.arange(len(incidents.job)))
    # One fault may show several signatures: of one job on one day, all are one event.
    event = np.unique(np.stack([owner, day, job]), axis=1) if len(owner) else np.zeros((3, 0), dtype=np.int64)
    counts = np.bincount(event[0], minlength=len(names)).astype(float)
    spans = prepared.window.hours / 24 / SPAN
    out = []
    for kind_of_gpu in np.unique(model):
        like = np.flatnonzero((model == kind_of_gpu) & (hours > 0))
        if len(like) < MIN_LIKE or counts[like].sum() == 0:
            continue
        usual = counts[like].sum() / hours[like].sum()
        # The usual rate leaves out the nodes with the most crashes, which may be outliers themselves.
        calm = like[counts[like] <= np.quantile(counts[like], 0.99)]
        usual = max(counts[calm].sum() / hours[calm].sum(), 0.1 * usual)
        shape, rate = fit_gamma(counts[like], hours[like] * usual)
        suspects = like[counts[like] >= max(MIN_JOBS, MIN_DAYS)]
        for suspect in suspects.tolist():
            own, expected, within = event[:, event[0] == suspect], float(hours[suspect] * usual), 0
            probability = _above(own.shape[1], expected, shape, rate)
            if probability < SURE and spans > 1:
                own = own[:, _worst_days(own[1])]
                expected, within = expected / spans, SPAN
                # As many spans are looked at, so each must be surer.
                probability = 1 - (1 - _above(own.shape[1], expected, shape, rate)) * spans
            jobs, days = len(np.unique(own[2])), len(np.unique(own[1]))
            if probability < SURE or jobs < MIN_JOBS or days < MIN_DAYS:
                continue
            rows = np.flatnonzero((owner == suspect) & np.isin(day, own[1]))
            kinds = [prepared.observed.signatures[s] for s in np.unique(incidents.signature[rows])]
            where = names[suspect] if kind == "node" else nodes[int(incidents.node[rows[-1]])]
            out.append(
                OutlierNode(
                    kind=kind, name=names[suspect], node=where, incidents=own.shape[1], jobs=jobs, days=days,
                    expected=expected, probability=probability, signatures=tuple(kinds), within_days=within,
                    gpu=_one_card(incidents.gpu[rows]) if kind == "node" else "",
                )
            )  # fmt: skip
    return out


def _above(count: int, expected: float, shape: float, rate: float) -> float:
    """The probability that a rate is more than five times the usual one: by the Gamma of all nodes, or as one of the few bad
    ones, which the Gamma of a fleet without others does not know.
    """
    usual = marginal(np.array([float(count)]), np.array([expected]), np.array([shape]), np.array([rate]))[0, 0]
    bad = special.logsumexp(count * np.log(BAD * expected) - BAD * expected) - np.log(len(BAD))
    is_bad = float(special.expit(special.logit(RARE) + bad - usual))
    return is_bad + (1 - is_bad) * float(stats.gamma.sf(TIMES, shape + count, scale=1 / (rate + expected)))


def _worst_days(day: Ints) -> Bools:
    """Which events lie in the seven days that have most of them."""
    number = (day[:, None] <= day) & (day < day[:, None] + SPAN)
    first = day[int(number.sum(axis=1).argmax())]
    return np.asarray((day >= first) & (day < first + SPAN))


def _one_card(gpu: Texts) -> str:
    """The GPU that nearly all crashes of a node name."""
    names, number = np.unique(gpu.astype(str), return_counts=True)
    most = int(number.argmax())
    return str(names[most]) if number[most] >= ONE_CARD * len(gpu) else ""


DAYS = 7
NAMED = 1000  # nodes listed; the count says how many there are


def nodes_at_risk(
    prepared: Prepared, findings: Sequence[Finding], causes: Mapping[str, tuple[str, Sequence[int]]]
) -> tuple[NodesAtRisk, ...]:
    """Nodes now under each finding of more crashes, then under each cause, with the crashes expected of them."""
    out = []
    for finding in findings:
        column = column_of(prepared, finding.facts[0]) if finding.direction == "more" else None
        if column is None:
            continue
        if finding.together_with is not None and (other := column_of(prepared, finding.together_with)) is not None:
            column = column & other
        because = " and ".join(map(str, filter(None, (finding.facts[0], finding.together_with))))
        out.append(_exposed(prepared, because, finding.signature, finding.status, column))
    of_causes = []
    for cause, (signature, nodes) in sorted(causes.items()):
        column = np.isin(prepared.design.states.node, np.asarray(nodes, dtype=np.int64))
        of_causes.append(_exposed(prepared, cause, signature, "catalogue", column))
    out += sorted(of_causes, key=lambda row: -row.expected_7d)
    return tuple(row for row in out if row.count)


def _exposed(prepared: Prepared, because: str, signature: str, status: str, column: Bools) -> NodesAtRisk:
    states, observed = prepared.design.states, prepared.observed
    latest = column & (states.until > prepared.window.end)  # what was changed is exposed no more
    number = prepared.number(signature)
    crashed = np.zeros(0, dtype=np.int64) if number is None else prepared.crashed_nodes(number)
    hits = 0 if number is None else int(column[prepared.units_of(number).state].sum())
    hours = float(states.hours[column].sum())
    rate = hits / hours if hours else 0.0
    nodes = np.setdiff1d(np.unique(states.node[latest]), crashed)
    at_risk = latest & np.isin(states.node, nodes)
    length = prepared.window.end - np.maximum(states.since[at_risk], prepared.window.start)  # a rollout may be days old
    watched = states.hours[at_risk].sum() / max(length.sum() / 3600, 1e-9)  # of an hour
    return NodesAtRisk(
        because=because, signature=signature, status=status, count=len(nodes),
        expected_7d=float(len(nodes) * DAYS * 24 * watched * rate),
        nodes=tuple(observed.nodes[int(node)] for node in nodes[:NAMED]),
    )  # fmt: skip
