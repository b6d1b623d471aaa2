"""Discovery in one window: all tests, the false-discovery gate over each family of them, explanations of what passes.

A finding is reported at the level that explains it: a signature, the signatures of a root cause or verdict, or all crashes.
Levels are tested in one family with the signatures. The choice follows tree-based scan statistics (Kulldorff, Fang and Walsh
2003, as in the FDA's Sentinel): a group of signatures explains what is left without the signatures that have a finding of
their own, or without the strongest one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.associations import (
    MIN_EFFECT,
    MIN_WITH,
    Association,
    Tested,
    associations,
    refined_by,
    stratified_counts,
)
from exporter.fleet.statistics.design import ALL_ALIKE, Design, distinct
from exporter.fleet.statistics.findings import Direction, SignaturePart
from exporter.fleet.statistics.prepare import MIN_SIGNATURES, Prepared
from exporter.fleet.statistics.screen import Cells, Counts

LEAST_TESTS = 100  # tests that a family counts as, at least: with few, each of three families would err in 5% of fleets
FEW_CRASHES = 2  # distinct nodes of a signature, from which on a rare value that they share is a lead
FDR = 0.05  # of the findings may be false (Benjamini and Hochberg 1995; the facts are positively dependent)
LEVEL = 0.01  # of the test without the signatures that may explain a group's effect by themselves
MOSTLY = 0.5  # of a group's crashes: signatures with so many, and findings of their own alike, are the group

Numbered = tuple[int, Association]  # with the number of its signature or group


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What one window shows: associations by signature number, the counts behind them and the number of tests.

    `p_cut` is the p-value at which a single configuration value would be found. `rare` has the counts and p-values of
    signatures with too few crashes to be tested.
    """

    associations: tuple[Numbered, ...]
    counts: dict[int, Counts]
    p: dict[int, Floats]
    rare: dict[int, tuple[Counts, Floats]]
    tests: int
    p_cut: float


def discover(prepared: Prepared) -> Discovery:
    """Test every value against every signature with enough units."""
    design = prepared.design
    strata = _Strata(prepared)
    location = np.array([value.family == "location" for value in design.values], dtype=bool)
    coarse = design.level > ALL_ALIKE
    representative = _representatives(distinct(design), location)
    numbers = sorted({*prepared.units, *prepared.pooled})
    enough = [s for s in numbers if len(prepared.units_of(s)) >= screen.MIN_CRASHES]
    counts = {s: strata.count(s) for s in enough}
    p_cut, p_cut_of_locations = (_bonferroni(family & representative, len(enough)) for family in (~location, location))
    more: dict[int, _Screened] = {}
    fewer: dict[int, _Screened] = {}
    for s in enough:
        worth_more, worth_fewer = screen.worth_testing(counts[s], p_cut=p_cut, nodes=design.nodes)
        more[s] = _Screened(counts[s], _p_more(prepared, counts[s]), worth_more & representative & ~location)
        is_single = s < len(prepared.observed.signatures)  # a group is tested for more crashes only
        fewer[s] = _Screened(
            counts[s],
            screen.p_values(counts[s], "fewer"),
            worth_fewer & representative & ~location & ~coarse & is_single,
        )
    tests = _adjust(more) + _adjust(fewer)
    _allow_for_places(strata, more, "more")
    _allow_for_places(strata, fewer, "fewer")
    explained = [
        (s, association)
        for s in enough
        for association in associations(
            design, {"more": strata.tested(s, more[s]), "fewer": strata.tested(s, fewer[s])}
        )
    ]
    selected: list[Numbered] = []
    for direction, screened in (("more", more), ("fewer", fewer)):
        selected += _gate([one for one in explained if one[1].direction == direction], _number_of_tests(screened))
    # What was found may hide other configuration, and places: these are compared within it, once.
    with_finding = {s: counts[s] for s in enough if any(number == s for number, _ in selected)}
    again, further = _conditional_tests(
        prepared, strata, with_finding, selected, representative & ~location, p_cut=p_cut
    )
    at_locations, of_locations = _conditional_tests(
        prepared, strata, counts, [*selected, *further], representative & location, p_cut=p_cut_of_locations
    )
    tests += _number_of_tests(again) + _number_of_tests(at_locations)
    reported = at_reporting_level(prepared, [*selected, *further])
    # The gate once more: an effect on many signatures passed with all of them, and must not carry false findings through.
    conditional = {id(association) for _, association in further}
    first = [one for one in reported if one[1].direction == "more" and id(one[1]) not in conditional]
    selected = [
        *_gate(first, _number_of_tests(more)),
        *(one for one in reported if one[1].direction == "fewer"),
        *_gate([one for one in reported if id(one[1]) in conditional], _number_of_tests(again)),
        *at_reporting_level(prepared, of_locations),
    ]
    few = [s for s, own in prepared.units.items() if FEW_CRASHES <= len(own) < screen.MIN_CRASHES]
    counts_of_few = {s: strata.count(s) for s in few}
    return Discovery(
        associations=tuple(selected), counts=counts, p={s: np.where(location, at_locations[s].p, more[s].p) for s in enough},
        rare={s: (own, _p_more(prepared, own)) for s, own in counts_of_few.items()}, tests=tests, p_cut=p_cut,
    )  # fmt: skip


