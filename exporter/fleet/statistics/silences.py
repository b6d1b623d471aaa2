"""Silences: nodes that went dark for a day or longer and came back, an outcome beside the signatures.

A node that dies without a record leaves only the hole in its heartbeats. A hole is not counted if the node had nothing to do,
had just crashed (that is its record), never came back (it left the fleet, or its records are late), came back changed (it was
serviced), or shares its hole with others: an outage of the collector, of the site or of a rack. Nor is one whose last heartbeat
does not say what the node did in its last hours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.fleet.observations import Beats, Bools, FactRows, Floats, Incidents, Ints, Observed
from exporter.fleet.statistics.design import is_set_by_people
from exporter.fleet.statistics.exposure import DAY, IDLE_SHARE, keys, row_at

SILENT = "node_silent_for_a_day"
SHORTEST_SLOT = 3600.0  # within which nodes fall silent together, or come back; at least the usual heartbeat
LONGEST_BEAT = (
    6.0  # hours: of a longer one, merged by day or from Prometheus, nobody knows what the node did at its end
)
SHARED = 3  # nodes at least that share a silence …
TIMES = 5.0  # … and times as many as by chance (stories "… outage" and "… at random")


def silences(observed: Observed, neighbourhoods: Sequence[Ints]) -> Incidents:
    """The first moment of each silence, by time, as incidents without a job. Their signature is the next free number."""
    beats = observed.beats
    node, end = beats.node, beats.end
    begin = end - beats.hours * 3600
    last = np.flatnonzero((node[1:] == node[:-1]) & (begin[1:] - end[:-1] >= DAY))
    last = last[(beats.busy[last] > IDLE_SHARE * beats.hours[last]) & (beats.hours[last] <= LONGEST_BEAT)]
    last = last[row_at(observed.facts, node[last], end[last]) >= 0]
    last = last[~_recorded(observed.incidents, node[last], end[last] - DAY, begin[last + 1])]
    last = last[~_changed(observed.facts, node[last], end[last], end[last + 1])]
    last = last[~_shared(beats, node[last], end[last], begin[last + 1], neighbourhoods)]
    last = last[np.argsort(end[last], kind="stable")]
    nobody = np.full(len(last), -1)
    return Incidents(
        node=node[last], time=end[last], signature=np.full(len(last), len(observed.signatures)), job=nobody, user=nobody,
        id=np.full(len(last), "", dtype=object), gpu=np.full(len(last), "", dtype=object),
    )  # fmt: skip


def _recorded(incidents: Incidents, node: Ints, since: Floats, until: Floats) -> Bools:
    """Whether a crash of the node lies between two times."""
    crashes = np.sort(keys(incidents.node, incidents.time))
    return np.asarray(np.searchsorted(crashes, keys(node, until)) > np.searchsorted(crashes, keys(node, since)))


def _changed(facts: FactRows, node: Ints, since: Floats, until: Floats) -> Bools:
    """Whether what people set of a node differs after a silence."""
    settings = [index for index in range(len(facts.names)) if is_set_by_people(facts, index)]
    before, after = (facts.codes[row_at(facts, node, time)][:, settings] for time in (since, until))
    return np.asarray(((before != after) & (before >= 0) & (after >= 0)).any(axis=1))


def _shared(beats: Beats, node: Ints, since: Floats, until: Floats, neighbourhoods: Sequence[Ints]) -> Bools:
    """Whether far more nodes than by chance fall silent with a node: at once, until the same time, or beside it."""
    shared = np.zeros(len(node), dtype=bool)
    if not len(node):
        return shared
    slot = max(float(np.median(beats.hours)) * 3600, SHORTEST_SLOT)
    first, back = ((time // slot).astype(np.int64) for time in (since, until))
    slots = max((float(beats.end.max()) - float(beats.end.min())) / slot, 1.0)
    groups = [(first, first, slots), (first, back, slots**2 / 2)]
    groups += [(first, of_node[node], slots * (int(of_node.max()) + 1)) for of_node in neighbourhoods]
    for one, other, cells in groups:
        cell, number = np.unique(np.stack([one, other]), axis=1, return_inverse=True, return_counts=True)[1:]
        together = number[cell.reshape(-1)]
        shared |= (together >= SHARED) & (together > TIMES * len(node) / cells) & (other >= 0)
    return shared
