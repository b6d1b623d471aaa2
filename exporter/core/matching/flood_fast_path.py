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
from exporter.core.matching.flood import Flood, FloodKey
from exporter.core.matching.match_result import MatchResult, NeedsMoreLines
from exporter.core.matching.verdict_cache import MAX_REMEMBERED_TEXT, CachedResults, Evaluator, Evaluators
from exporter.core.model import Chunk, LogFormat, SourceKind
from exporter.core.patterns.digit_sensitivity import shape_of, widened

MAX_KNOWN_SHAPES = 256  # shapes; a flood has a few
MAX_LAYOUTS = 1024  # shapes, those of the lines behind too
WORTH_CHECKING = 16  # lines of a shape


class LineLayout(NamedTuple):
    """A shape, and the places of prefixes and text in all lines of that shape."""

    shape: bytes
    places: Layout


class KnownShape(NamedTuple):
    """Everything needed to count lines of one shape with the same required literals without evaluating them."""

    gates: list[int]
    layout: LineLayout
    evaluator: Evaluator
    texts: CachedResults


class KnownShapes:
    """The known shapes of lines of one format and source."""

    def __init__(self, evaluators: Evaluators, format: LogFormat, source: SourceKind) -> None:  # noqa: A002 (the field's word)
        self.layouts = Layouts(format, source)
        self._evaluators = evaluators
        self._source: SourceKind = source
        self._shapes: dict[bytes, KnownShape] = {}
        self._layouts: dict[bytes, LineLayout] = {}
        self._asked: Counter[bytes] = Counter()  # by shape with something hexadecimal, how often it was asked for
        self._firm: dict[bytes, bool] = {}

    def of(self, line: bytes, gates: list[int], clock: Clock) -> KnownShape | None:
        """The known shape of a line; None if the line needs an evaluation of its own."""
        layout = self.layout_of(line, clock)
        if layout is None:
            return None
        known = self._shapes.get(layout.shape)
        if known is not None and known.gates == gates:
            return known
        evaluator = self._evaluators.under(gates, self._source)
        texts = evaluator.texts(layout.shape[layout.places.text :], more=evaluator.lines > 1)
        if texts is None:
            return None
        if len(self._shapes) >= MAX_KNOWN_SHAPES:
            self._shapes.clear()
        known = self._shapes[layout.shape] = KnownShape(gates, layout, evaluator, texts)
        return known

    def layout_of(self, line: bytes, clock: Clock) -> LineLayout | None:
        """The layout of a line; None if the line needs an evaluation of its own."""
        shape = shape_of(line)
        layout = self._layouts.get(shape)
        if layout is None:
            shape = widened(shape)
            layout = self._layouts.get(shape) or self._place(line, shape, clock)
        return layout

    def _place(self, line: bytes, shape: bytes, clock: Clock) -> LineLayout | None:
        places = self.layouts.of(line, shape, clock) if line.isascii() else None
        if not places or not self._is_firm(line, shape, places):
            return None
        if len(self._layouts) >= MAX_LAYOUTS:
            self._layouts.clear()
        layout = self._layouts[shape] = LineLayout(shape, places)
        return layout

    def _is_firm(self, line: bytes, shape: bytes, layout: Layout) -> bool:
        """Whether a layout is that of all lines of the shape; not before there have been some: to find out takes a ms."""
        if shape.isascii():
            return True
        if len(self._asked) >= MAX_KNOWN_SHAPES:
            self._asked.clear()
            self._firm.clear()
        self._asked[shape] += 1
        if self._asked[shape] == WORTH_CHECKING:
            self._firm[shape] = self.layouts.applies_to_shape(line, shape, layout)
        return self._firm.get(shape, False)

    def forget(self, known: KnownShape) -> None:
        """It leads nowhere: the texts may be others by now."""
        self._shapes.pop(known.layout.shape, None)


class FloodFastPath:
    """The fast path of one chunk: `takes` is its only entry."""

    def __init__(self, chunk: Chunk, clock: Clock, known: KnownShapes, stamps: Timestamps, flood: Flood) -> None:
        self._data = chunk.data
        self._of_kernel = chunk.source == "kernel"
        self._clock = clock
        self._shapes = known
        self._stamps = stamps
        self._flood = flood
        self._last_newline = chunk.data.rfind(b"\n")

    def takes(self, candidate: Candidate) -> bool:
        """Whether a line matches nothing, or was counted as one more of a flood. If not, evaluate it."""
        start, stop, _, gates = candidate
        is_whole = start > 0 and stop <= self._last_newline
        if not is_whole or stop - start > MAX_REMEMBERED_TEXT:
            return False
        raw = self._data[start:stop]
        known = self._shapes.of(raw, gates, self._clock)
        if known is None:
            return False
        layout = known.layout.places
        seen = raw[layout.text :]
        try:
            told = known.texts.of(seen)
        except KeyError:
            self._shapes.forget(known)  # the evaluator may have replaced its cache
            return False
        if isinstance(told, MatchResult):
            shown: MatchResult | None = told
        else:
            seen, shown = self._with_those_behind(known, seen, told, stop)
        if shown is None or not (shown.counted or shown.nothing):
            return False
        line = raw.decode()
        for at in layout.others_at:
            if written_by_others(line, at):
                return False
        if not shown.counted:
            return True
        time = None
        if layout.stamp and (time := self._stamps.times.of(layout.stamp, raw)) is None:
            return False
        text = seen.decode()
        mono = float(line[layout.mono]) if layout.mono else None
        by_prefix = line[layout.rank] if layout.rank else None
        more: list[FloodKey] = []
        for signature, rank, gpu in shown.counted:
            told_apart = normalise_pci(text[gpu]) if gpu and self._of_kernel else None
            more.append((signature, told_apart, by_prefix or (text[rank] if rank else None)))
        return self._flood.takes(more, self._stamps.note_and_get(start, stop, time, mono))

    def _with_those_behind(
        self, known: KnownShape, text: bytes, told: NeedsMoreLines, stop: int
    ) -> tuple[bytes, MatchResult | None]:
        """The result of a line with the lines behind it, and its text; None if they need an evaluation."""
        behind, complete = following(self._data, stop, known.evaluator.lines - 1)
        end = behind[-1][1] if behind else stop
        if not complete or is_rewritten(self._data[stop:end]):
            return text, None
        shape = known.layout.shape[known.layout.places.text :]
        for start, line_stop in behind:
            if without := told.shown_with(self._data[start:end]):
                return text, without
            line = self._data[start:line_stop]
            layout = self._shapes.layout_of(line, self._clock)
            if layout is None or any(written_by_others(line.decode(), at) for at in layout.places.others_at):
                break
            text += b"\n" + line[layout.places.text :]
            shape += b"\n" + layout.shape[layout.places.text :]
            texts = known.evaluator.texts(shape, more=line_stop < end)
            try:
                shown = texts.of(text) if texts else None
            except KeyError:
                break
            if not isinstance(shown, NeedsMoreLines):
                return text, shown
            told = shown
        return text, None
