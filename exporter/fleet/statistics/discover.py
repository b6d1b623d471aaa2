"""Discovery in one window: all tests, the false-discovery gate over each family of them, explanations of what passes.

A finding is reported at the level that explains it: a signature, the signatures of a root cause or verdict, or all crashes.
Levels are tested in one family with the signatures. The choice follows tree-based scan statistics (Kulldorff, Fang and Walsh
2003, as in the FDA's Sentinel): a group of signatures explains what is left without the signatures that have a finding of
their own, or without the strongest one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.associations import (
    MIN_EFFECT,
    MIN_WITH,
    Explanation,
    Tested,
    counts_within,
    explanations,
)
from exporter.fleet.statistics.design import ALL_ALIKE, Design, distinct
from exporter.fleet.statistics.findings import SignaturePart
from exporter.fleet.statistics.prepare import MIN_SIGNATURES, Prepared
from exporter.fleet.statistics.ratio import of_cells
from exporter.fleet.statistics.screen import Cells, Counts

LEAST_TESTS = 100  # tests that a family counts as, at least: with few, each of three families would err in 5% of fleets
FEW_CRASHES = 2  # distinct nodes of a signature, from which on a rare value that they share is a lead
FDR = 0.05  # of the findings may be false (Benjamini and Hochberg 1995; the facts are positively dependent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What one window shows: explanations by signature number, the counts behind them and the number of tests.

    `cut` is the p-value at which a single configuration value would be found. `rare` has the counts and p-values of
    signatures with too few crashes to be tested.
    """

    found: tuple[tuple[int, Explanation], ...]
    counts: dict[int, Counts]
    p: dict[int, Floats]
    rare: dict[int, tuple[Counts, Floats]]
    tests: int
    cut: float


def discover(prepared: Prepared) -> Discovery:
    """Test every value against every signature with enough units."""
    design = prepared.design
    labels = _Labels(prepared)
    location = np.array([value.family == "location" for value in design.values], dtype=bool)
    coarse = design.level > ALL_ALIKE
    same = distinct(design)
    representative = _representatives(same, location)
    own = len(prepared.observed.signatures)
    every = {**prepared.units, **prepared.pooled}
    enough = [s for s, found in sorted(every.items()) if len(found) >= screen.MIN_CRASHES]
    counts = {s: labels.count(s) for s in enough}
    cuts = [_cut(family & representative, len(enough)) for family in (~location, location)]
    more: dict[int, _Screened] = {}
    fewer: dict[int, _Screened] = {}
    for s in enough:
        worth_more, worth_fewer = screen.worth_testing(counts[s], cuts[0], design.nodes)
        more[s] = _Screened(counts[s], _more(prepared, counts[s]), worth_more & representative & ~location)
        single = s < own  # a group is tested for more crashes only
        fewer[s] = _Screened(
            counts[s], screen.fewer(counts[s]), worth_fewer & representative & ~location & ~coarse & single
        )
    tests = _judge(more) + _judge(fewer)
    explained = [
        (s, each)
        for s in enough
        for each in explanations(
            design,
            {
                "more": more[s].tested(prepared.units_of(s), labels.of(s)),
                "fewer": fewer[s].tested(prepared.units_of(s), labels.of(s)),
            },
        )
    ]
    found: list[tuple[int, Explanation]] = []
    for direction, screened in (("more", more), ("fewer", fewer)):
        of_direction = [(s, each) for s, each in explained if each.direction == direction]
        found += _gate(of_direction, sum(int(each.run.sum()) for each in screened.values()))
    # What was found may hide other configuration, and places: these are compared within it, once.
    explained_ones = {s: counts[s] for s in enough if any(number == s for number, _ in found)}
    again, further = _beside(prepared, labels, explained_ones, found, representative & ~location, cuts[0])
    at_places, of_places = _beside(prepared, labels, counts, [*found, *further], representative & location, cuts[1])
    tests += sum(int(each.run.sum()) for each in (*again.values(), *at_places.values()))
    reported = at_the_level_that_explains(prepared, [*found, *further])
    # The gate once more: an effect on many signatures passed with all of them, and must not carry false findings through.
    late = {id(each) for _, each in further}
    first = [one for one in reported if one[1].direction == "more" and id(one[1]) not in late]
    found = [
        *_gate(first, sum(int(each.run.sum()) for each in more.values())),
        *(one for one in reported if one[1].direction == "fewer"),
        *_gate([one for one in reported if id(one[1]) in late], sum(int(each.run.sum()) for each in again.values())),
        *at_the_level_that_explains(prepared, of_places),
    ]
    p_of_all = {s: np.where(location, at_places[s].p, more[s].p) for s in enough}
    few = [s for s, units in prepared.units.items() if FEW_CRASHES <= len(units) < screen.MIN_CRASHES]
    of_few = {s: labels.count(s) for s in few}
    rare = {s: (each, _more(prepared, each)) for s, each in of_few.items()}
    return Discovery(found=tuple(found), counts=counts, p=p_of_all, rare=rare, tests=tests, cut=cuts[0])