@dataclass(slots=True)
class _Screened:
    """One signature's tests of one family and direction: which are run, and their adjusted p-values once known."""

    counts: Counts
    p: Floats
    run: Bools
    q: Floats = field(default_factory=lambda: np.zeros(0))


def _number_of_tests(screened: Mapping[int, _Screened]) -> int:
    return sum(int(one.run.sum()) for one in screened.values())


def _adjust(screened: Mapping[int, _Screened]) -> int:
    """Adjust the p-values of one family and direction together; how many tests there were."""
    together = np.concatenate([np.zeros(0), *(one.p[one.run] for one in screened.values())])
    adjusted = _adjusted(together, len(together))
    for one in screened.values():
        one.q = np.ones(len(one.p))
        number = int(one.run.sum())
        one.q[one.run], adjusted = adjusted[:number], adjusted[number:]
    return len(together)


def _allow_for_places(
    strata: _Strata, screened: Mapping[int, _Screened], direction: Direction,
    given: Mapping[int, Sequence[Bools]] | None = None,
) -> None:  # fmt: skip
    """Raise the p-values of what passes by how much places differ among themselves, then adjust them all again."""
    for s, one in screened.items():
        for value in np.flatnonzero(one.q <= FDR).tolist():
            cells = strata.cells(s, value, (given or {}).get(s, ()))
            coarse = strata.level[value] > ALL_ALIKE and direction == "more"
            own = cells.p_value(direction, times=screen.MODELS_DIFFER if coarse else 1.0)
            one.p[value] = max(one.p[value], own)
    _adjust(screened)


def _adjusted(p_values: Floats, tests: int) -> Floats:
    """Adjusted p-values (Benjamini and Hochberg) of the smallest ones of so many tests."""
    rest = max(tests, LEAST_TESTS) - len(p_values)
    return np.asarray(stats.false_discovery_control(np.append(p_values, np.ones(max(rest, 0))))[: len(p_values)])


def _conditional_tests(
    prepared: Prepared, strata: _Strata, counts: Mapping[int, Counts], selected: Sequence[Numbered], family: Bools, *,
    p_cut: float,
) -> tuple[dict[int, _Screened], list[Numbered]]:  # fmt: skip
    """The tests of some values for more crashes, within the strata of what was found, and what they explain besides."""
    design = prepared.design
    screened: dict[int, _Screened] = {}
    explaining = {s: [association for number, association in selected if number == s] for s in counts}
    given = {s: [association.column for association in explaining[s]] for s in counts}
    for s, unconditional in counts.items():
        reported = [v for number, one in selected if number == s for v in (one.value, *one.others)]
        left = family & ~np.isin(np.arange(len(family)), reported)
        conditional, values = unconditional, np.flatnonzero(left)
        if given[s] and len(values):
            conditional = unconditional.take(np.arange(len(family)))
            of_value = strata.of(s)
            units = prepared.units_of(s)
            conditional.put(
                values, stratified_counts(design, units, of_value, unconditional, values.tolist(), given[s])
            )
        worth, _ = screen.worth_testing(conditional, p_cut=p_cut, nodes=design.nodes)
        screened[s] = _Screened(conditional, _p_more(prepared, conditional), worth & left)
    tests = _adjust(screened)
    _allow_for_places(strata, screened, "more", given)
    explained = [
        (s, association)
        for s in counts
        for association in associations(design, {"more": strata.tested(s, screened[s])}, explaining[s])
    ]
    return screened, _gate(explained, tests)


