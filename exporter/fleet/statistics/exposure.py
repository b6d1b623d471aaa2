"""Exposure: the hours of each node in each state of its facts, and the state at the time of an incident.

Facts hold from the moment they were recorded until the next record, so an incident meets the facts as of its time, never
those of today: with a third of all crashed nodes re-imaged, today's facts give a rate ratio of 3.9 from nothing.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from exporter.fleet.observations import Beats, Bools, FactRows, Floats, Gap, Ints, Window

DAY = 86400.0
MAX_BINS = 14  # of time: incidents are compared with the exposure of their own day, or fortnight's part
SATURATED = 0.2  # of the nodes at risk that crash first within one part, beyond which parts are made shorter
FEW_LEAVE = 0.08  # of the nodes at risk, within each of these shorter parts
MORE_BINS = 28  # so that the shorter parts reach until one node in ten is left
SHORTEST_PART = 60.0  # seconds
BUSY_SHARE = 0.9  # of the hours must carry GPU-busy hours, for these to be the unit
IDLE_SHARE = 0.01  # of the hours watched count as busy at least
BUSY, OBSERVED, ASSUMED = "gpu_busy_hours", "observed_hours", "assumed_hours"
_MS_BITS = 42  # 139 years in milliseconds; the node's number stands above them in a key


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Nodes in a state of their facts: row i is `facts.codes[row[i]]`, on `node[i]` from `since[i]` to `until[i]`.

    Rows are sorted by node and time. `hours[i, bin]` is its exposure in each part of the window; `edges` are the bounds of
    the parts. `crashed` says that the node had crashed before, in whatever way.
    """

    node: Ints
    row: Ints
    since: Floats
    until: Floats
    crashed: Bools
    hours: Floats
    edges: Floats

    def bin_of(self, time: Floats) -> Ints:
        """The part of the window that each time lies in."""
        return np.clip(np.searchsorted(self.edges, time, side="right") - 1, 0, len(self.edges) - 2)


class WatchedHours:
    """The hours watched, as a function of time for each node: piecewise linear between heartbeats, which are in order."""

    def __init__(self, beats: Beats, amounts: Floats) -> None:
        node, end, hours = beats.node, beats.end, beats.hours
        start = end - hours * 3600
        before = np.full(len(node), -np.inf)
        before[1:] = np.where(node[1:] == node[:-1], end[:-1], -np.inf)
        clipped = np.clip(start, before, end)  # two daemons' beats may overlap: no hour counts twice
        span = np.maximum(end - start, 1e-9)
        amount = amounts * (end - clipped) / span
        self._keys = keys(node, end)
        self._node, self._start, self._end = node, clipped, end
        self._amount = amount
        self._before = np.concatenate([[0.0], np.cumsum(amount)])

    def between(self, node: Ints, start: Floats, end: Floats) -> Floats:
        """The hours of each node from `start` to `end`; 0 where that span is empty."""
        return np.where(end > start, np.maximum(self._until(node, end) - self._until(node, start), 0.0), 0.0)

    def _until(self, node: Ints, time: Floats) -> Floats:
        index = np.searchsorted(self._keys, keys(node, time))
        total: Floats = self._before[index]
        inside = np.minimum(index, len(self._keys) - 1)
        same = (index < len(self._keys)) & (self._node[inside] == node)
        span = np.maximum(self._end[inside] - self._start[inside], 1e-9)
        part = np.clip((time - self._start[inside]) / span, 0.0, 1.0)
        return total + np.where(same, self._amount[inside] * part, 0.0)


def amounts(beats: Beats) -> tuple[str, Floats, tuple[Gap, ...]]:
    """What exposure is counted in, how much of it each heartbeat brings, and what is missing of it."""
    # A job that came and went between two looks at the GPUs leaves none, and its crash would meet no exposure.
    beats = replace(beats, busy=np.maximum(beats.busy, IDLE_SHARE * beats.hours))
    has_busy = np.isfinite(beats.busy)
    total = float(beats.hours.sum())
    share = float(beats.hours[has_busy].sum()) / total if total else 0.0
    if share < BUSY_SHARE:
        if share == 0.0:
            return OBSERVED, beats.hours, ()
        message = f"GPU-busy hours are known for {share:.0%} of the hours only: exposure is counted in hours watched"
        return OBSERVED, beats.hours, (Gap(kind="busy_hours_missing", count=int((~has_busy).sum()), message=message),)
    if has_busy.all():
        return BUSY, beats.busy, ()
    nodes = int(beats.node.max()) + 1
    seen = np.bincount(beats.node[has_busy], beats.hours[has_busy], nodes)
    busy = np.bincount(beats.node[has_busy], beats.busy[has_busy], nodes)
    usual = busy.sum() / seen.sum()
    per_hour = np.divide(busy, seen, out=np.full(nodes, usual), where=seen > 0)
    filled = np.where(has_busy, beats.busy, beats.hours * per_hour[beats.node])
    missing = int((~has_busy).sum())
    message = f"{missing} heartbeats carry no GPU-busy hours: their node's own average is taken"
    return BUSY, filled, (Gap(kind="busy_hours_missing", count=missing, message=message),)


