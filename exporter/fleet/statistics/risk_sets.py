"""Risk sets: which nodes could crash at a moment, as spans of time weighted by how busy the nodes are.

The onset of a change's effect is the delay at which it most likely began, with a likelihood interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exporter.fleet.observations import Bools, Floats, Ints
from exporter.fleet.statistics.exposure import DAY

NOBODY = 1e-6  # busy hours in an hour: less is rounding; an idle node counts as 0.01
_JUST_AFTER = 1e-3  # seconds: a node is at risk until its own crash, and at that moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Spans of nodes: from `since` to `until`, with the busy hours in an hour as weight. `change` is when the node's fact
    changes, inf where it does not. Only those with `use` count.
    """

    node: Ints
    since: Floats
    until: Floats
    rate: Floats
    change: Floats
    use: Bools
    stratum: Ints | None = None

    def within(self, stratum: Ints, crashed: Ints, time: Floats) -> Spans:
        """The usable spans in strata (-1 is left out), each up to its node's crash."""
        use = self.use & (stratum >= 0)
        node = self.node[use]
        last = np.full(int(max(node.max(initial=0), crashed.max(initial=0))) + 1, np.inf)
        last[crashed] = time + _JUST_AFTER
        until = np.minimum(self.until[use], last[node])
        return self._of(use, self.since[use], until, stratum[use])

    def in_strata(self, stratum: Ints) -> Spans:
        """The usable spans in strata (-1 is left out)."""
        use = self.use & (stratum >= 0)
        return self._of(use, self.since[use], self.until[use], stratum[use])

    def after_crashes(self, crashed: Ints, time: Floats) -> Spans:
        """The spans of crashed nodes from just after their crash on."""
        last = np.full(int(max(self.node.max(initial=0), crashed.max(initial=0))) + 1, np.inf)
        last[crashed] = time + _JUST_AFTER
        own = np.isfinite(last[self.node])
        since = np.maximum(self.since[own], last[self.node[own]])
        assert self.stratum is not None
        return self._of(own, since, self.until[own], self.stratum[own])

    def changed(self) -> Spans:
        """The spans of the nodes that change."""
        rows = np.isfinite(self.change)
        assert self.stratum is not None
        return self._of(rows, self.since[rows], self.until[rows], self.stratum[rows])

    def split(self, shift: float) -> tuple[Spans, Spans]:
        """The parts from `shift` seconds after the change on, and those before it."""
        moved = self.change + shift
        return replace(self, since=np.maximum(self.since, moved)), replace(self, until=np.minimum(self.until, moved))

    def later_and_never(self) -> tuple[Spans, Spans]:
        """Before the change: the nodes that change later, and those that do not."""
        later = replace(self, until=np.where(np.isfinite(self.change), np.minimum(self.until, self.change), -np.inf))
        return later, replace(self, until=np.where(np.isfinite(self.change), -np.inf, self.until))

    def _of(self, rows: Bools, since: Floats, until: Floats, stratum: Ints) -> Spans:
        return Spans(
            node=self.node[rows], since=since, until=until, rate=self.rate[rows], change=self.change[rows],
            use=np.ones(len(since), dtype=bool), stratum=stratum,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The weight at risk in each stratum as a function of time: spans sorted by where they begin and by where they end."""

    first: float
    size: float  # of a stratum's part of the keys, which sort by stratum and time
    begins: Floats
    begun: Floats  # the weight of all spans up to each that begins
    ends: Floats
    ended: Floats

    def at(self, stratum: Ints, time: Floats) -> Floats:
        """The weight at risk in each stratum at each time."""
        moment = np.clip(time - self.first, 0.0, self.size - 1.0)
        from_, to = stratum * self.size, stratum * self.size + moment
        weight = np.zeros(len(time))
        for keys, sums, sign in ((self.begins, self.begun, 1.0), (self.ends, self.ended, -1.0)):
            upto = np.searchsorted(keys, to, side="right")
            weight += sign * (sums[upto] - sums[np.searchsorted(keys, from_, side="left")])
        return np.asarray(np.where((weight > NOBODY) & (time >= self.first), weight, 0.0))


def curve(spans: Spans) -> Curve:
    """The curve of some spans."""
    assert spans.stratum is not None
    kept = spans.until > spans.since
    since, until, own, rate = spans.since[kept], spans.until[kept], spans.stratum[kept], spans.rate[kept]
    first = float(since.min(initial=np.inf)) if len(since) else 0.0
    size = (float(until.max()) - first if len(until) else 0.0) + 2.0
    parts = []
    for edge in (since, until):
        keys = own * size + (edge - first)
        order = np.argsort(keys)
        parts += [keys[order], np.concatenate([[0.0], np.cumsum(rate[order])])]
    return Curve(first=first, size=size, begins=parts[0], begun=parts[1], ends=parts[2], ended=parts[3])


def at_risk(spans: Spans, stratum: Ints, time: Floats) -> Floats:
    """The weight at risk in each stratum at each time."""
    return curve(spans).at(stratum, time)


HOUR = 3600.0
FROM, TO = -5 * DAY, 7 * DAY  # after the change
COARSE, FINE = 12 * HOUR, HOUR
DROP = 1.92  # of the log-likelihood: a 95% interval
LOG_RATIOS = np.linspace(0.1, 7.0, 40)  # up to a ratio of 1,100


def onset(spans: Spans, stratum: Ints, time: Floats, change: Floats, *, more: bool) -> tuple[float, float, float]:
    """Hours from the change to the onset, and the ends of the interval. Below 0: it began before the change.

    spans: of the nodes at risk; stratum, time, change: of each crash, the last that of its node's change.
    """
    ratios = LOG_RATIOS if more else -LOG_RATIOS
    total, changed = at_risk(spans, stratum, time), spans.changed()

    def like(delay: float) -> float:
        after = at_risk(changed.split(delay)[0], stratum, time)
        share = np.clip(np.divide(after, total, out=np.zeros(len(time)), where=total > 1e-9), 0.0, 1.0)
        hit = time >= change + delay
        log_likelihood = hit[:, None] * ratios - np.log1p(share[:, None] * np.expm1(ratios))
        return float(log_likelihood[share > 0].sum(axis=0).max(initial=0.0))

    coarse = np.arange(FROM, TO + 1, COARSE)
    likes = np.array([like(delay) for delay in coarse])
    around = coarse[int(np.argmax(likes))]
    fine = np.arange(around - COARSE, around + COARSE + 1, FINE)
    delays = np.concatenate([coarse, fine])
    likes = np.concatenate([likes, [like(delay) for delay in fine]])
    best = float(delays[int(np.argmax(likes))])
    kept = delays[likes >= likes.max() - DROP]
    return best / HOUR, float(kept.min()) / HOUR, float(kept.max()) / HOUR