def _p_more(prepared: Prepared, counts: Counts) -> Floats:
    """The p-values for more crashes. Models, and what goes with them, must differ by more than models do."""
    coarse = prepared.design.level > ALL_ALIKE
    beyond_models = screen.p_values(screen.beyond(counts, times=screen.MODELS_DIFFER), "more")
    return np.where(coarse, beyond_models, screen.p_values(counts, "more"))


def _bonferroni(values: Bools, signatures: int) -> float:
    """The p-value that suffices if every value is tested against every signature.

    It fits the fleet: 50 values and two signatures give 5e-4, 500 values and 20 signatures 5e-6.
    """
    return FDR / max(int(values.sum()) * signatures, LEAST_TESTS)


def _gate(explained: Sequence[Numbered], tests: int) -> list[Numbered]:
    """The gate once more, each association counted once: the copies and prefixes of a true one, all of which pass with
    it, must not carry false ones through.
    """
    q = _adjusted(np.array([one.p for _, one in explained]), tests)
    return [(s, replace(one, q=own)) for (s, one), own in zip(explained, q.tolist(), strict=True) if own <= FDR]


class _Strata:
    """The strata of each value, and the exposure in them, computed once for all signatures of a vendor."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._tables: dict[tuple[int, str], screen.ExposureTable] = {}
        self.level = prepared.design.level

    def count(self, signature: int) -> Counts:
        """The counts of all values."""
        total = Counts.zeros(len(self.level))
        for level in np.unique(self.level).tolist():
            table = self._table(level, signature)
            total.put(table.columns, screen.count(self._prepared.design, table, self._prepared.units_of(signature)))
        return total

    def of(self, signature: int) -> Callable[[int], Ints]:
        """The strata in which a value is compared for a signature."""
        return lambda value: self._table(int(self.level[value]), signature).strata

    def cells(self, signature: int, value: int, given: Sequence[Bools] = ()) -> Cells:
        """The cells of one value, within what was found."""
        design = self._prepared.design
        return screen.cells(
            design, self._prepared.units_of(signature), strata=refined_by(self.of(signature)(value), given),
            column=design.column(value),
        )  # fmt: skip

    def tested(self, signature: int, screened: _Screened) -> Tested:
        """A signature's tests, with those that pass as candidates."""
        return Tested(
            units=self._prepared.units_of(signature), counts=screened.counts, p=screened.p, q=screened.q,
            candidates=np.flatnonzero(screened.q <= FDR), strata_of=self.of(signature),
        )  # fmt: skip

    def _table(self, level: int, signature: int) -> screen.ExposureTable:
        key = level, self._prepared.vendor(signature)
        if key not in self._tables:
            strata = self._prepared.strata(signature, level=level)
            self._tables[key] = screen.exposure_table(
                self._prepared.design, strata, np.flatnonzero(self.level == level)
            )
        return self._tables[key]


def _representatives(same: Ints, location: Bools) -> Bools:
    """One of each set of equal columns: of a configuration and a place that are the same nodes, both."""
    keep = np.zeros(len(same), dtype=bool)
    for family in (location, ~location):
        rows = np.flatnonzero(family)
        keep[rows[np.unique(same[rows], return_index=True)[1]]] = True
    return keep


