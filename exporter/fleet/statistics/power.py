"""Power: how many crashes a finding takes, and how many nodes and days the experiment takes that decides about one.

Signatures without a finding are listed with the crashes that they still need, and the most likely value so far (a lead).
If the few crashes of a signature all fall on a rare value, that is worth a look: its exact p-value is given, with the number
of values that were compared.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from exporter.core.text.phrases import counted
from exporter.fleet.observations import Bools, Floats
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.associations import MIN_EFFECT
from exporter.fleet.statistics.discover import FDR, Discovery
from exporter.fleet.statistics.findings import NotEnough
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.screen import Counts

POWER = 0.8
MAX_CRASHES = 100_000
MAX_DECIDING = 50
DECIDING_DAYS, MOST_DAYS = 7, 90  # of an experiment: as planned, and the longest that is proposed


def needed(share: float, ratio: float, *, p_cut: float) -> int:
    """Crashes of a signature until a value with this share of the exposure and this rate ratio is found in 4 of 5 cases.

    p_cut: the p-value to be reached. 10% and a ratio of 5 at 1e-5 take 58.
    """
    with_ = ratio * share / (ratio * share + 1 - share)
    sizes = np.unique(np.round(np.geomspace(5, MAX_CRASHES, 400)).astype(int))
    least = stats.binom.isf(p_cut, sizes, share) + 1  # the first count whose tail is below the cut
    enough = np.flatnonzero(stats.binom.sf(least - 1, sizes, with_) >= POWER)
    return int(sizes[enough[0]]) if len(enough) else MAX_CRASHES


def smallest_ratio(share: float, crashes: int, nodes: int, *, p_cut: float) -> float:
    """The smallest rate ratio that is found in 4 of 5 cases with so many crashed nodes; inf if none is.

    share: of the nodes that have the value. Each crash leaves fewer nodes to crash, which matters on a small fleet.
    """
    having = share * nodes
    left = (having - crashes * share / 2) / max(nodes - crashes / 2, 1e-9)
    ratios = np.geomspace(1.5, 1000, 200)
    with_ = ratios * left / (ratios * left + 1 - left)
    least = stats.binom.isf(p_cut, crashes, left) + 1
    enough = np.flatnonzero(stats.binom.sf(least - 1, crashes, with_) >= POWER)
    return float(ratios[enough[0]]) if len(enough) else float("inf")


def crashes_that_decide(ratio: float) -> tuple[float, int]:
    """How many crashes must be due on nodes with a value so that taking it away decides, and at most how many may then
    remain: if the ratio is true, so few remain in 4 of 5 cases, and chance leaves so few in one of twenty.
    """
    for most in range(MAX_DECIDING):
        due = float(stats.chi2.isf(0.05, 2 * (most + 1)) / 2)  # of which chance leaves `most` in one of twenty cases
        if stats.poisson.cdf(most, due / ratio) >= POWER:
            return due, most
    return float("inf"), 0


def experiment(ratio: float, observed: int, nodes: int, hours: float) -> tuple[int, int, int] | None:
    """On how many of the nodes to take a value away, for how many days, and the most crashes that decide for it.

    observed: crashes on the nodes that have the value, within so many hours. None if it would take too long.
    """
    due, most = crashes_that_decide(ratio) if ratio > 1 else (float("inf"), 0)
    if not np.isfinite(due) or not observed:
        return None
    a_day = observed / max(nodes * hours / 24, 1e-9)  # crashes of one node
    changed = int(np.clip(np.ceil(due / (a_day * DECIDING_DAYS)), 1, max(nodes // 2, 1)))
    days = int(np.ceil(due / (a_day * changed)))
    return (changed, days, most) if days <= MOST_DAYS else None


def at_most(crashes: int) -> str:
    """How many crashes decide an experiment, in words."""
    return (
        f"if at most {counted(crashes, 'of them crashes', 'of them crash')}" if crashes else "if none of them crashes"
    )


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
        for s, association in discovery.associations
        if prepared.design.values[association.value].family != "location"
        for member in prepared.members.get(s, (s,))
    }
    usable = np.array([value.family == "configuration" for value in prepared.design.values], dtype=bool)
    of_few = FDR / max(int(usable.sum()) * len(discovery.rare), 1)  # all signatures of few crashes together
    out = []
    for s in sorted(set(prepared.units) - explained):
        lead = None
        if s in discovery.p:
            lead = _lead(discovery.counts[s], discovery.p[s], usable, p_cut=LEAD / max(int(usable.sum()), 1))
        elif s in discovery.rare:
            lead = _lead(*discovery.rare[s], usable, p_cut=of_few)
        lead_row = _not_enough(prepared, s, lead, p_cut=discovery.p_cut, values=int(usable.sum()))
        out += [lead_row] if lead_row is not None else []
    return tuple(out)


def _lead(counts: Counts, p: Floats, usable: Bools, *, p_cut: float) -> _Lead | None:
    values = np.flatnonzero(usable & (counts.expected > 0))
    if not len(values):
        return None
    best = int(values[np.argmin(p[values])])
    if p[best] > p_cut:
        return None
    return _Lead(
        value=best, observed=int(counts.observed[best]), expected=float(counts.expected[best]),
        crashes=float(counts.crashes[best]), p=float(p[best]),
    )  # fmt: skip


def _not_enough(
    prepared: Prepared, signature: int, lead: _Lead | None, *, p_cut: float, values: int
) -> NotEnough | None:
    crashes, nodes = len(prepared.units[signature]), prepared.design.nodes
    share, ratio, odds = USUAL_SHARE, USUAL_RATIO, USUAL_RATIO
    if lead is not None:
        share = lead.expected / lead.crashes
        odds = lead.observed * (lead.crashes - lead.expected)
        odds /= max((lead.crashes - lead.observed) * lead.expected, 1e-9)
        ratio = float(np.clip(odds, MIN_EFFECT, MOST_RATIO))
    least = max(needed(share, ratio, p_cut=p_cut), screen.MIN_CRASHES)
    if lead is None and crashes >= least:
        return None  # enough crashes to find such an effect, and none was found
    effect = f"a crash {ratio:.2g} times as frequent on {_percent(share)} of the fleet"
    message = f"needs {least:,} crashed nodes to show {effect}"
    if lead is not None and odds < MIN_EFFECT:
        message = f"the lead is {odds:.2g} times as frequent; findings begin at {MIN_EFFECT:g} times"
    elif crashes >= least:
        message = f"so many show {effect} in 4 of 5 cases; this one is no clearer than the best of chance"
    elif least > nodes:
        message += f"; this fleet has {counted(nodes, 'node')}, so only a larger effect can be found"
    return NotEnough(
        signature=prepared.observed.signatures[signature], crashes=crashes, needed=least,
        lead=None if lead is None else prepared.fact(lead.value), observed=0 if lead is None else lead.observed,
        expected=0.0 if lead is None else lead.expected, p_value=None if lead is None else lead.p,
        values=values, message=message,
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"
