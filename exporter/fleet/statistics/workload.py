"""Workload check: the share of the largest user and job in a finding, and the finding without them.

A user's program that crashes wherever it runs makes every fact of the user's nodes look bad. How many hours each user
computed is not known, so users cannot be strata. Instead crashes are left out: those of the largest user, and those of
users (accounts, job names, images) that crash with the fact far more often than elsewhere, as a team with a program of
its own does. A configuration crashes the others too; or it needs their program, which runs elsewhere without this crash, as
their other crashes show. Where the image is a fact of the node its hours are known, and it is a stratum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from exporter.fleet.observations import UNKNOWN, Bools, Ints
from exporter.fleet.statistics import screen
from exporter.fleet.statistics.associations import MIN_EFFECT
from exporter.fleet.statistics.design import refine
from exporter.fleet.statistics.exposure import state_at
from exporter.fleet.statistics.findings import Direction, WorkloadShare
from exporter.fleet.statistics.prepare import Prepared
from exporter.fleet.statistics.screen import Units

LEVEL = 0.05  # of the test without the largest user, or within images
LEVEL_OF_OTHERS = 0.01  # of the test without those that are over-represented, which chance passes in each such fleet
OVER = 0.05  # the binomial tail below which a user crashes with the fact more often than elsewhere
MIN_RECORDED_SHARE = 0.5  # of the crashes must carry a user (account, ...) for it to be judged
NAMED = 10  # users, or jobs, that are named
IMAGE_FACT = "container_image"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """The crashes of a finding, the states that it is about and the strata within which they are compared."""

    prepared: Prepared
    units: Units
    direction: Direction
    strata: Ints
    column: Bools

    @property
    def hit(self) -> Bools:
        """The crashes that make the finding."""
        with_ = self.column[self.units.state]
        return with_ if self.direction == "more" else ~with_

    def share(self, kind: str, values: Ints, chosen: Ints, *, level: float) -> WorkloadShare:
        """The finding without the crashes of the chosen users (accounts, ...), and without those whose user is unknown."""
        is_chosen = np.isin(values, chosen)
        rest = replace(self, units=self.units.take((values >= 0) & ~is_chosen))
        names = self.prepared.observed.workload_names.get("user" if kind == "users" else kind, ())
        return rest.as_share(
            kind, tuple(names[n] if n < len(names) else str(n) for n in chosen.tolist()[:NAMED]),
            share=float(is_chosen[self.hit].mean()), level=level,
        )  # fmt: skip

    def runs_elsewhere(self, chosen: Bools, others: Ints, others_on: Bools) -> int:
        """On how many nodes without the fact the chosen crashed otherwise, too often for chance to spare them.

        chosen: which units are theirs. others, others_on: the nodes of their other crashes, and which have the fact.
        """
        on, off = np.unique(others[others_on]), np.unique(others[~others_on])
        own = [np.count_nonzero(chosen & self.hit), np.count_nonzero(chosen & ~self.hit)]
        p_value = stats.fisher_exact([own, [len(on), len(off)]], alternative="greater").pvalue
        return len(off) if p_value <= LEVEL_OF_OTHERS else 0

    def as_share(self, kind: str, names: tuple[str, ...], *, share: float, level: float) -> WorkloadShare:
        """Whether the finding holds; no ratio where no crash is left."""
        cells = screen.cells(self.prepared.design, self.units, strata=self.strata, column=self.column)
        if not cells.counts().crashes[0]:
            return WorkloadShare(kind=kind, names=names, share=share, ratio=None, p_value=1.0, holds=False)
        p_value, ratio = cells.p_value(self.direction), cells.ratio()
        enough = ratio.value >= MIN_EFFECT if self.direction == "more" else ratio.value <= 1 / MIN_EFFECT
        holds = p_value <= level and enough
        return WorkloadShare(kind=kind, names=names, share=share, ratio=ratio, p_value=p_value, holds=holds)


def workload_shares(
    prepared: Prepared, units: Units, direction: Direction, *, strata: Ints, column: Bools, fact: str
) -> tuple[WorkloadShare, ...]:
    """The largest user and job of the crashes that make a finding, its own users, accounts, job names and images; for
    each, the finding without its crashes. Only what is known is listed. `fact` is the finding's.
    """
    finding = _Comparison(prepared=prepared, units=units, direction=direction, strata=strata, column=column)
    hit = finding.hit
    if not hit.any():
        return ()
    origins = prepared.origins
    state = state_at(prepared.design.states, origins.node, origins.time)
    on = (state >= 0) & (column[state] if direction == "more" else ~column[state])
    elsewhere = (state >= 0) & ~on
    other_ways = (state >= 0) & ~np.isin(origins.signature, units.incidents.signature)
    own = units.incidents
    out = [
        finding.share(kind, values, _largest(values[hit]), level=LEVEL)
        for kind, values in (("user", own.user), ("job", own.job))
        if _is_mostly_recorded(values[hit])
    ]
    kinds = [("users", own.user, origins.user), *((k, v, origins.workload[k]) for k, v in own.workload.items())]
    for kind, values, everywhere in kinds:
        if _is_mostly_recorded(values[hit]) and len(np.unique(everywhere[everywhere >= 0])) > 1:
            chosen = _over_represented(values[hit], everywhere[elsewhere])
            share = finding.share(kind, values, chosen, level=LEVEL_OF_OTHERS)
            others = other_ways & np.isin(everywhere, chosen)
            nodes = finding.runs_elsewhere(np.isin(values, chosen), origins.node[others], on[others])
            out.append(share if share.holds else replace(share, elsewhere=nodes))
    facts = prepared.observed.facts
    if IMAGE_FACT in facts.names and fact != IMAGE_FACT:
        index = facts.names.index(IMAGE_FACT)
        images = facts.codes[prepared.design.states.row, index].astype(np.int64)
        image = int(_largest(images[units.state[hit]])[0])
        name = facts.values[index][image] if image >= 0 else UNKNOWN
        within_images = replace(finding, strata=np.where(strata >= 0, refine(strata, images), -1))
        of_image = float((images[units.state[hit]] == image).mean())
        out.append(within_images.as_share(IMAGE_FACT, (name,), share=of_image, level=LEVEL))
    return tuple(out)


def beyond_one_workload(shares: Sequence[WorkloadShare]) -> bool:
    """Whether a finding holds without each user, job, account and image, or these run elsewhere without its crashes."""
    return all(share.holds or share.elsewhere for share in shares)


def _is_mostly_recorded(values: Ints) -> bool:
    return float((values >= 0).mean()) >= MIN_RECORDED_SHARE


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