def at_reporting_level(prepared: Prepared, selected: Sequence[Numbered]) -> list[Numbered]:
    """The associations at the level that explains each: no group beside its signatures, no signatures beside it."""
    own = len(prepared.observed.signatures)
    kept = [one for one in selected if one[0] < own]
    groups = sorted(
        (one for one in selected if one[0] >= own), key=lambda one: (len(_members(prepared, one)), one[1].p)
    )
    for group in groups:
        number, association = group
        members = set(prepared.members[number])
        below = [other for other in kept if _members(prepared, other) <= members]
        alike = [other for other in below if _same_facts(prepared.design, other[1], association)]
        if any(other[0] == number or _members(prepared, other) == members for other in alike):
            continue
        if not _explains(prepared, group, below, alike):
            continue
        highest = association.cells.ratio().high
        distinct_ = [other for other in alike if other[1].cells.ratio().low > highest]
        if distinct_:
            rest = members.difference(*(_members(prepared, other) for other in distinct_))
            group = number, replace(association, cells=_cells(prepared, number, rest, association))
        kept = [other for other in kept if other not in alike or other in distinct_] + [group]
    return kept


def signature_parts(prepared: Prepared, number: int, association: Association) -> tuple[SignaturePart, ...]:
    """What each signature of a group adds to its finding, the most first; nothing for a single signature."""
    out = []
    for member in prepared.members.get(number, ()):
        cells = _cells(prepared, number, (member,), association)
        counts = cells.counts()
        if counts.crashes[0] > 0:
            out.append(
                SignaturePart(
                    signature=prepared.observed.signatures[member], observed=int(counts.observed[0]),
                    expected=float(counts.expected[0]), crashes=int(counts.crashes[0]), ratio=cells.ratio(),
                )
            )  # fmt: skip
    return tuple(sorted(out, key=lambda part: (part.expected - part.observed, part.signature)))


def _explains(prepared: Prepared, group: Numbered, below: Sequence[Numbered], alike: Sequence[Numbered]) -> bool:
    """Whether an effect is the group's: nearly all signatures show it, or it remains without those that do."""
    number, association = group
    members = set(prepared.members[number])
    showing = {other for other, _ in alike}
    nearly_all = MOSTLY * len(prepared.units_of(number))
    if showing <= members and len(showing) >= MIN_SIGNATURES and len(prepared.together(showing)) >= nearly_all:
        return True
    rest = members - {s for other in below for s in _members(prepared, other)}
    if rest == members:
        surplus = {s: _surplus(_cells(prepared, number, (s,), association)) for s in members}
        rest -= {max(sorted(surplus), key=lambda s: surplus[s])}
    if len(rest) < MIN_SIGNATURES - 1:
        return False
    cells = _cells(prepared, number, rest, association)
    counts = cells.counts()
    enough = counts.crashes[0] > 0 and counts.observed[0] >= MIN_WITH
    if prepared.design.level[association.value] > ALL_ALIKE:
        counts = screen.beyond(counts, times=screen.MODELS_DIFFER)
    return bool(enough and screen.p_values(counts, "more")[0] <= LEVEL and cells.ratio().value >= MIN_EFFECT)


def _cells(prepared: Prepared, number: int, signatures: Collection[int], association: Association) -> Cells:
    """What some of a group's signatures together show of an association's column."""
    strata = prepared.strata(number, level=int(prepared.design.level[association.value]))
    return screen.cells(prepared.design, prepared.together(signatures), strata=strata, column=association.column)


def _surplus(cells: Cells) -> float:
    counts = cells.counts()
    return float(counts.observed[0] - counts.expected[0])


def _members(prepared: Prepared, one: Numbered) -> set[int]:
    return set(prepared.members.get(one[0], (one[0],)))


def _same_facts(design: Design, one: Association, other: Association) -> bool:
    """Whether two associations are about the same nodes for most of the time, or share a fact."""
    if not {one.value, *one.others}.isdisjoint({other.value, *other.others}):
        return True
    weight = design.states.hours.sum(axis=1)
    return float(weight[one.column & other.column].sum()) >= 0.5 * float(weight[one.column | other.column].sum())