def edges_of(window: Window, times: Floats | None = None, nodes: int = 0) -> Floats:
    """The bounds of the window's parts: days, or larger parts of a long window.

    times: of each node's first crash of one signature, in order; nodes: of the fleet. Where a large share of the nodes
    at risk crashes within one part, parts are so short that few do: who crashed first is then what tells nodes apart.
    """
    bins = min(max(math.ceil((window.end - window.start) / DAY - 1e-9), 1), MAX_BINS)
    edges = np.linspace(window.start, window.end, bins + 1)
    if times is None or not len(times):
        return edges
    crashed = np.searchsorted(times, edges)
    if (np.diff(crashed) <= SATURATED * (nodes - crashed[:-1])).all():
        return edges
    left = nodes * (1 - FEW_LEAVE) ** np.arange(1, MORE_BINS + 1)
    rows = np.unique((nodes - left).astype(np.int64))
    cuts = times[rows[rows < len(times)]]
    both = np.union1d(edges, cuts[(cuts > window.start) & (cuts < window.end)])
    kept = np.concatenate([[True], np.diff(both) >= SHORTEST_PART])
    kept[-1] = True
    return np.asarray(both[kept])


def states(
    facts: FactRows, watched: WatchedHours, window: Window, first_crash: Floats, edges: Floats | None = None
) -> States:
    """Every state that a node was watched in during the window.

    A node counts as crashed from the part of the window after its first crash (`first_crash[node]`, or inf) on, and at
    once when its facts change: whatever image it is given then, it is given to a node that has crashed. If no node's
    facts change within the window, only crashes before the window count: no crash can have brought a fact, and a small
    fleet is not cut into smaller strata. `edges` are the bounds of the window's parts, days if not given.
    """
    edges = edges_of(window) if edges is None else edges
    crashed = np.flatnonzero(first_crash < (window.end if _any_change(facts, window) else window.start))
    marked = np.maximum(first_crash[crashed], window.start)
    marked = edges[np.searchsorted(edges, marked, side="right").clip(max=len(edges) - 1)]
    marked = np.where(first_crash[crashed] < window.start, window.start, marked)
    at, began = facts.node, facts.since
    held = np.searchsorted(keys(at, began), keys(crashed, marked), side="right") - 1
    valid = held >= 0
    valid[valid] = at[held[valid]] == crashed[valid]
    row = np.concatenate([np.arange(len(at)), held[valid]])
    node = np.concatenate([at, crashed[valid]])
    since = np.concatenate([began, marked[valid]])
    order = np.lexsort((since, node))
    row, node, since = row[order], node[order], since[order]
    until = np.full(len(node), np.inf)
    until[:-1] = np.where(node[1:] == node[:-1], since[1:], np.inf)
    hours = np.empty((len(node), len(edges) - 1))
    for part, (low, high) in enumerate(itertools.pairwise(edges)):
        hours[:, part] = watched.between(node, np.maximum(since, low), np.minimum(until, high))
    seen: Bools = hours.sum(axis=1) > 0
    return States(
        node=node[seen], row=row[seen], since=since[seen], until=until[seen], crashed=(since > first_crash[node])[seen],
        hours=hours[seen], edges=edges,
    )  # fmt: skip


def _any_change(facts: FactRows, window: Window) -> bool:
    """Whether a node's facts change within the window."""
    later = np.flatnonzero(
        (facts.node[1:] == facts.node[:-1]) & (facts.since[1:] > window.start) & (facts.since[1:] < window.end)
    )
    return bool((facts.codes[later + 1] != facts.codes[later]).any())


def state_at(states: States, node: Ints, time: Floats) -> Ints:
    """The state of each node at each time; -1 if no facts are known yet, or without exposure."""
    if not len(states.node):
        return np.full(len(node), -1)
    index = np.searchsorted(keys(states.node, states.since), keys(node, time), side="right") - 1
    holds = (index >= 0) & (states.node[index] == node) & (time >= states.since[index]) & (time < states.until[index])
    return np.where(holds, index, -1)


def row_at(facts: FactRows, node: Ints, time: Floats) -> Ints:
    """The row of facts that held on each node at each time; -1 if none was known yet."""
    row = np.searchsorted(keys(facts.node, facts.since), keys(node, time), side="right") - 1
    return np.where(np.append(facts.node, -1)[row] == node, row, -1)


def keys(node: Ints, time: Floats) -> Ints:
    """Node and time as one number that sorts as both do; times before 1970 and after 2109 as these."""
    milliseconds = np.clip(np.floor(time * 1000), 0, (1 << _MS_BITS) - 1).astype(np.int64)
    return np.asarray((node.astype(np.int64) << _MS_BITS) | milliseconds)