@dataclass(slots=True)
class _Screened:
    """One signature's tests of one family and direction: which are run, and their adjusted p-values once judged."""

    counts: Counts
    p: Floats
    run: Bools
    q: Floats = field(default_factory=lambda: np.zeros(0))

    def tested(self, units: screen.Units, label_of: _LabelOf) -> Tested:
        passed = np.flatnonzero(self.q <= FDR)
        return Tested(units=units, counts=self.counts, p=self.p, q=self.q, candidates=passed, label_of=label_of)


def _judge(screened: Mapping[int, _Screened]) -> int:
    """Adjust the p-values of one family and direction together; how many tests there were."""
    together = np.concatenate([np.zeros(0), *(each.p[each.run] for each in screened.values())])
    adjusted = stats.false_discovery_control(together) if len(together) else together
    adjusted = np.minimum(adjusted * max(LEAST_TESTS / max(len(together), 1), 1.0), 1.0)
    for each in screened.values():
        each.q = np.ones(len(each.p))
        number = int(each.run.sum())
        each.q[each.run], adjusted = adjusted[:number], adjusted[number:]
    return len(together)


def _beside(
    prepared: Prepared, labels: _Labels, counts: Mapping[int, Counts], found: Sequence[tuple[int, Explanation]],
    family: Bools, cut: float,
) -> tuple[dict[int, _Screened], list[tuple[int, Explanation]]]:  # fmt: skip
    """The tests of some values for more crashes, within the strata of what was found, and what they explain besides."""
    design = prepared.design
    screened: dict[int, _Screened] = {}
    given = {s: [each.column for number, each in found if number == s] for s in counts}
    for s, all_ in counts.items():
        reported = [v for number, each in found if number == s for v in (each.value, *each.others)]
        left = family & ~np.isin(np.arange(len(family)), reported)
        within = _within(prepared, labels, s, all_, np.flatnonzero(left), given[s])
        worth, _ = screen.worth_testing(within, cut, design.nodes)
        screened[s] = _Screened(within, _more(prepared, within), worth & left)
    tests = _judge(screened)
    explained = [
        (s, each)
        for s in counts
        for each in explanations(design, {"more": screened[s].tested(prepared.units_of(s), labels.of(s))}, given[s])
    ]
    return screened, _gate(explained, tests)


def _within(
    prepared: Prepared, labels: _Labels, signature: int, counts: Counts, values: Ints, given: Sequence[Bools]
) -> Counts:
    """A signature's counts, those of some values within strata of what is given."""
    if not given or not len(values):
        return counts
    part = counts_within(
        prepared.design, prepared.units_of(signature), labels.of(signature), counts, values.tolist(), given
    )
    whole = replace(
        counts, crashes=counts.crashes.copy(), observed=counts.observed.copy(), expected=counts.expected.copy(),
        planned=counts.planned.copy(),
    )  # fmt: skip
    whole.crashes[values], whole.observed[values] = part.crashes, part.observed
    whole.expected[values], whole.planned[values] = part.expected, part.planned
    return whole


