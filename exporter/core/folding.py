"""Passes over lines that show nothing, and counts those of a flood in which nothing is new, by their shape: without
decoding and judging each.

Changes no incident: what a line of a shape shows was found out by looking at one, and a flood folds only what it would.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from exporter.core.facts.pci import normalise_pci
from exporter.core.flood import Flood
from exporter.core.layouts import Layout, Layouts
from exporter.core.lines import Candidate
from exporter.core.looks import shape_of
from exporter.core.model import Chunk, LogFormat, SourceKind
from exporter.core.prefixes import Clock, written_by_others
from exporter.core.stamps import Stamps
from exporter.core.trial import MAX_REMEMBERED_TEXT, Texts, Trials

MAX_WAYS = 256  # shapes; a flood has a few
WORTH_CHECKING = 16  # lines of a shape


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
        self._asked: Counter[bytes] = Counter()  # by shape with an address, how often its way was asked for
        self._firm: dict[bytes, bool] = {}

    def of(self, line: bytes, shape: bytes, gates: list[int], clock: Clock) -> Way | None:
        """The way of a line of this shape; None if it is to be looked at by itself."""
        way = self._ways.get(shape)
        if way is not None and way.gates == gates:
            return way
        layout = self.layouts.of(line, shape, clock)
        texts = self._trials.under(gates, self._source).texts(shape[layout.text :]) if layout else None
        if not layout or not texts or not self._is_firm(line, shape, layout):
            return None
        if len(self._ways) >= MAX_WAYS:
            self._ways.clear()
        way = self._ways[shape] = Way(gates, layout, texts)
        return way

    def _is_firm(self, line: bytes, shape: bytes, layout: Layout) -> bool:
        """Whether a layout is that of all lines of the shape; not before there have been some: to find out takes a ms."""
        if b"0x" not in line:
            return True
        if len(self._asked) >= MAX_WAYS:
            self._asked.clear()
            self._firm.clear()
        self._asked[shape] += 1
        if self._asked[shape] == WORTH_CHECKING:
            self._firm[shape] = self.layouts.is_of_all(line, layout)
        return self._firm.get(shape, False)

    def forget(self, shape: bytes) -> None:
        """Its way leads nowhere: the texts may be others by now."""
        del self._ways[shape]


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
        shape = shape_of(raw)
        way = self._ways.of(raw, shape, gates, self._clock)
        if way is None:
            return False
        layout = way.layout
        try:
            shown = way.texts.of(raw[layout.text :])
        except KeyError:
            self._ways.forget(shape)  # the trial may have others by now
            return False
        if shown is None or not (shown.one or shown.nothing):
            return False
        one = shown.one
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
