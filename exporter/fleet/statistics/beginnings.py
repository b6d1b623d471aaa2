"""When a signature began to be frequent, and which facts had changed on the affected nodes in the days before.

The beginning is the change point of a Poisson rate: of all moments, that from which on first crashes are most clearly more
frequent. The facts are ranked by how much more often they changed on the affected nodes than on the others. This is a
list of suspects: whether one of them is the cause is for the comparison of rollouts to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from exporter.fleet.observations import FactRows, Floats, Ints
from exporter.fleet.statistics.design import is_set_by_people
from exporter.fleet.statistics.exposure import DAY
from exporter.fleet.statistics.findings import Beginning, FactValue, PrecedingChange
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import rate_ratio

LEVEL = 0.01  # over all moments and signatures
MIN_RATIO = 3.0  # of the rate after the beginning to that before
MIN_AFTER = 5  # nodes that crashed since
DAYS_BEFORE = 7
DROP = 1.92  # of the log-likelihood: a 95% interval of the beginning
LIKELY = 0.05  # the p-value up to which a change is listed as more frequent on the affected nodes
RECENT = 14 * DAY  # before a node's own crash: what changed earlier is not what it began with
WORTH = 0.1  # of the affected nodes: a change on fewer does not explain why it began
MOSTLY = 0.5  # of the affected nodes: a change on so many is listed even if the others changed alike
MOST_CHANGES = 5  # listed of one beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """Every change of a fact from one known value to another: node, time, fact and its codes."""

    node: Ints
    time: Floats
    fact: Ints
    before: Ints
    after: Ints


def beginnings(prepared: Prepared) -> tuple[Beginning, ...]:
    """The signatures that became frequent within the window, the clearest first."""
    signatures = [s for s, units in sorted(prepared.units.items()) if len(units) >= MIN_AFTER]
    changes = None
    out = []
    for signature in signatures:
        incidents = prepared.units[signature].incidents
        order = np.argsort(incidents.time, kind="stable")
        point = _change_point(_elapsed(prepared, incidents.time[order]))
        if point is None or point.p * len(signatures) > LEVEL:
            continue
        node, time = incidents.node[order], incidents.time[order]
        first, last = time[max(point.low - 1, 0)] if point.low else prepared.window.start, time[point.high]
        if last - first > DAYS_BEFORE * DAY:
            continue  # so long an interval says neither when it began nor what had changed before
        if changes is None:
            changes = _changes(prepared.observed.facts)
        out.append(
            Beginning(
                signature=prepared.name(signature), first=float(first), last=float(last), crashes_before=point.at,
                crashes_after=len(time) - point.at,
                ratio=rate_ratio(
                    float(len(time) - point.at), np.array([float(len(time))]), np.array([(1 - point.share) / point.share])
                ),
                p_value=min(point.p * len(signatures), 1.0),
                changes=_preceding(prepared, changes, node[point.at :], time[point.at :], float(time[point.at])),
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda beginning: (beginning.p_value, beginning.signature)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A change point: the crashes before it, the share of the exposure before it, its p-value and an interval."""

    at: int
    share: float
    p: float
    low: int
    high: int


def _elapsed(prepared: Prepared, time: Floats) -> Floats:
    """The share of the window's exposure that lies before each time."""
    states = prepared.design.states
    total = np.concatenate([[0.0], np.cumsum(states.hours.sum(axis=0))])
    return np.asarray(np.interp(time, states.edges, total / max(float(total[-1]), 1e-9)))


def _change_point(elapsed: Floats) -> _Point | None:
    """elapsed: of each crash, in order, the share of the exposure before it. None where nothing became more frequent."""
    number = len(elapsed)
    before = np.arange(number)
    after = number - before
    share = np.clip(elapsed, 1e-9, 1 - 1e-9)
    gain = special.xlogy(before, before / number / share) + special.xlogy(after, after / number / (1 - share))
    more = (after * share >= MIN_RATIO * before * (1 - share)) & (after >= MIN_AFTER) & (elapsed > 0)
    if not more.any():
        return None
    gain = np.where(more, gain, -np.inf)
    best = int(np.argmax(gain))
    p = min(number * float(stats.chi2.sf(2 * max(gain[best], 0.0), 1)) / 2, 1.0)
    near = np.flatnonzero(gain >= gain[best] - DROP)
    return _Point(at=best, share=float(share[best]), p=p, low=int(near[0]), high=int(near[-1]))


