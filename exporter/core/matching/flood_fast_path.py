"""The fast path for floods: lines of a known mask are skipped or counted without evaluating each.

Invariant: a line is folded only if an evaluated line of its mask showed that the result is the same.
"""

from __future__ import annotations

from exporter.core.decoding.formats import is_rewritten, prefix_fields
from exporter.core.decoding.lines import Candidate, following
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import Timestamps
from exporter.core.matching.flood import Flood, FloodKey
from exporter.core.matching.match_result import MatchResult, NeedsMoreLines
from exporter.core.matching.raising import NOT_KNOWN, Raising
from exporter.core.matching.rules import MAX_BEHIND, gpu_of
from exporter.core.matching.verdict_cache import MAX_REMEMBERED_TEXT, Evaluator, Evaluators
from exporter.core.model import Chunk
from exporter.core.patterns.masks import Masked, masked


class FloodFastPath:
    """The fast path of one chunk: `takes` is its only entry."""

    def __init__(
        self,
        chunk: Chunk,
        clock: Clock,
        evaluators: Evaluators,
        stamps: Timestamps,
        flood: Flood,
        raising: Raising,
    ) -> None:
        self._chunk = chunk
        self._data = chunk.data
        self._of_kernel = chunk.source == "kernel"
        self._clock = clock
        self._evaluators = evaluators
        self._stamps = stamps
        self._flood = flood
        self._raising = raising
        self._last_newline = chunk.data.rfind(b"\n")
        self.run = NOT_KNOWN  # of a job's program, if it was started again

    def takes(self, candidate: Candidate) -> bool:
        """Whether a line matches nothing, or was counted as one more of a flood. If not, evaluate it."""
        start, stop, _, gates = candidate
        is_whole = start > 0 and stop <= self._last_newline
        if not is_whole or stop - start > MAX_REMEMBERED_TEXT:
            return False
        evaluator = self._evaluators.under(gates, self._chunk.source)
        if not evaluator.has_seen:
            return False
        raw = self._data[start:stop]
        fields = prefix_fields(raw, self._chunk.format, self._chunk.source, self._clock)
        if fields is None or fields.by_others:
            return False
        text = raw[fields.text :]
        seen = masked(text)
        known = evaluator.known(seen, more=evaluator.lines > 1) if seen else None
        if seen is None or known is None:
            return False
        runs, known_result = seen.runs, known.shown
        if isinstance(known_result, MatchResult):
            shown: MatchResult | None = known_result
        else:
            text, runs, shown = self._with_those_behind(evaluator, text, seen, known_result, stop)
        if shown is None or not (shown.counted or shown.nothing):
            return False
        if not shown.counted:
            return True
        mono = float(raw[slice(*fields.mono)]) if fields.mono else None
        by_prefix = raw[slice(*fields.rank)].decode() if fields.rank else None
        time = self._stamps.note_and_get(start, stop, fields.time, mono)
        more: list[FloodKey] = []
        for signature, rank, gpu, pid, rule in shown.counted:
            device = gpu_of(rule, gpu.of(text, runs) if gpu else None, fields.device) if self._of_kernel else None
            raised = self.run
            if rule.of_process and self._of_kernel:
                again = self._raising.of_flood(rule, device, pid.of(text, runs) if pid else None, time, text)
                if again is None:
                    return False
                raised = again
            more.append((signature, (device, raised.by), by_prefix or (rank.of(text, runs) if rank else None)))
        return self._flood.takes(more, time)

    def _with_those_behind(
        self, evaluator: Evaluator, text: bytes, seen: Masked, known_result: NeedsMoreLines, stop: int
    ) -> tuple[bytes, list[bytes], MatchResult | None]:
        """The result of a line with the lines behind it, their text and its runs; None if they need an evaluation."""
        behind, complete = following(self._data, stop, evaluator.lines - 1)
        end = behind[-1][1] if behind else stop
        if not complete or is_rewritten(self._data[stop:end], self._chunk.format):
            return text, seen.runs, None
        for start, line_stop in behind:
            if without := known_result.shown_with(self._data[start:line_stop], self._data[start:end]):
                return text, seen.runs, without
            line = self._data[start:line_stop]
            fields = prefix_fields(line, self._chunk.format, self._chunk.source, self._clock)
            if fields is None or fields.by_others or len(line) - fields.text > MAX_BEHIND:
                break
            text += b"\n" + line[fields.text :]
            masked_line = masked(line[fields.text :]) if len(text) <= MAX_REMEMBERED_TEXT else None
            if masked_line is None:
                break
            seen = seen.then(masked_line)
            known = evaluator.known(seen, more=line_stop < end)
            if known is None:
                break
            if not isinstance(known.shown, NeedsMoreLines):
                return text, seen.runs, known.shown
            known_result = known.shown
        return text, seen.runs, None
