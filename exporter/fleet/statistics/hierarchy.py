"""The level at which a finding is reported: a signature, the signatures of a root cause or verdict, or all crashes.

Levels are tested in one family with the signatures. What is then said follows tree-based scan statistics (Kulldorff, Fang
and Walsh 2003, as in the FDA's Sentinel): a group of signatures explains what is left without the signatures that have a
finding of their own, or without the strongest one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from exporter.fleet.statistics import screen
from exporter.fleet.statistics.design import ALL_ALIKE, Design
from exporter.fleet.statistics.explain import MIN_EFFECT, MIN_WITH, Explanation
from exporter.fleet.statistics.findings import SignaturePart
from exporter.fleet.statistics.prepare import MIN_SIGNATURES, Prepared
from exporter.fleet.statistics.ratio import of_cells
from exporter.fleet.statistics.screen import Cells

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