def _more(prepared: Prepared, counts: Counts) -> Floats:
    """The p-values for more crashes. Models, and what goes with them, must differ by more than models do."""
    coarse = prepared.design.level > ALL_ALIKE
    return np.where(coarse, screen.more(screen.beyond(counts, screen.MODELS_DIFFER)), screen.more(counts))


def _cut(values: Bools, signatures: int) -> float:
    """The p-value that suffices if every value is tested against every signature (Bonferroni).

    It fits the fleet: 50 values and two signatures give 5e-4, 500 values and 20 signatures 5e-6.
    """
    return FDR / max(int(values.sum()) * signatures, LEAST_TESTS)


def _gate(explained: list[tuple[int, Explanation]], tests: int) -> list[tuple[int, Explanation]]:
    """The gate once more, each explanation counted once: the copies and prefixes of a true one, all of which pass with
    it, must not carry false ones through.
    """
    if not explained:
        return []
    tests = max(tests, LEAST_TESTS)
    p = np.array([each.p for _, each in explained])
    order = np.argsort(p)
    q = np.empty(len(p))
    q[order] = np.minimum.accumulate((p[order] * tests / np.arange(1, len(p) + 1))[::-1])[::-1]
    return [
        (s, replace(each, q=float(min(own, 1.0)))) for (s, each), own in zip(explained, q, strict=True) if own <= FDR
    ]


