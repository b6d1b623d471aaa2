"""Confirmation: crashes after those of the discovery must show a finding again, by themselves.

Looking every hour finds something some day; a second look at one question does not. A candidate has one later window in
which to be confirmed. Who looks once, behind the end of that window, gets an exact test. Who looks again and again, as the
fleet service does, gets an e-value: a betting score against chance that may be read at any time and passes 20 in at most
one of twenty cases without an effect (Ville's inequality; Ramdas et al., Statistical Science 38, 2023). The second ratio
is also the honest one: the first was chosen because it was large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from exporter.core.text.phrases import counted
from exporter.fleet.observations import Bools, Incidents, Ints, Window
from exporter.fleet.statistics import continuous, screen
from exporter.fleet.statistics.design import ALL_ALIKE
from exporter.fleet.statistics.findings import Confirmation, Direction, FactValue
from exporter.fleet.statistics.origins import racks
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.screen import Cells
from exporter.fleet.statistics.workload import beyond_one_workload, workload_shares

LEVEL = 0.05  # of confirming what is not there, with one look or any number of them
BETS = np.geomspace(1.5, 30.0, 30)  # rate ratios that the e-value bets on, with equal stakes
MAX_LOG = 600.0  # of a gain: more would be no number
SLACK_SECONDS = 1.0  # windows of journals end just behind their newest record
MIN_DISTINCT = 3  # racks, jobs and users that the crashes must come from, where these are known
HOUR, MOSTLY = 3600.0, 0.5  # of the crashes within an hour may be one user's program, if users are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A finding of an earlier window, and the window that confirmed it, if one has.

    `watched`: it was looked at before its later window ended, so only an e-value may confirm it.
    """

    signature: str
    direction: Direction
    facts: tuple[FactValue, ...]
    together_with: FactValue | None
    discovered_in: Annotated[Window, Field(alias="found_in")]  # as it is stored
    confirmed_in: Window | None = None
    watched: bool = False

    def same_as(self, signature: str, direction: Direction, facts: Sequence[FactValue]) -> bool:
        """Whether a finding of another window agrees: of several indistinguishable facts, one suffices."""
        same = {fact.key for fact in self.facts} & {fact.key for fact in facts}
        return (self.signature, self.direction) == (signature, direction) and bool(same)


def confirmation(prepared: Prepared, remembered: Remembered) -> Confirmation | None:
    """What later crashes show of a remembered finding; None if they do not confirm it."""
    signature = prepared.number(remembered.signature)
    since = remembered.discovered_in.end
    if signature is None or prepared.window.end <= since + SLACK_SECONDS:
        return None
    once = later(prepared.window, remembered) and not remembered.watched
    column = column_of(prepared, remembered.facts[0])
    if remembered.together_with is not None and column is not None:
        other = column_of(prepared, remembered.together_with)
        column = column & other if other is not None else None
    if column is None:
        return None
    units = prepared.units_of(signature)
    if not once:
        units = units.take(units.incidents.time >= since)
    fact = remembered.facts[0].fact
    value = prepared.design.find(fact, remembered.facts[0].value)
    level = ALL_ALIKE if value is None else int(prepared.design.level[value])
    strata = prepared.strata(signature, level=level)
    cells = screen.cells(prepared.design, units, strata=strata, column=column)
    counts = cells.counts()
    if counts.crashes[0] == 0:
        return None
    more = remembered.direction == "more"
    p_value = cells.p_value(remembered.direction) if once else 1 / max(e_value(cells, more=more), 1.0)
    hit = units.incidents.take(column[units.state] if more else ~column[units.state])
    if p_value > LEVEL or too_few_sources(prepared, hit):
        return None
    if not beyond_one_workload(
        workload_shares(prepared, units, remembered.direction, strata=strata, column=column, fact=fact)
    ):
        return None
    window = Window(start=max(since, prepared.window.start), end=prepared.window.end)
    return Confirmation(
        window=window, observed=int(counts.observed[0]), expected=float(counts.expected[0]), p_value=p_value,
        ratio=cells.ratio(),
    )  # fmt: skip


def e_value(cells: Cells, *, more: bool) -> float:
    """How much a bet on more (or fewer) crashes with a value has gained so far, in multiples of the stake.

    At each crash it is bet on whether the node has the value, at the odds of the nodes at risk. Without an effect no way
    of betting gains in the mean, so the gain passes 20 in at most one of twenty cases, however often it is looked at.
    """
    use = cells.open
    share, crashes = cells.having[use] / cells.everyone[use], cells.crashes[use]
    bets = BETS if more else 1 / BETS
    gains = cells.observed[use].sum() * np.log(bets) - np.log1p(share[:, None] * (bets - 1)).T @ crashes
    return float(np.exp(np.minimum(gains, MAX_LOG)).mean())


def later(window: Window, remembered: Remembered) -> bool:
    """Whether a window shares nothing with that of the discovery."""
    return window.start >= remembered.discovered_in.end - SLACK_SECONDS


def too_few_sources(prepared: Prepared, crashes: Incidents) -> list[str]:
    """Sentences on what crashes come from if that is too few jobs, users or racks: two jobs of one user are about that
    user's program. Where users are unknown, so are most crashes within an hour, which may be one user's.
    """
    out = []
    job, user = crashes.job[crashes.job >= 0], crashes.user[crashes.user >= 0]
    for source, values in (("job", job), ("user", user), ("rack", _racks(prepared, crashes.node))):
        number = len(np.unique(values))
        if 0 < number < MIN_DISTINCT and len(values) == len(crashes.node):
            out.append(f"all from {counted(number, source)}")
    time = np.sort(crashes.time)
    at_once = int((np.searchsorted(time, time + HOUR) - np.arange(len(time))).max(initial=0))
    if len(user) < MOSTLY * len(time) and at_once >= max(MOSTLY * len(time), 2):
        out.append(f"{at_once} of {len(time)} within an hour, of unknown users: it may be one user's program")
    return out


def column_of(prepared: Prepared, fact: FactValue) -> Bools | None:
    """The states that show a fact's value; None if none does, or if the value could not be tested.

    A threshold of a continuous fact need not be one of this window's.
    """
    value = prepared.design.find(fact.fact, fact.value)
    if value is not None:
        return prepared.design.column(value)
    facts, states = prepared.observed.facts, prepared.design.states
    if not continuous.is_threshold(fact.value) or fact.fact not in facts.names:
        return None
    index = facts.names.index(fact.fact)
    texts, codes = facts.values[index], facts.codes[states.row, index]
    of_code = continuous.numbers(fact.fact, texts, np.ones(len(texts), dtype=bool))
    return None if of_code is None else continuous.meets(fact.value, of_code, codes)


def _racks(prepared: Prepared, node: Ints) -> Ints:
    rack = racks(prepared.observed.facts, len(prepared.observed.nodes))
    if rack is None or len(np.unique(rack[rack >= 0])) < MIN_DISTINCT:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(rack[node][rack[node] >= 0])
