"""The fast path for floods: lines of a known shape are skipped or counted without decoding and evaluating each.

Invariant: a line is folded only if an evaluated line of its shape showed that the result is the same.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from exporter.core.decoding.formats import is_rewritten
from exporter.core.decoding.layouts import Layout, Layouts
from exporter.core.decoding.lines import Candidate, following
from exporter.core.decoding.prefixes import Clock, written_by_others
from exporter.core.decoding.timestamps import Timestamps
from exporter.core.facts.pci import normalise_pci
from exporter.core.matching.flood import Another, Flood
from exporter.core.matching.match_result import Behind, MatchResult
from exporter.core.matching.verdict_cache import MAX_REMEMBERED_TEXT, Texts, Trial, Trials
from exporter.core.model import Chunk, LogFormat, SourceKind
from exporter.core.patterns.digit_sensitivity import shape_of, widened

MAX_WAYS = 256  # shapes; a flood has a few
MAX_PLACED = 1024  # shapes, those of the lines behind too
WORTH_CHECKING = 16  # lines of a shape


class Placed(NamedTuple):
    """A line's shape, and where its prefixes and its text lie: in all lines of the shape."""

    shape: bytes
    layout: Layout


class Way(NamedTuple):
    """How lines of one shape that hold the same gates are counted: where their prefixes lie, what their texts show."""

    gates: list[int]
    placed: Placed
    trial: Trial
    texts: Texts


class Ways:
    """Those of the lines of one format and source."""

    def __init__(self, trials: Trials, format: LogFormat, source: SourceKind) -> None:  # noqa: A002 (the field's word)
        self.layouts = Layouts(format, source)
        self._trials = trials
        self._source: SourceKind = source
        self._ways: dict[bytes, Way] = {}
        self._placed: dict[bytes, Placed] = {}
        self._asked: Counter[bytes] = Counter()  # by shape with something hexadecimal, how often it was asked for
        self._firm: dict[bytes, bool] = {}

    def of(self, line: bytes, gates: list[int], clock: Clock) -> Way | None:
        """The way of a line; None if it is to be looked at by itself."""
        placed = self.placed(line, clock)
        if placed is None:
            return None
        way = self._ways.get(placed.shape)
        if way is not None and way.gates == gates:
            return way
        trial = self._trials.under(gates, self._source)
        texts = trial.texts(placed.shape[placed.layout.text :], more=trial.lines > 1)
        if texts is None:
            return None
        if len(self._ways) >= MAX_WAYS:
            self._ways.clear()
        way = self._ways[placed.shape] = Way(gates, placed, trial, texts)
        return way

    def placed(self, line: bytes, clock: Clock) -> Placed | None:
        """Where a line's prefixes and text lie; None if it is to be looked at by itself."""
        shape = shape_of(line)
        placed = self._placed.get(shape)
        if placed is None:
            shape = widened(shape)
            placed = self._placed.get(shape) or self._place(line, shape, clock)
        return placed

    def _place(self, line: bytes, shape: bytes, clock: Clock) -> Placed | None:
        layout = self.layouts.of(line, shape, clock) if line.isascii() else None
        if not layout or not self._is_firm(line, shape, layout):
            return None
        if len(self._placed) >= MAX_PLACED:
            self._placed.clear()
        placed = self._placed[shape] = Placed(shape, layout)
        return placed

    def _is_firm(self, line: bytes, shape: bytes, layout: Layout) -> bool:
        """Whether a layout is that of all lines of the shape; not before there have been some: to find out takes a ms."""
        if shape.isascii():
            return True
        if len(self._asked) >= MAX_WAYS:
            self._asked.clear()
            self._firm.clear()
        self._asked[shape] += 1
        if self._asked[shape] == WORTH_CHECKING:
            self._firm[shape] = self.layouts.applies_to_shape(line, shape, layout)
        return self._firm.get(shape, False)

    def forget(self, way: Way) -> None:
        """It leads nowhere: the texts may be others by now."""
        self._ways.pop(way.placed.shape, None)


class Folding:
    """Of one chunk."""

    def __init__(self, chunk: Chunk, clock: Clock, ways: Ways, stamps: Timestamps, flood: Flood) -> None:
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
        way = self._ways.of(raw, gates, self._clock)
        if way is None:
            return False
        layout = way.placed.layout
        seen = raw[layout.text :]
        try:
            told = way.texts.of(seen)
        except KeyError:
            self._ways.forget(way)  # the trial may have others by now
            return False
        if isinstance(told, MatchResult):
            shown: MatchResult | None = told
        else:
            seen, shown = self._with_those_behind(way, seen, told, stop)
        if shown is None or not (shown.ones or shown.nothing):
            return False
        line = raw.decode()
        for at in layout.others_at:
            if written_by_others(line, at):
                return False
        if not shown.ones:
            return True
        time = None
        if layout.stamp and (time := self._stamps.times.of(layout.stamp, raw)) is None:
            return False
        text = seen.decode()
        mono = float(line[layout.mono]) if layout.mono else None
        by_prefix = line[layout.rank] if layout.rank else None
        more: list[Another] = []
        for signature, rank, gpu in shown.ones:
            told_apart = normalise_pci(text[gpu]) if gpu and self._of_kernel else None
            more.append((signature, told_apart, by_prefix or (text[rank] if rank else None)))
        return self._flood.takes(more, self._stamps.note_and_get(start, stop, time, mono))

    def _with_those_behind(self, way: Way, text: bytes, told: Behind, stop: int) -> tuple[bytes, MatchResult | None]:
        """What a line shows with those behind it, and the text that shows it; None if they are to be looked at."""
        behind, complete = following(self._data, stop, way.trial.lines - 1)
        end = behind[-1][1] if behind else stop
        if not complete or is_rewritten(self._data[stop:end]):
            return text, None
        shape = way.placed.shape[way.placed.layout.text :]
        for start, line_stop in behind:
            if without := told.shown_with(self._data[start:end]):
                return text, without
            line = self._data[start:line_stop]
            placed = self._ways.placed(line, self._clock)
            if placed is None or any(written_by_others(line.decode(), at) for at in placed.layout.others_at):
                break
            text += b"\n" + line[placed.layout.text :]
            shape += b"\n" + placed.shape[placed.layout.text :]
            texts = way.trial.texts(shape, more=line_stop < end)
            try:
                shown = texts.of(text) if texts else None
            except KeyError:
                break
            if not isinstance(shown, Behind):
                return text, shown
            told = shown
        return text, None
