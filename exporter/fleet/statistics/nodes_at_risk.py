"""Nodes at risk: nodes that meet a finding, or a cause of the catalogue, and have not crashed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from exporter.fleet.observations import Bools
from exporter.fleet.statistics.confirm import column_of
from exporter.fleet.statistics.findings import Finding, NodesAtRisk
from exporter.fleet.statistics.prepare import Prepared

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
    known = []
    for cause, (signature, nodes) in sorted(causes.items()):
        column = np.isin(prepared.design.states.node, np.asarray(nodes, dtype=np.int64))
        known.append(_exposed(prepared, cause, signature, "catalogue", column))
    out += sorted(known, key=lambda each: -each.expected_7d)
    return tuple(each for each in out if each.count)


def _exposed(prepared: Prepared, because: str, signature: str, status: str, column: Bools) -> NodesAtRisk:
    states, observed = prepared.design.states, prepared.observed
    latest = column & (states.until > prepared.window.end)  # what was changed is exposed no more
    number = prepared.number(signature)
    members = () if number is None else prepared.members.get(number, (number,))
    crashed = prepared.origins.node[np.isin(prepared.origins.signature, members)]
    hits = 0 if number is None else int(column[prepared.units_of(number).state].sum())
    hours = float(states.hours[column].sum())
    rate = hits / hours if hours else 0.0
    nodes = np.setdiff1d(np.unique(states.node[latest]), crashed)
    weekly = states.hours[latest & np.isin(states.node, nodes)].sum() * DAYS * 24 / max(prepared.window.hours, 1e-9)
    return NodesAtRisk(
        because=because, signature=signature, status=status, count=len(nodes), expected_7d=float(weekly * rate),
        nodes=tuple(observed.nodes[int(node)] for node in nodes[:NAMED]),
    )  # fmt: skip
