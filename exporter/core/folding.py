"""Counts the lines of a flood in which nothing is new, by their shape: without decoding and judging each.

Changes no incident: what a line of a shape shows was found out by looking at one, and a flood folds only what it would.
"""

from __future__ import annotations

from exporter.core.digits import ONE_DIGIT
from exporter.core.flood import Flood
from exporter.core.layouts import Layouts
from exporter.core.lines import Candidate
from exporter.core.match import gpu_of
from exporter.core.model import Chunk
from exporter.core.prefixes import Clock, time_at, written_by_others
from exporter.core.stamps import Stamps
from exporter.core.trial import MAX_REMEMBERED_TEXT, Trials


class Folding:
    """Of one chunk."""

    def __init__(
        self, chunk: Chunk, clock: Clock, trials: Trials, layouts: Layouts, stamps: Stamps, flood: Flood
    ) -> None:
        self._chunk = chunk
        self._clock = clock
        self._trials = trials
        self._layouts = layouts
        self._stamps = stamps
        self._flood = flood
        self._last_newline = chunk.data.rfind(b"\n")

    def takes(self, candidate: Candidate) -> bool:
        """Whether a line is one more of a flood, and counted. If not, it is to be looked at."""
        source, start, stop = self._chunk.source, candidate.start, candidate.stop
        is_whole = start > 0 and stop <= self._last_newline
        if not (self._flood.is_on and is_whole and stop - start <= MAX_REMEMBERED_TEXT):
            return False
        raw = self._chunk.data[start:stop]
        shape = raw.translate(ONE_DIGIT)
        layout = self._layouts.of(raw, shape, self._clock)
        if layout is None:
            return False
        try:
            shown = self._trials.under(candidate.gates, source).known(raw[layout.text :], shape[layout.text :])
        except KeyError:
            return False
        if shown is None or len(shown.found) != 1:
            return False
        (found,) = shown.found
        if found.rule.kind != "signature" or found.rule.is_context:
            return False
        line, time = raw.decode(), None
        if layout.stamp and (time := time_at(layout.stamp, line, self._clock)) is None:
            return False
        for at in layout.others:
            if written_by_others(line, at):
                return False
        text = line[layout.text :]
        mono = float(line[layout.mono]) if layout.mono else None
        rank = line[layout.rank] if layout.rank else found.capture("rank", text)
        gpu = gpu_of(found, text, None) if source == "kernel" else None
        self._stamps.know(start, time, mono)
        when, _ = self._stamps.time_of(start, stop, time, mono)
        return self._flood.takes(found.rule.id, gpu, when, rank)
