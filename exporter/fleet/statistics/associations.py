"""Associations: of all significant values, the few from which the others follow.

The strongest value comes first; everything indistinguishable from it joins its group; the rest must stand out
again within the strata of what was chosen. A pair is reported only where each member needs the other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.fleet.observations import UNKNOWN, Bools, Floats, Ints
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.design import ALIKE, ALL_ALIKE, LEVELS, Design, overlap, refine
from exporter.fleet.statistics.findings import Direction
from exporter.fleet.statistics.screen import Cells, Counts, Units

MAX_ASSOCIATIONS = 5  # of one signature
AGAIN = 1e-3  # p-value that a further association, or a pair's member, must reach given the ones before it
APART = 0.05  # below it two values are distinct: the one stands out within the other
MIN_WITH = 3  # distinct nodes that crashed with it
MIN_EFFECT = 1.5  # a smaller rate ratio is within what a few per cent of misjudged exposure can do
NO_BETTER = 1.92  # of log-likelihood: within a 95% interval of the best
MOSTLY = 0.5  # of the exposure of two values is common
COMPARED = 50  # values that are held against a chosen one, strongest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The screen of one signature: the counts and one-sided p-values of all values, and what is left to explain with.

    `candidates` have passed the false-discovery gate. `strata_of` gives the strata in which a value is compared.
    """

    units: Units
    counts: Counts
    p: Floats
    q: Floats
    candidates: Ints
    strata_of: Callable[[int], Ints]


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """One value, or a pair, with the indistinguishable ones. `column` marks the states that it names."""

    value: int
    others: tuple[int, ...]
    partner: int | None
    direction: Direction
    column: Bools
    cells: Cells
    p: float
    q: float
    within: tuple[int, ...] = ()  # what was found before, within which it is compared


def associations(
    design: Design, tests: Mapping[Direction, Tested], given: Sequence[Association] = ()
) -> list[Association]:
    """The associations of one signature, strongest first, of more crashes and of fewer alike. `given` explains it already."""
    out: list[Association] = []
    chosen = [association.column for association in given]
    left: dict[Direction, list[int]] = {
        direction: [int(v) for v in tested.candidates if _strong(tested.counts, int(v), direction)]
        for direction, tested in tests.items()
    }
    while len(out) < MAX_ASSOCIATIONS:
        ranked = []
        for direction, tested in tests.items():
            left[direction], strength = _conditional_test(design, tested, direction, left[direction], chosen)
            # Of a value and its very opposite, the one with more crashes is said.
            ranked += [
                ((-round(s, 9), direction == "fewer", design.values[v].prefix, v), direction)
                for v, s in zip(left[direction], strength, strict=True)
            ]
        if not ranked:
            break
        (*_, best), direction = min(ranked)
        if direction == "fewer" and (cause := _cause_of_fewer(design, tests, best, left["more"], chosen)) is not None:
            best, direction = cause, "more"
        association = _association(design, tests[direction], best, direction, chosen)
        association = replace(association, within=tuple(one.value for one in (*given, *out)))
        out.append(association)
        chosen.append(association.column)
        group = {association.value, *association.others}
        left[direction] = [v for v in left[direction] if v not in group]
    return out


def _cause_of_fewer(
    design: Design, tests: Mapping[Direction, Tested], value: int, causes: Sequence[int], chosen: Sequence[Bools]
) -> int | None:
    """The value with more crashes beside which one with fewer is nothing special: all others are spared alike."""
    tested = tests["fewer"]
    column, strata = design.column(value), refined_by(tested.strata_of(value), chosen)
    strength = screen.evidence(tests["more"].counts)
    for cause in sorted(causes, key=lambda v: -strength[v])[:COMPARED]:
        given_cause = refined_by(strata, [design.column(cause)])
        if screen.cells(design, tested.units, strata=given_cause, column=column).p_value("fewer") > APART:
            return cause
    return None


def _conditional_test(
    design: Design, tested: Tested, direction: Direction, values: Sequence[int], chosen: Sequence[Bools]
) -> tuple[list[int], list[float]]:
    """Of some values those that stand out beside what was chosen, and how strongly."""
    if not values:
        return [], []
    counts = stratified_counts(design, tested.units, tested.strata_of, tested.counts, values, chosen)
    p = screen.p_values(counts, direction)
    kept = np.flatnonzero(p <= (min(AGAIN, APART / len(values)) if chosen else 1.0))
    return [values[int(i)] for i in kept], screen.evidence(counts)[kept].tolist()


