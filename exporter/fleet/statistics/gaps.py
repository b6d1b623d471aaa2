"""Gaps: what is missing from the data of a window, or cannot be what it claims, as sentences for people."""

from __future__ import annotations

import re

import numpy as np

from exporter.fleet.observations import Beats, Floats, Gap, Incidents, Ints, Observed, Window
from exporter.fleet.statistics.continuous import numbers
from exporter.fleet.statistics.exposure import DAY, States

OVERLAP = 0.25  # of a node's hours that two heartbeats claim, beyond which two machines share its name
MIN_OVERLAPS = 3  # heartbeats; a restarted daemon's may overlap once
RETURNS = 3  # of a fact to the value before its last; a rollback is one
RETURNS_OF_PARTS = 2  # of a serial number; a card that came back from repair is one
SOON = 7 * DAY  # within which a fact returns; over years, cards are swapped and come back
_PART = re.compile(r"serial|uuid|unique_id|machine_id|mac_address|asset", re.IGNORECASE)


def unplaced(observed: Observed, found: Incidents, state: Ints) -> list[Gap]:
    """Incidents that meet no facts or no exposure. `state` is that of each, -1 if none."""
    lost = found.take(state < 0)
    without_facts = ~np.isin(lost.node, observed.facts.node)
    too_early = ~without_facts & (lost.time < _first_facts(observed, lost.node))
    zero = ~without_facts & ~too_early
    out = []
    for kind, which, why in (
        ("incidents_without_facts", without_facts, "on nodes whose facts are not known"),
        ("incidents_before_facts", too_early, "from before their node's first known facts"),
        ("incidents_without_exposure", zero, "on nodes, or in states of them, with no hours of exposure"),
    ):
        if count := int(which.sum()):
            names = _some(observed, lost.node[which])
            out.append(Gap(kind=kind, count=count, what=f"incidents {why} are not tested, {count} in all: {names}"))
    return out


def unwatched(observed: Observed, beats: Beats, states: States, window: Window) -> list[Gap]:
    """Nodes without facts, and nodes that were silent in the window though they reported shortly before."""
    start = beats.end - beats.hours * 3600
    beating = np.unique(beats.node[(beats.end > window.start) & (start < window.end)])
    known = np.unique(observed.facts.node[observed.facts.since < window.end])
    out = []
    without_facts = np.setdiff1d(beating, known)
    if len(without_facts):
        what = f"nodes without facts are left out, {len(without_facts)} in all: {_some(observed, without_facts)}"
        out.append(Gap(kind="nodes_without_facts", count=len(without_facts), what=what))
    # A node that reported nothing for a whole window before this one has left the fleet.
    since = window.start - (window.end - window.start)
    lately = np.concatenate(
        [beats.node[beats.end > since], observed.facts.node[observed.facts.since > since], observed.incidents.node]
    )
    silent = np.setdiff1d(np.intersect1d(known, lately), np.unique(states.node))
    if len(silent):
        what = f"nodes with facts but without exposure in the window, {len(silent)} in all: {_some(observed, silent)}"
        out.append(Gap(kind="nodes_without_exposure", count=len(silent), what=what))
    return out


def _first_facts(observed: Observed, node: Ints) -> Floats:
    first = np.full(len(observed.nodes), np.inf)
    np.minimum.at(first, observed.facts.node, observed.facts.since)
    return np.asarray(first[node])


def _some(observed: Observed, nodes: Ints) -> str:
    names = [observed.nodes[int(node)] for node in np.unique(nodes)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def duplicate_names(observed: Observed) -> list[Gap]:
    """Nodes that must be two machines of one name: their heartbeats overlap, or their facts change to and fro."""
    nodes = np.union1d(_overlapping(observed.beats, len(observed.nodes)), _alternating(observed))
    if not len(nodes):
        return []
    what = (
        f"nodes that look like two machines of one name are counted as one node each, {len(nodes)} in all (their "
        f"heartbeats overlap or their facts change to and fro): {_some(observed, nodes)}; give each machine its own name"
    )
    return [Gap(kind="duplicate_names", count=len(nodes), what=what)]


def _overlapping(beats: Beats, nodes: int) -> Ints:
    order = np.lexsort((beats.end, beats.node))
    node, end, hours = beats.node[order], beats.end[order], beats.hours[order]
    twice = np.zeros(len(node))
    twice[1:] = np.where(node[1:] == node[:-1], end[:-1] - (end - hours * 3600)[1:], 0.0) / 3600
    twice = np.clip(twice, 0.0, hours)
    total, both = (np.bincount(node, each, nodes) for each in (hours, twice))
    number = np.bincount(node, twice > OVERLAP * hours, nodes)
    return np.flatnonzero((number >= MIN_OVERLAPS) & (both > OVERLAP * total))


def _alternating(observed: Observed) -> Ints:
    facts = observed.facts
    order = np.lexsort((facts.since, facts.node))
    node = facts.node[order]
    third = np.flatnonzero(node[2:] == node[:-2]) + 2
    if not len(third):
        return np.zeros(0, dtype=np.int64)
    since = facts.since[order]
    soon = since[third] - since[third - 2] <= SOON
    found = []
    for index, name in enumerate(facts.names):
        part = bool(_PART.search(name))
        texts = facts.values[index]
        if not part and numbers(name, texts, np.ones(len(texts), dtype=bool)) is not None:
            continue  # a temperature comes back all the time
        codes = facts.codes[order, index]
        now, last, before = codes[third], codes[third - 1], codes[third - 2]
        back = soon & (now == before) & (now != last) & (now >= 0) & (last >= 0)
        if back.any():
            times = np.bincount(node[third[back]], minlength=len(observed.nodes))
            found.append(np.flatnonzero(times >= (RETURNS_OF_PARTS if part else RETURNS)))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