def _changes(facts: FactRows) -> _Changes:
    node, since, codes = facts.node, facts.since, facts.codes
    later = np.flatnonzero(node[1:] == node[:-1]) + 1
    old, new = codes[later - 1], codes[later]
    row, fact = np.nonzero((old != new) & (old >= 0) & (new >= 0))
    use = np.array([is_set_by_people(facts, index) for index in range(len(facts.names))], dtype=bool)[fact]
    row, fact = row[use], fact[use]
    return _Changes(
        node=node[later[row]], time=since[later[row]], fact=fact.astype(np.int64),
        before=old[row, fact].astype(np.int64), after=new[row, fact].astype(np.int64),
    )  # fmt: skip


def _preceding(
    prepared: Prepared, changes: _Changes, node: Ints, time: Floats, began: float
) -> tuple[PrecedingChange, ...]:
    """What changed on the affected nodes before their crash, and on the others by the usual time of these crashes."""
    facts = prepared.observed.facts
    crash = np.full(len(prepared.observed.nodes), float(np.median(time)))
    crash[node] = time
    seen = np.unique(prepared.design.states.node)
    others = len(np.setdiff1d(seen, node))
    own = crash[changes.node]
    inside = (changes.time >= np.maximum(began - DAYS_BEFORE * DAY, own - RECENT)) & (changes.time < own)
    affected = np.isin(changes.node, node)
    out: list[tuple[PrecedingChange, frozenset[int]]] = []
    pairs = np.stack([changes.fact, changes.after])[:, inside & affected]
    for fact, after in np.unique(pairs, axis=1).T.tolist():
        own = inside & (changes.fact == fact) & (changes.after == after)
        hit, rest = np.unique(changes.node[own & affected]), np.unique(changes.node[own & np.isin(changes.node, seen)])
        rest = np.setdiff1d(rest, node)
        p = float(stats.binom.sf(len(hit) - 1, len(node), min((len(rest) + 0.5) / (others + 1), 1.0)))
        if len(hit) < MOSTLY * len(node) and (p > LIKELY or len(hit) < max(2, WORTH * len(node))):
            continue
        of_hit = own & affected
        one = PrecedingChange(
            facts=(FactValue(fact=facts.names[fact], value=facts.values[fact][after]),),
            before=facts.values[fact][int(np.bincount(changes.before[of_hit]).argmax())],
            affected=len(node), affected_changed=len(hit), others=others, others_changed=len(rest),
            hours_before=float(np.median(crash[changes.node[of_hit]] - changes.time[of_hit])) / 3600, p_value=p,
        )  # fmt: skip
        out.append((one, frozenset(hit.tolist())))
    out.sort(key=lambda pair: (pair[0].p_value, -pair[0].affected_changed, str(pair[0].facts[0])))
    return tuple(_together(out)[:MOST_CHANGES])


def _together(changes: Sequence[tuple[PrecedingChange, frozenset[int]]]) -> list[PrecedingChange]:
    """Changes of the very same affected nodes are one row."""
    rows: dict[frozenset[int], PrecedingChange] = {}
    for change, nodes in changes:
        have = rows.get(nodes)
        rows[nodes] = change if have is None else _joined(have, change)
    return list(rows.values())


def _joined(one: PrecedingChange, other: PrecedingChange) -> PrecedingChange:
    return PrecedingChange(
        facts=(*one.facts, *other.facts), before=one.before, affected=one.affected,
        affected_changed=one.affected_changed, others=one.others,
        others_changed=max(one.others_changed, other.others_changed), hours_before=one.hours_before,
        p_value=max(one.p_value, other.p_value),
    )  # fmt: skip