def _association(
    design: Design, tested: Tested, value: int, direction: Direction, chosen: Sequence[Bools]
) -> Association:
    strata = refined_by(tested.strata_of(value), chosen)
    others, strength = _indistinguishable(design, tested, value, design.column(value), strata, direction)
    finer = [v for v in others if design.level[v] < design.level[value] and v in tested.candidates]
    if finer and strength[best := max(finer, key=lambda v: strength[v])] > strength[value] + NO_BETTER:
        return _association(design, tested, best, direction, chosen)  # it varies within the model, and tells more
    lead = _representative_of_group(design, tested, value, others)
    if lead != value:
        others = (value, *(other for other in others if other != lead))
    column = design.column(lead)
    own = screen.cells(design, tested.units, strata=strata, column=column)
    single = Association(
        value=lead, others=others, partner=None, direction=direction, column=column, cells=own,
        p=own.p_value(direction), q=float(tested.q[value]),
    )  # fmt: skip
    pairs = direction == "more" and not tested.units.repeated  # whose screen does not allow for nodes that differ
    return _with_partner(design, tested, single, strata) if pairs else single


def _representative_of_group(design: Design, tested: Tested, value: int, others: Sequence[int]) -> int:
    """Of a value and those on nearly the same nodes, with as much evidence, the one that people can change first."""
    shares = overlap(design, design.column(value))
    strength = screen.evidence(tested.counts)
    same = [
        v
        for v in others
        if shares[v] > ALIKE and design.level[v] == design.level[value] and strength[v] >= strength[value] - NO_BETTER
    ]
    return min([value, *same], key=lambda v: rank(design.values[v].fact))


def _indistinguishable(
    design: Design, tested: Tested, value: int, column: Bools, strata: Ints, direction: Direction
) -> tuple[tuple[int, ...], Floats]:
    """The values indistinguishable from one: nearly the same nodes, or it does not stand out within them, or both explain the
    crashes of mostly the same nodes equally well. And the evidence for all values, as far as they can be compared with it.
    """
    family = design.values[value].family
    shares = overlap(design, column)
    counts, p = tested.counts, tested.p
    if design.level[value] > ALL_ALIKE:  # facts that go with the model cannot be compared within it, only beside it
        counts = screen.count(design, screen.exposure_table(design, strata), tested.units)
        p = screen.p_values(counts, direction)
    strength = screen.evidence(counts)
    order = [int(v) for v in np.lexsort((np.arange(len(strength)), -strength)) if int(v) != value]
    order = [v for v in order if (design.values[v].family == "location") is (family == "location")]
    members = [v for v in order if shares[v] > ALIKE]
    rivals = [v for v in order if shares[v] <= ALIKE and p[v] <= AGAIN and _strong(counts, v, direction)]
    for rival in rivals[:COMPARED]:
        # A fact may be hidden where it hurts: nodes on which it is not known may have the value, if they crash as it does.
        hidden = design.find(design.values[rival].fact, UNKNOWN)
        rivals_own = design.column(rival)
        if hidden is not None and p[hidden] <= AGAIN:
            rivals_own |= design.column(hidden)
        within = screen.cells(design, tested.units, strata=refined_by(strata, [rivals_own]), column=column)
        equal = design.level[rival] <= design.level[value] and strength[rival] > strength[value] - NO_BETTER
        if within.p_value(direction) > APART or (equal and shares[rival] > MOSTLY):
            members.append(rival)
    return tuple(sorted(members, key=lambda v: (-round(float(strength[v]), 9), design.values[v].prefix, v))), strength


