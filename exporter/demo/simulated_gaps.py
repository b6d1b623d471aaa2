"""What is missing from a simulated fleet's journals, and nodes that get another name: as in every real collection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from exporter.fleet.observations import NOT_KNOWN, Beats, FactRows, Observed, Window


def rename(observed: Observed, share: float, window: Window, rng: Generator) -> Observed:
    """A share of the nodes have a new name from some time in the middle half of the window on, and the facts as before."""
    nodes = len(observed.nodes)
    old = np.flatnonzero(rng.random(nodes) < share)
    when = np.full(nodes, np.inf)
    when[old] = window.start + rng.uniform(0.25, 0.75, len(old)) * (window.end - window.start)
    new = np.arange(nodes)
    new[old] = nodes + np.arange(len(old))
    facts, beats, incidents = observed.facts, observed.beats, observed.incidents
    order = np.lexsort((facts.since, facts.node))
    held = np.full(nodes, -1, dtype=np.int64)
    before = facts.since[order] <= when[facts.node[order]]
    held[facts.node[order][before]] = order[before]  # the last facts under the old name
    copied = old[held[old] >= 0]
    return replace(
        observed,
        nodes=(*observed.nodes, *(f"{observed.nodes[node]}-new" for node in old.tolist())),
        facts=FactRows(
            names=facts.names, values=facts.values,
            node=np.concatenate([np.where(facts.since > when[facts.node], new[facts.node], facts.node), new[copied]]),
            since=np.concatenate([facts.since, when[copied]]), codes=np.concatenate([facts.codes, facts.codes[held[copied]]]),
        ),
        beats=replace(beats, node=np.where(beats.end > when[beats.node], new[beats.node], beats.node)),
        incidents=replace(
            incidents, node=np.where(incidents.time > when[incidents.node], new[incidents.node], incidents.node)
        ),
    )  # fmt: skip


def lose(observed: Observed, share: float, window: Window, rng: Generator) -> Observed:
    """The journals of a share of the nodes are missing: of half of these nodes all, of the others all after some time."""
    nodes = len(observed.nodes)
    lost = np.flatnonzero(rng.random(nodes) < share)
    until = np.full(nodes, np.inf)
    until[lost] = np.where(rng.random(len(lost)) < 0.5, -np.inf, rng.uniform(window.start, window.end, len(lost)))
    facts, beats, incidents = observed.facts, observed.beats, observed.incidents
    kept, beating = facts.since < until[facts.node], beats.end < until[beats.node]
    return replace(
        observed,
        facts=replace(facts, node=facts.node[kept], since=facts.since[kept], codes=facts.codes[kept]),
        beats=Beats(
            node=beats.node[beating], end=beats.end[beating], hours=beats.hours[beating], busy=beats.busy[beating]
        ),
        incidents=incidents.take(incidents.time < until[incidents.node]),
    )


def forget_jobs(observed: Observed, minutes: float, rng: Generator) -> Observed:
    """No job is known, and the nodes of each die one after the other over so many minutes."""
    incidents = observed.incidents
    _, first, job = np.unique(incidents.job, return_index=True, return_inverse=True)
    later = np.arange(len(incidents.job)) != first[job]
    time = np.where(later, incidents.time[first][job] + rng.uniform(0, minutes * 60, len(job)), incidents.time)
    nobody = np.full(len(job), NOT_KNOWN)
    return replace(observed, incidents=replace(incidents, time=time, job=nobody, user=nobody, workload={}))
