"""Origins: incidents that one fault caused are one origin. All nodes of a job become the node that failed first.

A burst is one fault: crashes of one signature within a minute of each other anywhere, or within ten minutes of each other
on neighbouring nodes, whatever their jobs: a switch that fails takes forty jobs with it. Where crashes are so frequent that
they lie so close by chance, they are not merged; without job ids, the minute counts even then.

The unit of evidence of everything statistical here is a distinct origin node. Counting a job's nodes one by one gives
1,400 false findings on a fleet of 20,000 nodes without any cause; counting an outlier node's incidents gives dozens.
"""

import re
from collections.abc import Sequence

import numpy as np

from exporter.fleet.observations import Bools, FactRows, Incidents, Ints

LOOP = 24  # crashes of a node; behind that it is in a loop
GAP_SECONDS = 60.0  # the node daemon's own window; coarser than the 5 s in which Xids repeat (arXiv:2503.11901)
BURST_SECONDS = 600.0  # between crashes of neighbours: a job's nodes may time out one after the other
BY_CHANCE = 0.1  # crashes expected within a burst's gap and place, beyond which they are not taken for one


def origins(incidents: Incidents, neighbourhoods: Sequence[Ints] = ()) -> Incidents:
    """The first incident of each burst of a signature, by time; of each job only the first counts.

    Of several at the very same time the id decides, then the order given; not the node's name, which would favour low
    numbers, hence racks. `neighbourhoods` number the nodes' neighbourhoods, -1 where a node has none.
    """
    ordered = incidents.take(_by_time(incidents))
    with_job = np.flatnonzero(ordered.job >= 0)
    _, first = np.unique(np.stack([ordered.job[with_job], ordered.signature[with_job]]), axis=1, return_index=True)
    without = np.flatnonzero(ordered.job < 0)
    order = np.lexsort((without, ordered.signature[without], ordered.node[without]))
    without = without[order]
    begins = np.ones(len(without), dtype=bool)
    begins[1:] = (
        (np.diff(ordered.node[without]) != 0)
        | (np.diff(ordered.signature[without]) != 0)
        | (np.diff(ordered.time[without]) > GAP_SECONDS)
    )
    begun = np.sort(np.concatenate([with_job[first], without[begins]]))
    return ordered.take(_first_of_bursts(ordered, begun, neighbourhoods))


def _first_of_bursts(ordered: Incidents, rows: Ints, neighbourhoods: Sequence[Ints]) -> Ints:
    """Of rows by time those that begin a burst: no crash of the signature shortly before them.

    Of each node only the first few count for others: an outlier node in a loop would else hide everybody's crashes.
    """
    by_node = rows[np.lexsort((rows, ordered.node[rows], ordered.signature[rows]))]
    owner = np.stack([ordered.signature[by_node], ordered.node[by_node]])
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(owner) != 0).any(axis=0)])) if len(rows) else rows
    nth = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    counts = np.zeros(len(ordered.node), dtype=bool)
    counts[by_node[nth < LOOP]] = True
    anywhere = np.zeros(len(ordered.node), dtype=np.int64)
    one_minute = _rare(ordered, rows, GAP_SECONDS, 1.0) | (ordered.job[rows] < 0)
    follows = one_minute & _follows(ordered, rows, counts, anywhere, GAP_SECONDS)
    beside = min(BESIDE / max(len(np.unique(ordered.node)), 1), 1.0)
    rare = _rare(ordered, rows, BURST_SECONDS, beside)
    for of_node in neighbourhoods:
        follows |= rare & _follows(ordered, rows, counts, of_node[ordered.node], BURST_SECONDS)
    return np.asarray(rows[~follows])


def _follows(ordered: Incidents, rows: Ints, counts: Bools, group: Ints, gap: float) -> Bools:
    """Whether each row follows, within a gap, a row that counts, of its signature and on another node of its place."""
    order = np.lexsort((rows, group[rows], ordered.signature[rows]))
    sorted_ = rows[order]
    marks = np.where(counts[sorted_], np.arange(len(rows)), -1)
    before = np.maximum.accumulate(np.concatenate([[-1], marks]))[:-1]  # the last crash that counts before each
    last = sorted_[before]
    same = (before >= 0) & (ordered.signature[last] == ordered.signature[sorted_])
    same &= (group[last] == group[sorted_]) & (group[sorted_] >= 0)
    same &= ordered.time[sorted_] - ordered.time[last] <= gap
    if gap > GAP_SECONDS:  # a node's own crashes are separated already
        same &= ordered.node[last] != ordered.node[sorted_]
    follows = np.zeros(len(rows), dtype=bool)
    follows[order] = same
    return follows


def _rare(ordered: Incidents, rows: Ints, gap: float, share: float) -> Bools:
    """Whether a row's signature is so rare that two nodes of a share of the fleet hardly crash within a gap by chance."""
    if not len(rows):
        return np.zeros(0, dtype=bool)
    signature, time = ordered.signature[rows], ordered.time[rows]
    span = max(float(time.max() - time.min()), gap)
    # Of a burst many nodes crash at once; its nodes count once, or large bursts would make themselves usual.
    slots = np.unique(np.stack([signature, (time // gap).astype(np.int64)]), axis=1)[0]
    number = np.bincount(slots, minlength=int(signature.max()) + 1)
    return np.asarray((number * (gap / span) * share)[signature] <= BY_CHANCE)


def first_of_nodes(origin_rows: Incidents) -> Incidents:
    """The first origin of each node and signature. `found` is sorted by time."""
    _, first = np.unique(np.stack([origin_rows.node, origin_rows.signature]), axis=1, return_index=True)
    return origin_rows.take(np.sort(first))


def _by_time(incidents: Incidents) -> Ints:
    tie = np.unique(incidents.id.astype(str), return_inverse=True)[1]
    return np.lexsort((tie, incidents.time))


BESIDE = 64  # nodes in the order of their names; the usual job of many nodes is smaller
RACKS = ("rack", "chassis", "cabinet", "row")
_NUMBER = re.compile(r"(\d+)")


def neighbourhoods(nodes: Sequence[str], facts: FactRows) -> tuple[Ints, ...]:
    """For each node its neighbourhood, in several ways; -1 where it has none.

    Two cuts of the order of names, half a block apart, so that any two nodes within half a block share one. Then the
    rack, by the node's latest facts.
    """
    position = np.empty(len(nodes), dtype=np.int64)
    position[sorted(range(len(nodes)), key=lambda i: _in_order(nodes[i]))] = np.arange(len(nodes))
    cuts = (position // BESIDE, (position + BESIDE // 2) // BESIDE)
    rack = racks(facts, len(nodes))
    return cuts if rack is None else (*cuts, rack)


def racks(facts: FactRows, nodes: int) -> Ints | None:
    """The rack of each node, by its latest facts; -1 where it is not known. None if no fact names racks."""
    name = next((rack for rack in RACKS if rack in facts.names), None)
    if name is None:
        return None
    last = np.full(nodes, -1, dtype=np.int64)
    order = np.argsort(facts.since, kind="stable")
    last[facts.node[order]] = facts.codes[order, facts.names.index(name)]
    return last


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts n9 before n10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name) if part)