def _with_partner(design: Design, tested: Tested, single: Association, strata: Ints) -> Association:
    """The pair of the value and another, where each stands out within the other and neither does without it."""
    chosen = {single.value, *single.others}
    shown = np.asarray(design.has[tested.units.state[single.column[tested.units.state]]].sum(axis=0)).ravel()
    can_join = np.array([value.family != "location" for value in design.values], dtype=bool)
    can_join[list(chosen)] = False
    best, best_p, tests = -1, 1.0, 0
    for level in LEVELS:
        columns = np.flatnonzero((shown >= screen.MIN_CRASHES) & (design.level == level) & can_join)
        if not len(columns):
            continue
        # Within the strata of the value. The model itself cannot be compared within the model.
        own_strata = strata if level == ALL_ALIKE else tested.strata_of(int(columns[0]))
        inside = screen.exposure_table(design, np.where(single.column, own_strata, -1), columns)
        p = screen.p_values(screen.count(design, inside, tested.units), "more")
        tests += len(columns)
        if p.min() < best_p:
            best, best_p = int(columns[np.argmin(p)]), float(p.min())
    if best < 0 or best_p > min(AGAIN, APART / tests):
        return single
    other = design.column(best)
    others_strata = tested.strata_of(best) if design.level[best] > ALL_ALIKE else strata

    def alone(strata: Ints, states: Bools, column: Bools) -> float:
        restricted = np.where(states, strata, -1)
        return screen.cells(design, tested.units, strata=restricted, column=column).p_value("more")

    if alone(strata, other, single.column) > AGAIN:
        return single  # the other suffices
    if min(alone(strata, ~other, single.column), alone(others_strata, ~single.column, other)) <= APART:
        return single  # each does something by itself
    both = single.column & other
    own = screen.cells(design, tested.units, strata=strata, column=both)
    return replace(single, partner=best, column=both, cells=own, p=own.p_value("more"))


def stratified_counts(
    design: Design, units: Units, strata_of: Callable[[int], Ints], counts: Counts, values: Sequence[int],
    chosen: Sequence[Bools],
) -> Counts:  # fmt: skip
    """The counts of some values in their own strata, cut by the columns that were chosen before."""
    at = np.array(values, dtype=np.int64)
    total = counts.take(at)
    if not chosen:
        return total
    all_strata = [strata_of(value) for value in values]
    for strata in {id(strata): strata for strata in all_strata}.values():
        own = np.array([i for i, other in enumerate(all_strata) if other is strata])
        table = screen.exposure_table(design, refined_by(strata, chosen), at[own])
        total.put(own, screen.count(design, table, units))
    return total


def refined_by(strata: Ints, columns: Sequence[Bools]) -> Ints:
    """Strata cut by some columns; what was left out stays out."""
    cut = strata
    for column in columns:
        cut = np.where(strata >= 0, refine(cut, column), -1)
    return cut


def _strong(counts: Counts, value: int, direction: Direction) -> bool:
    """Whether a value has enough nodes and effect to be worth a sentence."""
    with_, without = float(counts.observed[value]), float(counts.crashes[value] - counts.observed[value])
    expected = float(counts.expected[value])
    rest = float(counts.crashes[value]) - expected
    if direction == "more":
        return with_ >= MIN_WITH and with_ * rest >= MIN_EFFECT * without * expected
    return without >= MIN_WITH and without * expected >= MIN_EFFECT * with_ * rest


# In this order. Facts that match nothing come behind them, and last those that follow from the machine or another fact.
_ACTED_ON = tuple(
    re.compile(pattern)
    for pattern in (
        r"driver_version|amdgpu_version|amdgpu_core_package|neo_version|intel_dkms_package",
        r"firmware|bios_version|microcode|guc_version|huc_version",
        r"image",
        r"version|release|options|package|^env\.",
        r"^gpu_model$",
    )
)
_DERIVED = re.compile(
    r"^(?:gfx_target|gpu_count|gpu_memory|gpu_bar_size|gpu_numa_nodes|compute_capability|pci_device|driver|driver_flavor"
    r"|driver_srcversion|bios_date|cpu_model|memory_size|platform|(?:rocm|cuda|oneapi)_versions|.*_mix"
    r"|partition|slurm_partition|queue|workload)$"
)


_HARDWARE = re.compile(
    r"^(?:gpu_model|gfx_target|gpu_count|gpu_memory|gpu_numa_nodes|compute_capability|pci_device|cpu_model|memory_size|platform)$"
)


def is_hardware(fact: str) -> bool:
    """Whether a fact follows from the machine: nobody changes a GPU model to see whether crashes stop."""
    return _HARDWARE.search(fact) is not None


def rank(fact: str) -> int:
    """The place of a fact in the order; lower is better."""
    if _DERIVED.search(fact):
        return len(_ACTED_ON) + 1
    return next((i for i, pattern in enumerate(_ACTED_ON) if pattern.search(fact)), len(_ACTED_ON))
