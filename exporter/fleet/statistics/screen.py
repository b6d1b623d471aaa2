"""The screen: an exact test of every value of every fact against every signature.

Within each stratum and day, the crashes of a signature should fall on a value as its share of the exposure. Their number
over all strata is a sum of binomials, whose tails are no heavier than those of one binomial with the same mean (Hoeffding
1956), so that the p-values hold for strata of any kind.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse, special, stats

from exporter.fleet.observations import Bools, Floats, Incidents, Ints
from exporter.fleet.statistics.design import Design
from exporter.fleet.statistics.exposure import WatchedHours, state_at
from exporter.fleet.statistics.findings import Direction
from exporter.fleet.statistics.ratio import Ratio, rate_ratio

MIN_CRASHES = 5  # distinct nodes of a signature, below which nothing is tested
LARGE, CHANCE = 10.0, 0.1  # a test that would miss a tenfold rate in nine of ten cases is not run
MODELS_DIFFER = 3.0  # times, for no reason that could be configured (Meta's two fleets: 2.8)
UNCERTAIN = 1.25  # of an inflation, from which on its own uncertainty counts: a smaller one changes little
MIN_CLUSTERS = 10  # places, from which how much places differ can be learnt
_BORDER = 1e-9  # of a stratum's exposure: nobody or everybody has the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of evidence of one signature: distinct origin nodes, each in its state and part of the window.

    `lost` are a node's hours from the part after its first crash on, by state and part: it is no longer at risk of a
    first one. The part of the crash itself counts in full: in a burst all crash at once, and those that did not do so
    would else be given hours that the others were denied.

    Where most nodes crash again and again, `repeated` units are all origins, and nothing is lost.
    """

    incidents: Incidents
    state: Ints
    part: Ints
    lost_state: Ints
    lost: Floats
    repeated: bool = False

    def __len__(self) -> int:
        return len(self.state)

    def take(self, keep: Bools) -> Units:
        """Some of the crashes. The hours after the others stay lost: their nodes had crashed."""
        return replace(self, incidents=self.incidents.take(keep), state=self.state[keep], part=self.part[keep])


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """For each value tested: crashes in strata where some have it and some not, how many had it, how many should have.

    `planned` is what would be expected if no crash took its node out of the exposure: it does not depend on where the
    crashes fell.
    """

    crashes: Floats
    observed: Floats
    expected: Floats
    planned: Floats

    @classmethod
    def zeros(cls, size: int) -> Counts:
        return cls(**{name: np.zeros(size) for name in cls.__slots__})

    def take(self, values: Ints) -> Counts:
        """A copy of the counts of some values."""
        return Counts(**{name: getattr(self, name)[values] for name in self.__slots__})

    def put(self, values: Ints, part: Counts) -> None:
        """Replace the counts of some values."""
        for name in self.__slots__:
            getattr(self, name)[values] = getattr(part, name)


def first_crash_units(rows: Incidents, design: Design, watched: WatchedHours) -> Units:
    """The units of some signatures taken as one, from their origins by time: the first of each node."""
    states, first = design.states, rows.take(np.sort(np.unique(rows.node, return_index=True)[1]))
    first_state = np.searchsorted(states.node, first.node, side="left")
    count = np.searchsorted(states.node, first.node, side="right") - first_state
    unit = np.repeat(np.arange(len(count)), count)
    lost_state = np.repeat(first_state, count) + (np.arange(len(unit)) - np.repeat(np.cumsum(count) - count, count))
    lost = np.empty((len(unit), len(states.edges) - 1))
    part_of = states.bin_of(first.time)
    since = np.maximum(states.since[lost_state], states.edges[part_of + 1][unit])
    for part, (low, high) in enumerate(itertools.pairwise(states.edges)):
        begin, end = np.maximum(since, low), np.minimum(states.until[lost_state], high)
        lost[:, part] = watched.between(first.node[unit], begin, end)
    state = state_at(states, first.node, first.time)
    return Units(incidents=first, state=state, part=part_of, lost_state=lost_state, lost=lost)


