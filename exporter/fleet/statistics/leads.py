"""Signatures without a finding: how many crashes it would take to find one, and the most likely value so far (a lead).

A signature of a few crashes is not tested. If they all fall on a rare value, that is still worth a look: its exact
p-value is given, with the number of values that were compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exporter.fleet.observations import Bools, Floats
from exporter.fleet.statistics import power, screen
from exporter.fleet.statistics.discover import FDR, Discovery
from exporter.fleet.statistics.findings import NotEnough
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.screen import Counts

USUAL_SHARE, USUAL_RATIO = 0.1, 5.0  # of the fact and the effect that are reckoned with if there is no lead
LEAD = 0.2  # over the number of values: the p-value from which on one of a tested signature is a lead
MOST_RATIO = 10.0  # a ratio of few crashes overstates itself


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    """The value on which a signature's crashes fall most unexpectedly."""

    value: int
    observed: int
    expected: float
    crashes: float
    p: float


def not_enough_data(prepared: Prepared, discovery: Discovery) -> tuple[NotEnough, ...]:
    """Each signature that crashed without a finding, with what it would take to find one."""
    explained = {
        member
        for s, each in discovery.found
        if prepared.design.values[each.value].family != "location"
        for member in prepared.members.get(s, (s,))
    }
    usable = np.array([value.family == "configuration" for value in prepared.design.values], dtype=bool)
    of_few = FDR / max(int(usable.sum()) * len(discovery.rare), 1)  # all signatures of few crashes together
    out = []
    for s in sorted(set(prepared.units) - explained):
        lead = None
        if s in discovery.p:
            lead = _lead(discovery.counts[s], discovery.p[s], usable, LEAD / max(int(usable.sum()), 1))
        elif s in discovery.rare:
            lead = _lead(*discovery.rare[s], usable, of_few)
        lead_row = _not_enough(prepared, s, lead, discovery.cut, int(usable.sum()))
        out += [lead_row] if lead_row is not None else []
    return tuple(out)


def _lead(counts: Counts, p: Floats, usable: Bools, most: float) -> _Lead | None:
    values = np.flatnonzero(usable & (counts.expected > 0))
    if not len(values):
        return None
    best = int(values[np.argmin(p[values])])
    if p[best] > most:
        return None
    return _Lead(
        value=best, observed=int(counts.observed[best]), expected=float(counts.expected[best]),
        crashes=float(counts.crashes[best]), p=float(p[best]),
    )  # fmt: skip


def _not_enough(prepared: Prepared, signature: int, lead: _Lead | None, cut: float, values: int) -> NotEnough | None:
    crashes, nodes = len(prepared.units[signature]), prepared.design.nodes
    share, ratio = USUAL_SHARE, USUAL_RATIO
    if lead is not None:
        share = lead.expected / lead.crashes
        odds = lead.observed * (lead.crashes - lead.expected)
        odds /= max((lead.crashes - lead.observed) * lead.expected, 1e-9)
        ratio = float(np.clip(odds, 1.5, MOST_RATIO))
    needed = power.needed(share, ratio, cut)
    if lead is None and crashes >= needed:
        return None  # enough crashes to find such an effect, and none was found
    least = max(needed, screen.MIN_CRASHES, crashes + 1)
    what = (
        f"needs {least:,} crashed nodes to show a crash {ratio:.2g} times as frequent on {_percent(share)} of the fleet"
    )
    if least > nodes:
        what += f"; this fleet has {nodes:,} nodes, so only a larger effect can be found"
    return NotEnough(
        signature=prepared.observed.signatures[signature], crashes=crashes, needed=least,
        lead=None if lead is None else prepared.fact(lead.value), observed=0 if lead is None else lead.observed,
        expected=0.0 if lead is None else lead.expected, p_value=None if lead is None else lead.p,
        values=values, what=what,
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"