class _Labels:
    """The strata of each value, and the exposure in them, worked out once for all signatures of a vendor."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._tables: dict[tuple[int, str], screen.Table] = {}
        self._level = prepared.design.level

    def count(self, signature: int) -> Counts:
        size = len(self._level)
        total = Counts(crashes=np.zeros(size), observed=np.zeros(size), expected=np.zeros(size), planned=np.zeros(size))
        for level in np.unique(self._level).tolist():
            exposure = self._table(level, signature)
            part = screen.count(self._prepared.design, exposure, self._prepared.units_of(signature))
            total.crashes[exposure.columns] = part.crashes
            total.observed[exposure.columns] = part.observed
            total.expected[exposure.columns] = part.expected
            total.planned[exposure.columns] = part.planned
        return total

    def of(self, signature: int) -> _LabelOf:
        return _LabelOf(self, signature)

    def label(self, value: int, signature: int) -> Ints:
        return self._table(int(self._level[value]), signature).label

    def _table(self, level: int, signature: int) -> screen.Table:
        key = level, self._prepared.vendor(signature)
        if key not in self._tables:
            label = self._prepared.label(level, signature)
            columns = np.flatnonzero(self._level == level)
            self._tables[key] = screen.table(self._prepared.design, label, columns)
        return self._tables[key]


@dataclass(frozen=True, slots=True)
class _LabelOf:
    labels: _Labels
    signature: int

    def __call__(self, value: int) -> Ints:
        return self.labels.label(value, self.signature)


def _representatives(same: Ints, location: Bools) -> Bools:
    """One of each set of equal columns: of a configuration and a place that are the same nodes, both."""
    keep = np.zeros(len(same), dtype=bool)
    for family in (location, ~location):
        rows = np.flatnonzero(family)
        keep[rows[np.unique(same[rows], return_index=True)[1]]] = True
    return keep


LEVEL = 0.01  # of the test without the signatures that may explain a group's effect by themselves
MOSTLY = 0.5  # of a group's crashes: signatures with so many, and findings of their own alike, are the group

Found = tuple[int, Explanation]


def at_the_level_that_explains(prepared: Prepared, found: Sequence[Found]) -> list[Found]:
    """The findings at the level that explains each: no group beside its signatures, and no signatures beside it."""
    own = len(prepared.observed.signatures)
    kept = [each for each in found if each[0] < own]
    groups = sorted(
        (each for each in found if each[0] >= own), key=lambda each: (len(_members(prepared, each)), each[1].p)
    )
    for group in groups:
        number, each = group
        members = set(prepared.members[number])
        below = [other for other in kept if _members(prepared, other) <= members]
        alike = [other for other in below if _same_facts(prepared.design, other[1], each)]
        if any(other[0] == number or _members(prepared, other) == members for other in alike):
            continue
        if not _explains(prepared, group, below, alike):
            continue
        most = of_cells(each.cells).high
        apart = [other for other in alike if of_cells(other[1].cells).low > most]
        if apart:
            left = members.difference(*(_members(prepared, other) for other in apart))
            cells = _cells(prepared, number, left, each)
            group = number, replace(each, cells=cells)
        kept = [other for other in kept if other not in alike or other in apart] + [group]
    return kept


def parts(prepared: Prepared, number: int, each: Explanation) -> tuple[SignaturePart, ...]:
    """What each signature of a group adds to its finding, the most first; nothing for a single signature."""
    out = []
    for member in prepared.members.get(number, ()):
        cells = _cells(prepared, number, (member,), each)
        counts = cells.counts()
        if counts.crashes[0] > 0:
            out.append(
                SignaturePart(
                    signature=prepared.observed.signatures[member], observed=int(counts.observed[0]),
                    expected=float(counts.expected[0]), crashes=int(counts.crashes[0]), ratio=of_cells(cells),
                )
            )  # fmt: skip
    return tuple(sorted(out, key=lambda part: (part.expected - part.observed, part.signature)))


def _explains(prepared: Prepared, group: Found, below: Sequence[Found], alike: Sequence[Found]) -> bool:
    """Whether an effect is the group's: nearly all signatures show it, or it remains without those that do."""
    number, each = group
    members = set(prepared.members[number])
    of_group = len(prepared.units_of(number))
    with_it = {other for other, _ in alike}
    if with_it <= members and len(with_it) >= MIN_SIGNATURES and len(prepared.together(with_it)) >= MOSTLY * of_group:
        return True
    left = members - {s for other in below for s in _members(prepared, other)}
    if left == members:
        gain = {s: _surplus(_cells(prepared, number, (s,), each)) for s in members}
        left -= {max(sorted(gain), key=lambda s: gain[s])}
    if len(left) < MIN_SIGNATURES - 1:
        return False
    cells = _cells(prepared, number, left, each)
    counts = cells.counts()
    enough = counts.crashes[0] > 0 and counts.observed[0] >= MIN_WITH
    if prepared.design.level[each.value] > ALL_ALIKE:
        counts = screen.beyond(counts, screen.MODELS_DIFFER)
    return bool(enough and screen.more(counts)[0] <= LEVEL and of_cells(cells).value >= MIN_EFFECT)


def _cells(prepared: Prepared, number: int, signatures: Collection[int], each: Explanation) -> Cells:
    """What some of a group's signatures together show of an explanation's column."""
    label = prepared.label(int(prepared.design.level[each.value]), number)
    return screen.cells(prepared.design, label, each.column, prepared.together(signatures))


def _surplus(cells: Cells) -> float:
    counts = cells.counts()
    return float(counts.observed[0] - counts.expected[0])


def _members(prepared: Prepared, each: Found) -> set[int]:
    return set(prepared.members.get(each[0], (each[0],)))


def _same_facts(design: Design, one: Explanation, other: Explanation) -> bool:
    """Whether two explanations are about the same nodes for most of the time, or share a fact."""
    if not {one.value, *one.others}.isdisjoint({other.value, *other.others}):
        return True
    weight = design.states.hours.sum(axis=1)
    return float(weight[one.column & other.column].sum()) >= 0.5 * float(weight[one.column | other.column].sum())