def every_crash(rows: Incidents, design: Design) -> Units:
    """The units of one signature where most nodes crash again and again: all of its origins."""
    states = design.states
    return Units(
        incidents=rows, state=state_at(states, rows.node, rows.time), part=states.bin_of(rows.time), repeated=True,
        lost_state=np.zeros(0, dtype=np.int64), lost=np.zeros((0, len(states.edges) - 1)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureTable:
    """Exposure by cell (stratum and part of the window), in all and with each of some values."""

    strata: Ints  # the stratum of each state, -1 for those left out
    everyone: Floats  # cells
    having: Floats  # cells × values
    columns: Ints

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and values."""
        return len(self.everyone), len(self.columns)


def exposure_table(design: Design, strata: Ints, columns: Ints | None = None) -> ExposureTable:
    """The exposure of some values (default: all) in the strata that `strata` numbers; states at -1 are left out."""
    columns = np.arange(len(design.values)) if columns is None else columns
    by_cell = _by_cell(design.states.hours, strata, _size(design, strata))
    return ExposureTable(
        strata=strata,
        everyone=np.asarray(by_cell.sum(axis=1)).ravel(),
        having=np.asarray((by_cell @ design.has[:, columns]).toarray()),
        columns=columns,
    )


def count(design: Design, exposure: ExposureTable, units: Units) -> Counts:
    """The counts of one signature in a table's strata."""
    having, everyone = _at_risk(design, exposure, units)
    share = _ratio(having, np.broadcast_to(everyone[:, None], having.shape), otherwise=0.0)
    open_ = (share > _BORDER) & (share < 1 - _BORDER)
    inside = exposure.strata[units.state] >= 0
    cell = _own_cell(design, exposure.strata, units)[inside]
    crashes = np.bincount(cell, minlength=len(everyone)).astype(float)
    shows = np.asarray(design.has[units.state[inside]][:, exposure.columns].toarray())
    full = _ratio(exposure.having, np.broadcast_to(exposure.everyone[:, None], having.shape), otherwise=0.0)
    return Counts(
        crashes=crashes @ open_, observed=(shows * open_[cell]).sum(axis=0), expected=crashes @ (share * open_),
        planned=crashes @ (full * open_),
    )  # fmt: skip


def _at_risk(design: Design, exposure: ExposureTable, units: Units) -> tuple[Floats, Floats]:
    """A table's exposure less what came after each node's first crash, so that a value under which half of all nodes
    crash is not compared by hours in which they could not crash first again.
    """
    lost = _by_cell(units.lost, exposure.strata[units.lost_state], exposure.shape[0])
    gone = np.asarray((lost @ design.has[units.lost_state][:, exposure.columns]).toarray())
    everyone = np.maximum(exposure.everyone - np.asarray(lost.sum(axis=1)).ravel(), 0.0)
    return np.maximum(exposure.having - gone, 0.0), everyone


def _by_cell(hours: Floats, strata: Ints, size: int) -> sparse.csr_matrix:
    """Cells × states: the hours that each state adds to each cell."""
    states, parts = hours.shape
    weight = np.where(strata[:, None] >= 0, hours, 0.0).ravel()
    cell = (np.maximum(strata, 0)[:, None] * parts + np.arange(parts)).ravel()
    return sparse.csr_matrix((weight, (cell, np.repeat(np.arange(states), parts))), shape=(size, states))


def _own_cell(design: Design, strata: Ints, units: Units) -> Ints:
    return np.asarray(strata[units.state] * design.states.hours.shape[1] + units.part)


def _size(design: Design, strata: Ints) -> int:
    return (int(strata.max(initial=0)) + 1) * int(design.states.hours.shape[1])


def beyond(counts: Counts, *, times: float) -> Counts:
    """The same counts, expected under a null in which the rate with the value is already some times that without."""
    share = _share(counts)
    share = times * share / (1 + (times - 1) * share)
    return replace(counts, expected=counts.crashes * share)


def p_values(counts: Counts, direction: Direction) -> Floats:
    """One-sided p-values: at least (or at most) so many crashes with the value."""
    if direction == "more":
        return np.asarray(stats.binom.sf(counts.observed - 1, counts.crashes, _share(counts)))
    return np.asarray(stats.binom.cdf(counts.observed, counts.crashes, _share(counts)))


def worth_testing(counts: Counts, *, p_cut: float, nodes: int) -> tuple[Bools, Bools]:
    """Which tests for more, and for fewer, have a chance to find a tenfold rate at a p-value of `p_cut`.

    The number of crashes and the exposure with the value decide, not where the crashes fell, so the p-values remain
    valid (independent filtering: Bourgon, Gentleman and Huber 2010). On a small fleet each crash leaves fewer nodes with
    the value to crash; what half of the crashes would leave is the share that counts.
    """
    enough = counts.crashes >= MIN_CRASHES
    share = np.clip(_ratio(counts.planned, counts.crashes, otherwise=0.0), 0.0, 1.0)
    half = np.minimum(counts.crashes, nodes - 1) / 2
    left = np.where(share * nodes > half, (share * nodes - half) / (nodes - half), share)
    with_ = _ratio(LARGE * share, LARGE * share + 1 - share)
    least = stats.binom.isf(p_cut, counts.crashes, left)
    less = _ratio(share / LARGE, share / LARGE + 1 - share)
    most = stats.binom.ppf(p_cut, counts.crashes, share) - 1
    return (
        enough & (share > 0) & (stats.binom.sf(least, counts.crashes, with_) >= CHANCE),
        enough & (share < 1) & (stats.binom.cdf(most, counts.crashes, less) >= CHANCE),
    )


def evidence(counts: Counts) -> Floats:
    """The log-likelihood by which the counts prefer their own rate to an equal one: ranks values where p-values are 0."""
    with_, without = counts.observed, counts.crashes - counts.observed
    rest = counts.crashes - counts.expected
    return np.asarray(
        special.xlogy(with_, _ratio(with_, counts.expected)) + special.xlogy(without, _ratio(without, rest))
    )


def _share(counts: Counts) -> Floats:
    return np.clip(_ratio(counts.expected, counts.crashes, otherwise=0.0), 0.0, 1.0)


def _ratio(above: Floats, below: Floats, otherwise: float = 1.0) -> Floats:
    return np.divide(above, below, out=np.full_like(below, otherwise), where=below > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Crashes and exposure in every cell, in all and with one value.

    `inflation` is how much more the comparison varies because places differ among themselves, and nodes that crash again and
    again do; `clusters` is how many of them that was learnt from.
    """

    crashes: Floats
    observed: Floats
    everyone: Floats
    having: Floats
    inflation: float = 1.0
    clusters: int = 0

    @property
    def open(self) -> Bools:
        """The informative cells: some of their exposure has the value, some has not."""
        edge = _BORDER * self.everyone
        return (self.crashes > 0) & (self.having > edge) & (self.everyone - self.having > edge)

    def counts(self) -> Counts:
        """The sums over the informative cells."""
        use = self.open
        expected = self.crashes[use] * self.having[use] / self.everyone[use]
        return Counts(
            crashes=np.array([self.crashes[use].sum()]),
            observed=np.array([self.observed[use].sum()]),
            expected=np.array([expected.sum()]),
            planned=np.array([expected.sum()]),
        )

    def p_value(self, direction: Direction, *, times: float = 1.0) -> float:
        """The one-sided p-value of a rate `times` as high; 1 without an informative crash."""
        counts = self.counts()
        if not counts.crashes[0]:
            return 1.0
        counts = beyond(counts, times=times) if times != 1 else counts
        p = float(p_values(counts, direction)[0])
        return p if self.inflation == 1 else self._inflated(counts, direction)

    def _inflated(self, counts: Counts, direction: Direction) -> float:
        """The p-value of as many crashes as tell as much where places do not differ."""
        crashes, observed = (float(of[0]) / self.inflation for of in (counts.crashes, counts.observed))
        share = float(_share(counts)[0])
        if direction == "fewer":
            observed, share = crashes - observed, 1 - share
        tail = float(special.betainc(max(observed, 1e-9), crashes - observed + 1, share))
        if self.inflation < UNCERTAIN:
            return tail
        return float(stats.t.sf(stats.norm.isf(max(tail, 1e-300)), max(self.clusters - 2, 1)))

    def ratio(self) -> Ratio:
        """The rate ratio that the cells have in common."""
        use = self.open
        odds = self.having[use] / (self.everyone[use] - self.having[use])
        return rate_ratio(float(self.observed[use].sum()), self.crashes[use], odds).widened(self.inflation**0.5)


def cells(design: Design, units: Units, *, strata: Ints, column: Bools) -> Cells:
    """The crashes and exposure of one signature for one set of states, by cell; states at -1 are left out."""
    hours = design.states.hours.copy()
    np.subtract.at(hours, units.lost_state, units.lost)
    hours = np.maximum(hours, 0.0)
    size, parts = _size(design, strata), hours.shape[1]
    cell = strata[:, None] * parts + np.arange(parts)
    use, using = strata >= 0, (strata >= 0) & column
    inside = use[units.state]
    own = _own_cell(design, strata, units)[inside]
    result = Cells(
        crashes=np.bincount(own, minlength=size).astype(float),
        observed=np.asarray(np.bincount(own, column[units.state[inside]].astype(float), size), dtype=float),
        everyone=np.asarray(np.bincount(cell[use].ravel(), hours[use].ravel(), size), dtype=float),
        having=np.asarray(np.bincount(cell[using].ravel(), hours[using].ravel(), size), dtype=float),
    )
    clusters_of = (*design.clusters, design.states.node) if units.repeated else design.clusters
    if not clusters_of or min(result.p_value("more"), result.p_value("fewer")) > CHANCE:
        return result
    rate = np.where(result.open, _ratio(result.crashes, result.everyone, otherwise=0.0), 0.0)
    share = _ratio(result.having, result.everyone, otherwise=0.0)
    due = hours[use] * rate[cell[use]]
    off = (due * (column[use][:, None] - share[cell[use]])).sum(axis=1)
    variance = float((rate * result.everyone * share * (1 - share)).sum())
    state = units.state[inside][result.open[own]]
    inflation, clusters = 1.0, 0
    for of_state in clusters_of:
        own_inflation, number = _inflation(of_state, use, column, state, due.sum(axis=1), off, variance)
        if own_inflation > inflation:
            inflation, clusters = own_inflation, number
    return replace(result, inflation=inflation, clusters=clusters)


def _inflation(
    cluster: Ints, use: Bools, column: Bools, crashed: Ints, due: Floats, off: Floats, variance: float
) -> tuple[float, int]:
    """By how much places that differ among themselves increase a comparison's variance, and how many there are.

    cluster, column: of each state; use: the states that are compared. crashed: the state of each crash. due: the crashes
    expected of each state in use; off: by how much the expected ones with the value move if all of its crash more often.
    """
    size = int(cluster.max(initial=-1)) + 1
    label = cluster[use]
    known = label >= 0
    with_ = column[use]
    hits = float(column[crashed].sum())
    fit = due * np.where(
        with_, hits / max(float(due[with_].sum()), 1e-9), (len(crashed) - hits) / max(float(due[~with_].sum()), 1e-9)
    )
    fitted, moved = (np.bincount(label[known], of[known], size) for of in (fit, off))
    observed = np.bincount(cluster[crashed][cluster[crashed] >= 0], minlength=size)
    number = int((fitted > 0).sum())
    if number < MIN_CLUSTERS or variance <= 0:
        return 1.0, number
    excess = float(((observed - fitted) ** 2).sum()) * number / (number - 2) - float(fitted.sum())
    spread = max(excess, 0.0) / float((fitted**2).sum())
    return 1 + spread * float((moved**2).sum()) / variance, number
