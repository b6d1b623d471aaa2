"""Origins: which incidents are one fault. Lines become incidents, and all nodes of a job become the node that failed first.

Where jobs are not known, crashes of one signature that follow each other within a minute are taken for one job's, whatever
nodes they are on: what is lost is some power where thousands crash a day, and 30 % of crashes that take whole jobs would
else be hundreds of false findings.

The unit of evidence of everything statistical here is a distinct origin node. Counting a job's nodes one by one gives
1,400 false findings on a fleet of 20,000 nodes without any cause; counting a lemon's incidents gives dozens.
"""

from __future__ import annotations

import numpy as np

from exporter.fleet.observations import Incidents, Ints

LOOP = 24  # crashes of a node; behind that it is in a loop
GAP_SECONDS = 60.0  # the node daemon's own window; coarser than the 5 s in which Xids repeat (arXiv:2503.11901)


def origins(incidents: Incidents) -> Incidents:
    """The first incident of each job and signature, and of each burst where no job is known, by time.

    Of several at the very same time the id decides, then the order given; not the node's name, which would favour low
    numbers, hence racks.
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
    alone = _not_of_a_neighbour(ordered, np.sort(without[begins]))
    return ordered.take(np.sort(np.concatenate([with_job[first], alone])))


def _not_of_a_neighbour(ordered: Incidents, rows: Ints) -> Ints:
    """Of rows without a job, by time, those that follow no crash of the signature within a minute.

    Of each node only the first few count for others: a lemon in a loop would else swallow everybody's.
    """
    by_node = rows[np.lexsort((rows, ordered.node[rows], ordered.signature[rows]))]
    owner = np.stack([ordered.signature[by_node], ordered.node[by_node]])
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(owner) != 0).any(axis=0)])) if len(rows) else rows
    nth = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    counts = np.zeros(len(ordered.node), dtype=bool)
    counts[by_node[nth < LOOP]] = True
    rows = rows[np.lexsort((rows, ordered.signature[rows]))]
    marks = np.where(counts[rows], np.arange(len(rows)), -1)
    before = np.maximum.accumulate(np.concatenate([[-1], marks]))[:-1]  # the last crash that counts before each
    same = (before >= 0) & (ordered.signature[rows[before]] == ordered.signature[rows])
    follows = same & (ordered.time[rows] - ordered.time[rows[before]] <= GAP_SECONDS)
    return np.asarray(rows[~follows])


def first_on_each_node(found: Incidents) -> Incidents:
    """The first origin of each node and signature: the units of evidence. `found` is sorted by time."""
    _, first = np.unique(np.stack([found.node, found.signature]), axis=1, return_index=True)
    return found.take(np.sort(first))


def _by_time(incidents: Incidents) -> Ints:
    tie = np.unique(incidents.id.astype(str), return_inverse=True)[1]
    return np.lexsort((tie, incidents.time))
