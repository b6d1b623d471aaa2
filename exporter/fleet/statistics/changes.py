"""Upgrades and other changes: did a signature become more, or less, frequent on the nodes where a fact changed?

Each node is compared with itself, which takes lemons and places out, and over the same days with the nodes that did not
change, which takes the time out. The days around a change are left out: reboots, and changes made because of a crash.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics.exposure import DAY
from exporter.fleet.statistics.findings import Change
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import rate_ratio

MIN_CHANGED = 10  # nodes
MIN_CRASHES = 5  # on them, before and after together
BEFORE, AFTER = 2 * DAY, 1 * DAY  # left out: a node that crashes is often the next to be upgraded
FDR = 0.05


def changes(prepared: Prepared) -> tuple[Change, ...]:
    """Every change of a fact on enough nodes against every signature; those that pass the false-discovery gate."""
    compared = (
        _compare(prepared, *rollout, signature) for rollout in _rollouts(prepared) for signature in prepared.units
    )
    tested = [one for one in compared if one is not None]
    if not tested:
        return ()
    q = stats.false_discovery_control([each.p_value for each in tested])
    found = [each for each, ok in zip(tested, q <= FDR, strict=True) if ok]
    return tuple(sorted(found, key=lambda each: each.p_value))


def _rollouts(prepared: Prepared) -> list[tuple[int, int, int, Ints, Floats]]:
    """Each fact, old and new value, with the nodes that went from one to the other within the window, and when."""
    facts, window = prepared.observed.facts, prepared.window
    order = np.lexsort((facts.since, facts.node))
    node, since, codes = facts.node[order], facts.since[order], facts.codes[order]
    inside = np.flatnonzero((node[1:] == node[:-1]) & (since[1:] > window.start) & (since[1:] < window.end)) + 1
    out = []
    for fact in range(len(facts.names)):
        old, new = codes[inside - 1, fact], codes[inside, fact]
        moved = (old != new) & (old >= 0) & (new >= 0)
        for before, after in np.unique(np.stack([old[moved], new[moved]]), axis=1).T:
            at = inside[moved & (old == before) & (new == after)]
            if len(np.unique(node[at])) >= MIN_CHANGED:
                first = np.unique(node[at], return_index=True)[1]
                out.append((fact, int(before), int(after), node[at][first], since[at][first]))
    return out


def _compare(
    prepared: Prepared, fact: int, before: int, after: int, node: Ints, time: Floats, signature: int
) -> Change | None:
    facts = prepared.observed.facts
    left, right = time - BEFORE, time + AFTER
    where = {int(n): i for i, n in enumerate(node)}
    found = prepared.origins.take(prepared.origins.signature == signature)
    own: Bools = np.isin(found.node, node)
    at = np.array([where[int(n)] for n in found.node[own]], dtype=np.int64)
    early, late = found.time[own] < left[at], found.time[own] >= right[at]
    if early.sum() + late.sum() < MIN_CRASHES:
        return None
    edges = prepared.design.states.edges
    calm = np.full(len(edges) - 1, 1.0)
    controls = np.setdiff1d(np.unique(prepared.design.states.node), facts.node[_changing(prepared, fact)])
    if len(controls) >= MIN_CHANGED:
        crashes = np.bincount(
            prepared.design.states.bin_of(found.time[np.isin(found.node, controls)]), minlength=len(calm)
        )
        hours = prepared.design.states.hours[np.isin(prepared.design.states.node, controls)].sum(axis=0)
        # One crash spread over all days keeps a quiet day of the controls from forbidding any crash.
        calm = (crashes + 1 / len(calm)) / np.maximum(hours, 1e-9)
    weight_before, weight_after = np.zeros(len(node)), np.zeros(len(node))
    for rate, low, high in zip(calm, edges[:-1], edges[1:], strict=True):
        at_low, at_high = np.full(len(node), low), np.full(len(node), high)
        weight_before += rate * prepared.sight.between(node, at_low, np.minimum(left, at_high))
        weight_after += rate * prepared.sight.between(node, np.maximum(right, at_low), at_high)
    # One node, one crash on each side: a lemon's tenth crash is not the upgrade's.
    pairs = np.unique(np.stack([at[early | late], late[early | late].astype(np.int64)]), axis=1)
    crashes_of = np.bincount(pairs[0], minlength=len(node)).astype(float)
    ratio_after = np.divide(weight_after, weight_before, out=np.zeros(len(node)), where=weight_before > 0)
    use = (crashes_of > 0) & (ratio_after > 0)
    observed = float(pairs[1][use[pairs[0]]].sum())
    total = float(crashes_of[use].sum())
    if total < MIN_CRASHES:
        return None
    expected = float((crashes_of * ratio_after / (1 + ratio_after))[use].sum())
    share = expected / total
    p = 2 * min(float(stats.binom.sf(observed - 1, total, share)), float(stats.binom.cdf(observed, total, share)))
    names = facts.values[fact]
    return Change(
        fact=facts.names[fact], before=names[before], after=names[after],
        signature=prepared.observed.signatures[signature], nodes=len(node), crashes_before=int(total - observed),
        crashes_after=int(observed), expected_after=expected,
        ratio=rate_ratio(observed, crashes_of[use], ratio_after[use]), p_value=min(p, 1.0),
    )  # fmt: skip


def _changing(prepared: Prepared, fact: int) -> Bools:
    """The rows of nodes on which a fact has ever changed."""
    facts = prepared.observed.facts
    least = np.full(len(prepared.observed.nodes), np.iinfo(np.int32).max, dtype=np.int64)
    most = np.full(len(prepared.observed.nodes), -2, dtype=np.int64)
    np.minimum.at(least, facts.node, facts.codes[:, fact])
    np.maximum.at(most, facts.node, facts.codes[:, fact])
    return np.asarray(least[facts.node] != most[facts.node])
