"""Who is at risk of a crash at a moment: nodes as spans of time, weighed by how busy they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exporter.fleet.observations import Bools, Floats, Ints

_NOBODY = 1e-6  # busy hours in an hour: less is rounding; an idle node counts as 0.01
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


def at_risk(spans: Spans, stratum: Ints, time: Floats) -> Floats:
    """The weight at risk in each stratum at each time."""
    assert spans.stratum is not None
    kept = spans.until > spans.since
    since, until, own, rate = spans.since[kept], spans.until[kept], spans.stratum[kept], spans.rate[kept]
    if not len(since) or not len(time):
        return np.zeros(len(time))
    first = min(float(since.min()), float(time.min()))
    size = max(float(until.max()), float(time.max())) - first + 1.0

    def weight(edge: Floats) -> Floats:
        keys = own * size + (edge - first)
        order = np.argsort(keys)
        total = np.concatenate([[0.0], np.cumsum(rate[order])])
        upto = np.searchsorted(keys[order], stratum * size + (time - first), side="right")
        return np.asarray(total[upto] - total[np.searchsorted(keys[order], stratum * size, side="left")])

    found = weight(since) - weight(until)
    return np.where(found > _NOBODY, found, 0.0)
