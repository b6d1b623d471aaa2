"""Workload check: the share of the largest user and job in a finding, and the finding without them.

A user's program that crashes wherever it runs makes every fact of the user's nodes look bad. How many hours each user
computed is not known, so users cannot be strata. Instead crashes are left out: those of the largest user, and those of
users (accounts, job names, images) that crash with the fact far more often than elsewhere, as a team with a program of
its own does. A configuration crashes the others too. Where the image is a fact of the node its hours are known, and it
is a stratum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from exporter.fleet.observations import UNKNOWN, Bools, Ints
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.associations import MIN_EFFECT
from exporter.fleet.statistics.design import refine
from exporter.fleet.statistics.exposure import state_at
from exporter.fleet.statistics.findings import Direction, WorkloadShare
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.ratio import Ratio, of_cells
from exporter.fleet.statistics.screen import Units

LEVEL = 0.05  # of the test without the largest user, or within images
LEVEL_OF_OTHERS = 0.01  # of the test without those that are over-represented, which chance passes in each such fleet
OVER = 0.05  # the binomial tail below which a user crashes with the fact more often than elsewhere
MOSTLY_KNOWN = 0.5  # of the crashes must carry a user (account, ...) for it to be judged
NAMED = 10  # users, or jobs, that are named
IMAGE_FACT = "container_image"


def workload_shares(
    prepared: Prepared, units: Units, label: Ints, column: Bools, direction: Direction, fact: str
) -> tuple[WorkloadShare, ...]:
    """The largest user and job of the crashes that make a finding, its own users, accounts, job names and images; for
    each, the finding without its crashes. Only what is known is listed. `fact` is the finding's.
    """
    hit = column[units.state] if direction == "more" else ~column[units.state]
    if not hit.any():
        return ()
    origins = prepared.origins
    state = state_at(prepared.design.states, origins.node, origins.time)
    elsewhere = (state >= 0) & (column[state] if direction == "fewer" else ~column[state])
    own = units.incidents
    out = [
        _without(prepared, units, label, column, direction, hit, kind, values, _largest(values[hit]), LEVEL)
        for kind, values in (("user", own.user), ("job", own.job))
        if _mostly_known(values[hit])
    ]
    kinds = [("users", own.user, origins.user), *((k, v, origins.workload[k]) for k, v in own.workload.items())]
    for kind, values, everywhere in kinds:
        if _mostly_known(values[hit]) and len(np.unique(everywhere[everywhere >= 0])) > 1:
            chosen = _over_represented(values[hit], everywhere[elsewhere])
            out.append(_without(prepared, units, label, column, direction, hit, kind, values, chosen, LEVEL_OF_OTHERS))
    facts = prepared.observed.facts
    if IMAGE_FACT in facts.names and fact != IMAGE_FACT:
        index = facts.names.index(IMAGE_FACT)
        images = facts.codes[prepared.design.states.row, index].astype(np.int64)
        image = int(_largest(images[units.state[hit]])[0])
        within = np.where(label >= 0, refine(label, images), -1)
        ratio, p, holds = _what_is_left(prepared, units, within, column, direction, LEVEL)
        shown = facts.values[index][image] if image >= 0 else UNKNOWN
        share = float((images[units.state[hit]] == image).mean())
        out.append(WorkloadShare(kind=IMAGE_FACT, names=(shown,), share=share, ratio=ratio, p_value=p, holds=holds))
    return tuple(out)


def beyond_one_workload(shares: Sequence[WorkloadShare]) -> bool:
    """Whether a finding holds without each user, job, account and image, as far as they are known."""
    return all(each.holds for each in shares)


def _mostly_known(values: Ints) -> bool:
    return float((values >= 0).mean()) >= MOSTLY_KNOWN


def _largest(values: Ints) -> Ints:
    numbers, counts = np.unique(values[values >= 0] if (values >= 0).any() else values, return_counts=True)
    return np.asarray(numbers[np.argmax(counts)][None])


def _over_represented(hits: Ints, elsewhere: Ints) -> Ints:
    """Users (accounts, ...) with more of the hits than their crashes elsewhere let expect, or with none elsewhere."""
    hits, elsewhere = hits[hits >= 0], elsewhere[elsewhere >= 0]
    numbers, counts = np.unique(hits, return_counts=True)
    others = np.array([np.count_nonzero(elsewhere == number) for number in numbers])
    usual = (others + 0.5) / (len(elsewhere) + 1.0)
    over = (stats.binom.sf(counts - 1, len(hits), usual) < OVER) | (others == 0)
    return np.asarray(numbers[over][np.lexsort((numbers[over], -counts[over]))])


def _without(
    prepared: Prepared, units: Units, label: Ints, column: Bools, direction: Direction, hit: Bools, kind: str,
    values: Ints, chosen: Ints, level: float,
) -> WorkloadShare:  # fmt: skip
    """The finding without the crashes of the chosen ones, and without those of nobody known."""
    of_these = np.isin(values, chosen)
    ratio, p, holds = _what_is_left(prepared, units.take((values >= 0) & ~of_these), label, column, direction, level)
    names = prepared.observed.workload_names.get("user" if kind == "users" else kind, ())
    return WorkloadShare(
        kind=kind, names=tuple(names[n] if n < len(names) else str(n) for n in chosen.tolist()[:NAMED]),
        share=float(of_these[hit].mean()), ratio=ratio, p_value=p, holds=holds,
    )  # fmt: skip


def _what_is_left(
    prepared: Prepared, units: Units, label: Ints, column: Bools, direction: Direction, level: float
) -> tuple[Ratio | None, float, bool]:
    """The ratio, its p-value, and whether both are still those of a finding; no ratio where no crash is left."""
    cells = screen.cells(prepared.design, label, column, units)
    counts = cells.counts()
    if counts.crashes[0] == 0:
        return None, 1.0, False
    p = float((screen.more(counts) if direction == "more" else screen.fewer(counts))[0])
    ratio = of_cells(cells)
    enough = ratio.value >= MIN_EFFECT if direction == "more" else ratio.value <= 1 / MIN_EFFECT
    return ratio, p, p <= level and enough
