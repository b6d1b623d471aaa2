"""Neighbours: nodes that one event may take down together, as they share a place or stand beside each other.

Only names and places are used. Schedulers give a job nodes that follow each other in name, or that share a rack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from exporter.fleet.observations import FactRows, Ints

BESIDE = 64  # nodes in the order of their names; the usual job of many nodes is smaller
RACKS = ("rack", "chassis", "cabinet", "row")
_NUMBER = re.compile(r"(\d+)")


def neighbourhoods(nodes: Sequence[str], facts: FactRows) -> tuple[Ints, ...]:
    """For each node its neighbourhood, in several ways; -1 where it has none.

    Two cuts of the order of names, half a block apart, so that any two nodes within half a block share one. Then the
    rack, by the node's latest facts.
    """
    place = np.empty(len(nodes), dtype=np.int64)
    place[sorted(range(len(nodes)), key=lambda i: _in_order(nodes[i]))] = np.arange(len(nodes))
    cuts = (place // BESIDE, (place + BESIDE // 2) // BESIDE)
    rack = racks(facts, len(nodes))
    return cuts if rack is None else (*cuts, rack)


def racks(facts: FactRows, nodes: int) -> Ints | None:
    """The rack of each node, by its latest facts; -1 where it is not known. None if no fact names racks."""
    name = next((each for each in RACKS if each in facts.names), None)
    if name is None:
        return None
    last = np.full(nodes, -1, dtype=np.int64)
    order = np.argsort(facts.since, kind="stable")
    last[facts.node[order]] = facts.codes[order, facts.names.index(name)]
    return last


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts n9 before n10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name) if part)
