"""The fast path for floods: lines of a known mask are skipped or counted without evaluating each.

Invariant: a line is folded only if an evaluated line of its mask showed that the result is the same.
"""

from exporter.core.decoding.formats import is_rewritten, prefix_fields
from exporter.core.decoding.lines import Candidate, following
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import Timestamps
from exporter.core.matching.evaluators import MAX_CACHED_TEXT, Evaluator, Evaluators
from exporter.core.matching.flood import Flood, FloodKey
from exporter.core.matching.match_result import NeedsMoreLines
from exporter.core.matching.raising import UNKNOWN_PROCESS, Raising
from exporter.core.matching.rules import MAX_FOLLOWING_TEXT, gpu_of
from exporter.core.matching.verdict_cache import CachedResult
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
        self.run = UNKNOWN_PROCESS  # of a job's program, if it was started again

    def takes(self, candidate: Candidate) -> bool:
        """Whether a line matches nothing, or was counted as one more of a flood. If not, it must be evaluated."""
        start, stop, _, gates = candidate
        is_whole = start > 0 and stop <= self._last_newline
        if not is_whole or stop - start > MAX_CACHED_TEXT:
            return False
        evaluator = self._evaluators.for_gates(gates, self._chunk.source)
        if not evaluator.has_cached:
            return False
        raw = self._data[start:stop]
        fields = prefix_fields(raw, self._chunk.format, self._chunk.source, self._clock)
        if fields is None or fields.by_others:
            return False
        text = raw[fields.text :]
        masked_text = masked(text)
        cached = evaluator.cached(masked_text, more=evaluator.lines > 1) if masked_text else None
        if masked_text is None or cached is None:
            return False
        runs = masked_text.runs
        if isinstance(cached.result, NeedsMoreLines):
            text, runs, cached = self._with_following(evaluator, text, masked_text, cached, stop)
        if cached is None or not (cached.counted or cached.is_empty):
            return False
        if not cached.counted:
            return True
        mono = float(raw[slice(*fields.mono)]) if fields.mono else None
        by_prefix = raw[slice(*fields.rank)].decode() if fields.rank else None
        time = self._stamps.note_and_get(start, stop, fields.time, mono)
        more: list[FloodKey] = []
        for signature, rank, gpu, pid, rule in cached.counted:
            device = gpu_of(rule, gpu.of(text, runs) if gpu else None, fields.device) if self._of_kernel else None
            raised = self.run
            if rule.of_process and self._of_kernel:
                again = self._raising.of_flood(rule, device, pid.of(text, runs) if pid else None, time, text)
                if again is None:
                    return False
                raised = again
            more.append((signature, (device, raised.by), by_prefix or (rank.of(text, runs) if rank else None)))
        return self._flood.takes(more, time)

    def _with_following(
        self, evaluator: Evaluator, text: bytes, masked_text: Masked, cached: CachedResult, stop: int
    ) -> tuple[bytes, list[bytes], CachedResult | None]:
        """A line with the lines that follow it: text, runs and cached result; None if they need an evaluation."""
        lines, complete = following(self._data, stop, evaluator.lines - 1)
        end = lines[-1][1] if lines else stop
        if not complete or is_rewritten(self._data[stop:end], self._chunk.format):
            return text, masked_text.runs, None
        for start, line_stop in lines:
            if not isinstance(cached.result, NeedsMoreLines):
                break
            line = self._data[start:line_stop]
            if cached.result.result_before(line, self._data[start:end]):
                return text, masked_text.runs, cached
            fields = prefix_fields(line, self._chunk.format, self._chunk.source, self._clock)
            if fields is None or fields.by_others or len(line) - fields.text > MAX_FOLLOWING_TEXT:
                return text, masked_text.runs, None
            text += b"\n" + line[fields.text :]
            masked_line = masked(line[fields.text :]) if len(text) <= MAX_CACHED_TEXT else None
            if masked_line is None:
                return text, masked_text.runs, None
            masked_text = masked_text.with_line(masked_line)
            longer = evaluator.cached(masked_text, more=line_stop < end)
            if longer is None:
                return text, masked_text.runs, None
            cached = longer
        return text, masked_text.runs, None if isinstance(cached.result, NeedsMoreLines) else cached
