"""Passes over lines that show nothing, and counts those of a flood in which nothing is new, by their shape: without
decoding and judging each.

Changes no incident: what a line of a shape shows was found out by looking at one, and a flood folds only what it would.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from exporter.core.addresses import without_addresses
from exporter.core.digits import ONE_DIGIT
from exporter.core.facts.pci import normalise_pci
from exporter.core.flood import Flood
from exporter.core.layouts import Layout, Layouts
from exporter.core.lines import Candidate
from exporter.core.model import Chunk, LogFormat, SourceKind
from exporter.core.prefixes import Clock, written_by_others
from exporter.core.stamps import Stamps
from exporter.core.trial import MAX_REMEMBERED_TEXT, One, Texts, Trials

MAX_WAYS = 256  # shapes; a flood has a few
WORTH_LEARNING = 128  # lines, which take as long to look at as to find out whether any pattern looks into addresses
_ADDRESSES = b"\nx"  # behind the shape of lines that differ in them: neither a line nor a block has such an end


class Way(NamedTuple):
    """How lines of one shape that hold the same gates are counted: where their prefixes lie, what their texts show."""

    gates: list[int]
    layout: Layout
    texts: Texts


class Ways:
    """Those of the lines of one format and source."""

    def __init__(self, trials: Trials, format: LogFormat, source: SourceKind) -> None:  # noqa: A002 (the field's word)
        self.layouts = Layouts(format, source)
        self._trials = trials
        self._source: SourceKind = source
        self._ways: dict[bytes, Way] = {}
        self._asked: Counter[bytes] = Counter()  # by shape, how often its addresses were in the way
        self._next: dict[bytes, int] = {}  # how often they have to be for the next attempt to learn of them

    def of(self, line: bytes, shape: bytes, gates: list[int], clock: Clock) -> Way | None:
        """The way of a line of this shape; None if it is to be looked at by itself."""
        way = self._ways.get(shape)
        if way is not None and way.gates == gates:
            return way
        layout = self.layouts.of(line, shape, clock)
        texts = self._trials.under(gates, self._source).texts(shape[layout.text :]) if layout else None
        if not layout or not texts:
            return None
        if len(self._ways) >= MAX_WAYS:
            self._ways.clear()
        way = self._ways[shape] = Way(gates, layout, texts)
        return way

    def forget(self, shape: bytes) -> None:
        """Its way leads nowhere: the texts may be others by now."""
        del self._ways[shape]

    def learn(self, line: bytes, shape: bytes, gates: list[int], clock: Clock) -> None:
        """Find out, where that is worth it, what all lines show that differ from one in addresses alone."""
        if len(self._asked) >= MAX_WAYS:
            self._asked.clear()
            self._next.clear()
        self._asked[shape] += 1
        asked = self._asked[shape]
        if asked >= self._next.get(shape, WORTH_LEARNING):
            learnt, layout = False, self.layouts.of(line, shape, clock)
            if layout and self.layouts.is_of_all(line, layout):
                trial = self._trials.under(gates, self._source)
                learnt = trial.learn(line[layout.text :].decode(), shape[layout.text :])
            self._next[shape] = asked + WORTH_LEARNING if learnt else 2 * asked


class Folding:
    """Of one chunk."""

    def __init__(self, chunk: Chunk, clock: Clock, ways: Ways, stamps: Stamps, flood: Flood) -> None:
        self._data = chunk.data
        self._of_kernel = chunk.source == "kernel"
        self._clock = clock
        self._ways = ways
        self._stamps = stamps
        self._flood = flood
        self._last_newline = chunk.data.rfind(b"\n")

    def takes(self, candidate: Candidate) -> bool:
        """Whether a line shows nothing, or is one more of a flood, and counted. If not, it is to be looked at."""
        start, stop, _, gates = candidate
        is_whole = start > 0 and stop <= self._last_newline
        if not is_whole or stop - start > MAX_REMEMBERED_TEXT:
            return False
        raw = self._data[start:stop]
        known = self._known(without_addresses(raw), gates, _ADDRESSES) if b"0x" in raw else None
        known = known or self._known(raw, gates, b"")
        if known is None:
            return False
        layout, one = known
        line = raw.decode()
        for at in layout.others:
            if written_by_others(line, at):
                return False
        if one is None:
            return True
        signature, rank_at, gpu_at = one
        time = None
        if layout.stamp and (time := self._stamps.times.of(layout.stamp, raw)) is None:
            return False
        text = line[layout.text :]
        mono = float(line[layout.mono]) if layout.mono else None
        rank = line[layout.rank] if layout.rank else text[rank_at] if rank_at else None
        gpu = normalise_pci(text[gpu_at]) if gpu_at and self._of_kernel else None
        when = self._stamps.learnt(start, stop, time, mono)
        return self._flood.takes(signature, gpu, when, rank)

    def _known(self, line: bytes, gates: list[int], mark: bytes) -> tuple[Layout, One | None] | None:
        """Where a line's prefixes lie, and the one signature or nothing that it shows, as far as that is known."""
        shape = line.translate(ONE_DIGIT) + mark
        way = self._ways.of(line, shape, gates, self._clock)
        if way is not None:
            try:
                shown = way.texts.of(line[way.layout.text :])
            except KeyError:
                self._ways.forget(shape)
            else:
                return (way.layout, shown.one) if shown and (shown.one or shown.nothing) else None
        if mark:
            self._ways.learn(line, shape, gates, self._clock)
        return None
