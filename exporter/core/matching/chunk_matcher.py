"""The lines of one chunk: which signatures, facts and suspected crashes they show, and where.

Knows no files, no clocks and no incidents.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from exporter.core.catalogue.loader import Catalogue
from exporter.core.collectives import waiting_of
from exporter.core.decoding import formats
from exporter.core.decoding.lines import Candidate, carried_line, following, newlines, pieces
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import NO_STAMP, Heads, Nearest, Timestamps, Untimed
from exporter.core.matching.evaluators import Evaluator, Evaluators
from exporter.core.matching.flood import NO_RUNS, Flood, Run, RunKey
from exporter.core.matching.flood_fast_path import FloodFastPath
from exporter.core.matching.log_state import LogState
from exporter.core.matching.quotations import MAX_INDENTATION, SEEN_BYTES, is_introduced, needed_before
from exporter.core.matching.raising import UNKNOWN_PROCESS, Raised, Raising
from exporter.core.matching.rules import MAX_FOLLOWING_TEXT, MAX_TEXT, RuleMatch, facts_of, gpu_of
from exporter.core.model import (
    PYTHON_TRACEBACK,
    STAMPED,
    UNRECOGNISED,
    Chunk,
    ContextLine,
    LogFormat,
    Match,
    Record,
    SourceKind,
    TimeSource,
)
from exporter.core.patterns.prefilter import Engine
from exporter.core.text.template import error_of, template_of
from exporter.core.values import replace

MAX_FACTS = 128  # facts kept a log: three times what the chattiest (collect_env and a Slurm prolog together) tells
MAX_FACT_CHARS = 256
MAX_MARK_CHARS = 1024
MAX_MARKS = 32  # context signatures are fewer
LINE_SECONDS = 1.0  # of work on one line: the rest of a line that costs more is skipped
# What a line may have shown besides signatures, whose ids have no brackets: that it was joined to an earlier one, that
# it quotes an error, that it looks like a crash.
_JOINED, ECHO, UNMATCHED, CUT = "(joined)", "(echo)", "(unmatched)", "(cut)"
# An example of a signature that `gpufault inject` writes. Only where a text begins, which no user chooses in the kernel log.
_TEST = re.compile(r"(?s)gpufault inject: test line [0-9a-f]{16} of (?P<signature>\w+): (?P<example>.*)")


class _LinesToCome(Exception):
    """A match depends on lines that have not been written yet."""


class Tools(Protocol):
    """What a chunk is matched with: the pipeline."""

    catalogue: Catalogue
    evaluators: Evaluators
    window: float | None
    clock: Callable[[], float]

    def engine_for(self, source: SourceKind) -> Engine: ...

    def stamps_of(self, format: LogFormat) -> Heads: ...  # noqa: A002 (the field's word)


class LinesBefore(NamedTuple):
    """What a chunk has to know of the lines before it."""

    stamp: Nearest
    end: bytes  # of them, to see whether they introduce a quotation
    runs: Mapping[RunKey, Run] = NO_RUNS  # of matches that more may follow
    untimed: Untimed | None = None
    read_at: float = 0.0


NO_LINES = LinesBefore(NO_STAMP, b"")


class LinePart(NamedTuple):
    """A decoded part of a line: all of it, unless it is long or has carriage returns.

    `offset`: where the part begins in the log. `once`: no part of the line will be matched again.
    """

    line: Candidate
    offset: int
    record: Record
    once: bool


class ChunkMatcher:
    """The work on one chunk."""

    def __init__(self, tools: Tools, chunk: Chunk, clock: Clock, state: LogState, before: LinesBefore) -> None:
        self.tools = tools
        self.chunk = chunk
        self.clock = clock
        self.context = state.context
        self.end = state.end
        self.raising = Raising(state.reports)
        self.matches: list[Match] = []
        # Behind a pause in reading their incidents may be closed.
        runs = before.runs if 0 <= chunk.read_at - before.read_at <= (tools.window or 0.0) else NO_RUNS
        self.flood = Flood(self.matches, tools.window, tools.catalogue.has_mixed_lines, runs)
        self.runs = NO_RUNS  # those of the chunk, once all of it is matched
        self.counts: Counter[str] = Counter()
        self.shown: set[tuple[int, str]] = set()
        self.part_offset = chunk.offset
        if state.open_line and chunk.offset >= state.open_line.offset:
            self.part_offset = state.open_line.offset
            self.shown = set(state.open_line.shown)
        self.stamps = Timestamps(chunk, clock, before.stamp, tools.stamps_of(chunk.format), before.untimed)
        self.fast_path = FloodFastPath(chunk, clock, tools.evaluators, self.stamps, self.flood, self.raising)
        self._note_run()
        self._before = before
        self._newlines = self._counted_to = 0
        self._last_newline = chunk.data.rfind(b"\n")

    def match_line(self, candidate: Candidate, *, may_wait: bool) -> bool:
        """Match one line; False if it has to wait for the lines behind it."""
        is_joined = self.shown and (self._offset_of(candidate.start), _JOINED) in self.shown
        if is_joined:
            return True
        if self.chunk.source == "job" and self._is_quotation(candidate.start):
            self._count(self._offset_of(candidate.start), ECHO, once=False)
            return True
        folded = self.flood.folded
        if self.fast_path.takes(candidate):
            if self.flood.folded > folded:
                self.end = self.end.named_at(self._offset_of(candidate.start))
            return True
        return self._match_whole(candidate, may_wait=may_wait)

    def _is_quotation(self, start: int) -> bool:
        """Whether the lines before one introduce it as a quotation."""
        line = self.chunk.data[start : start + MAX_INDENTATION]
        return is_introduced(self._end_before(start, needed_before(line)), line)

    def _end_before(self, at: int, size: int) -> bytes:
        """The last bytes of the lines before chunk[at]."""
        before = self.chunk.data[max(0, at - size) : at]
        return before if at >= size else (self._before.end + before)[-size:]

    def lines_before(self, consumed: int) -> LinesBefore:
        """What the next chunk has to know of the lines before it."""
        stamp, end = self.stamps.nearest_before(consumed), self._end_before(consumed, SEEN_BYTES)
        return LinesBefore(stamp, end, self.runs, self.stamps.untimed_before(consumed), self.chunk.read_at)

    def read_to(self, consumed: int, *, is_all: bool) -> None:
        """The log was read so far; `is_all`: nothing more of it will come."""
        self.runs = self.flood.end()
        self.end, crash = self.end.read_to(self.chunk.offset + consumed, self.chunk.read_at), None
        if is_all:
            self.end, crash = self.end.ended()
        if crash:
            self.matches.append(crash)

    def _match_whole(self, candidate: Candidate, *, may_wait: bool) -> bool:
        """Match a line that the fast path does not take, in parts if it is long."""
        chunk = self.chunk
        block, line, line_stop, time = chunk.data, candidate, candidate.stop, None
        carried = chunk.format in formats.CONTAINER_FORMATS
        if carried:
            joined = carried_line(chunk.data, candidate, chunk.format, self.clock, may_wait=may_wait)
            if joined is None:
                return False
            text, time, line_stop, starts = joined
            self.shown.update((self._offset_of(start), _JOINED) for start in starts)
            block = text.encode("utf-8", "replace")
            # The gates of a line that nothing was joined to, and that is matched as a whole, are those of the candidate.
            ends, gates = candidate.ends, candidate.gates
            if line_stop > candidate.stop or len(block) > MAX_TEXT or b"\r" in block:
                ends, gates = self.tools.engine_for(chunk.source).scan(block)
            line = Candidate(0, len(block), ends, gates)
        evaluator = self.tools.evaluators.for_gates(line.gates, chunk.source)
        if not evaluator.lines:
            return True
        parts = pieces(block, line, MAX_TEXT)
        once = candidate.start > 0 and line_stop <= self._last_newline and len(parts) == 1

        def following_texts() -> list[str]:
            return self._texts(line_stop, evaluator.lines - 1, may_wait=may_wait)

        began = self.tools.clock()
        for number, (start_of_part, start, stop) in enumerate(parts):
            if number and self.tools.clock() - began > LINE_SECONDS:
                self._count(self._offset_of(candidate.start), CUT, once=once)
                break
            if carried:
                text = block[start:stop].decode("utf-8", "backslashreplace")
                start_of_part, record = candidate.start, formats.decode_job_text(text, time, self.clock)
            else:
                record = self._record(start, stop)
                if start == candidate.start:
                    self.stamps.note(start, record.time, record.mono)
            part = LinePart(candidate, self._offset_of(start_of_part), record, once)
            try:
                self._match_part(part, evaluator, line.gates, following_texts)
            except _LinesToCome:
                return False
        return True

    def _texts(self, stop: int, count: int, *, may_wait: bool) -> list[str]:
        """The texts of the lines after one. What users wrote there breaks off a block."""
        ranges, complete = following(self.chunk.data, stop, count)
        if may_wait and not complete:
            raise _LinesToCome
        records = [self._record(start, stop) for start, stop in ranges]
        return [self._following_text(record)[:MAX_FOLLOWING_TEXT] for record in records]

    def _following_text(self, record: Record) -> str:
        if test := _TEST.match(record.text):
            return test["example"]
        return record.text if self._is_trusted(record) else ""

    def _record(self, start: int, stop: int) -> Record:
        raw = self.chunk.data[start : min(stop, start + MAX_TEXT)]
        return formats.decode(raw, self.chunk.format, self.chunk.source, self.clock)

    def _match_part(
        self, part: LinePart, evaluator: Evaluator, gates: Sequence[int], following_texts: Callable[[], Sequence[str]]
    ) -> None:
        record = part.record
        if test := _TEST.match(record.text):
            self._match_test_line(part, test, gates, following_texts)
            return
        if not self._is_trusted(record):
            self._count(part.offset, ECHO, once=part.once)
            evaluator = self.tools.evaluators.for_gates(gates, self.chunk.source, trusted=False)
        text = record.text[:MAX_TEXT]  # an invalid UTF-8 byte becomes four characters
        result = evaluator.evaluate(text, following_texts)
        if result.echo:
            self._count(part.offset, ECHO, once=part.once)
        text = result.block or text
        if result.crash:
            self._note_crash_shape(part, result.crash, text)
        for match in result.matches:
            if match.rule.kind == "fact":
                self._note_facts(match, text)
        for match in result.matches:
            if match.rule.kind == "signature":
                self._add_signature(part, match, text)

    def _match_test_line(
        self,
        part: LinePart,
        test: re.Match[str],
        gates: Sequence[int],
        following_texts: Callable[[], Sequence[str]],
    ) -> None:
        """An example that `gpufault inject --signature` wrote: only a test line, and only if its signature matches."""
        evaluator = self.tools.evaluators.for_gates(gates, self.chunk.source)
        result = evaluator.evaluate(test["example"], following_texts)
        if any(match.rule.id == test["signature"] for match in result.matches):
            tag = part.record.text[: test.start("example")]
            for match in evaluator.evaluate(tag, following_texts).matches:
                self._add_signature(part, match, tag)

    def _add_signature(self, part: LinePart, rule_match: RuleMatch, text: str) -> None:
        """Add a match of a signature, or count it as one more of a flood."""
        chunk, record, rule, signature = self.chunk, part.record, rule_match.rule, rule_match.rule.id
        if not part.once:
            if (part.offset, signature) in self.shown:
                return
            self.shown.add((part.offset, signature))
        time, time_source = self.stamps.time_of(part.line.start, part.line.stop, record.time, record.mono)
        rank = record.rank or rule_match.capture("rank", text) or None
        gpu, raised = None, UNKNOWN_PROCESS
        if chunk.source == "job":
            raised = self.fast_path.run
            if rule.ends_job:
                suspect = self._match(signature, part, rule_match.captures(text), rank, time, time_source)
                self.end = self.end.suspected(suspect, part.offset, chunk.offset + part.line.stop)
                return
            self._note_end(rule_match, part.offset, text)
        else:
            gpu = gpu_of(rule, rule_match.capture("gpu", text), record.device)
            if rule.of_process:
                raised = self.raising.of_line(rule, gpu, rule_match.captures(text), time, part.offset)
        fault = (gpu, raised.by)
        waiting = waiting_of(rule_match.captures(text), rank, record.host) if rule.shows_waiting else ()
        may_fold = part.once and not rule.is_context and not raised.closes
        if may_fold and self.flood.takes([(signature, fault, rank)], time, waiting):
            return
        captures = rule_match.captures(text)
        marks = self.context.marks
        if rule.is_context and (signature in marks or len(marks) < MAX_MARKS):
            line = self._line_at(part.line.start)
            mark = ContextLine(path=chunk.path, line=line, text=record.text[:MAX_MARK_CHARS], captures=captures)
            self.context = replace(self.context, marks={**marks, signature: mark})
        match = self._match(signature, part, captures, rank, time, time_source)
        gpu = gpu or gpu_of(rule, rule_match.capture("gpu", text), record.device)
        match = replace(match, gpu=gpu, raised_by=raised.by, closes=raised.closes, waiting=waiting)
        self.flood.add(match, fault)

    def _note_end(self, rule_match: RuleMatch, offset: int, text: str) -> None:
        """What a signature of a job's log says about the end of the log."""
        signature = rule_match.rule.id
        role = self.tools.catalogue.signatures[signature].role
        if signature == PYTHON_TRACEBACK:
            self.end = self.end.heading(offset)
        elif role == "cascade":
            death = self.tools.catalogue.signatures[signature].death
            self._note_report(offset, with_words=death is not None and death.is_of_its_own(rule_match.captures(text)))
            if death is not None:
                self.end = self.end.ended_process()
        elif role != "context":
            self.end = self.end.named_at(offset)

    def _start(self, offset: int) -> None:
        """The program starts: after a crash, what its lines show is no more of the same flood."""
        self.end, before = self.end.started(offset), self.end
        if self.end.run != before.run:
            self.flood.end()
            self._note_run()

    def _note_run(self) -> None:
        self.fast_path.run = Raised(self.end.run_name) if self.chunk.source == "job" else UNKNOWN_PROCESS

    def _note_report(self, offset: int, *, with_words: bool) -> None:
        """Somebody reports that a process has ended. with_words: it may have said why."""
        self.end, crash = self.end.reported_at(offset, with_words=with_words)
        if crash:
            self.matches.append(crash)

    def _note_crash_shape(self, part: LinePart, shape: RuleMatch, text: str) -> None:
        """A line without a signature looks like a crash, or reports one."""
        rule, offset, record = shape.rule, part.offset, part.record
        if rule.reports_end:
            self._note_report(offset, with_words=True)
            return
        if rule.reports_success:
            self.end = self.end.succeeded()
            return
        if rule.reports_start:
            self._start(offset)
            return
        began = self.end.opened(offset) if rule.crash == "python" else offset
        are_words = rule.needs_report or (rule.in_traceback and began is None)
        if (offset, UNMATCHED) in self.shown:
            return
        if not are_words:
            self._count(offset, UNMATCHED, once=part.once)
        if not rule.crash or UNRECOGNISED not in self.tools.catalogue.signatures:
            return
        named = next((start for name, _, start, _ in shape.groups if name == "type"), shape.start)
        message = error_of(text[named if rule.crash == "python" else shape.start :])
        captures = {"kind": rule.crash, "template": template_of(message), **shape.captures(text)}
        time, time_source = self.stamps.time_of(part.line.start, part.line.stop, record.time, record.mono)
        match = self._match(UNRECOGNISED, part, captures, record.rank, time, time_source)
        if self.chunk.source == "kernel":
            match = replace(match, gpu=gpu_of(rule, shape.capture("gpu", text), record.device))
        end = self.chunk.offset + part.line.stop
        if self.chunk.source == "kernel" or rule.ends_process:
            self.matches.append(match)
            self.end = self.end.ended_process()
        elif are_words:
            self.end = self.end.complained(match, end)
        else:
            self.end = self.end.suspected(match, offset if began is None else began, end)

    def _match(
        self,
        signature: str,
        part: LinePart,
        captures: Mapping[str, str],
        rank: str | None,
        time: float,
        time_source: TimeSource,
    ) -> Match:
        chunk, record = self.chunk, part.record
        return Match(
            signature=signature,
            source=chunk.source,
            origin=chunk.origin,
            path=chunk.path,
            line=self._line_at(part.line.start),
            offset=part.offset,
            time=time,
            time_source=time_source,
            read_at=chunk.read_at,
            written_at=chunk.written_at,
            boot_seconds=record.mono if chunk.source == "kernel" else None,
            seq=record.seq,
            text=record.text[:MAX_TEXT],
            captures=captures,
            rank=rank,
            raised_by=self.fast_path.run.by,
            job=chunk.job,
            shares_node=chunk.shares_node,
            uid=chunk.uid,
            untimed=self.stamps.note_match(part.line.stop, time, time_source),
            claimed_time=None if time_source in STAMPED else record.time,
            grave=chunk.source == "kernel" and self.tools.catalogue.is_critical_line(signature, captures),
            context=self.context,
        )

    def _count(self, offset: int, event: str, *, once: bool) -> None:
        if once or (offset, event) not in self.shown:
            self.counts[event] += 1
        if not once:
            self.shown.add((offset, event))

    def _note_facts(self, match: RuleMatch, text: str) -> None:
        changed = {
            name: value[:MAX_FACT_CHARS]
            for name, value in facts_of(match, text).items()
            if self.context.facts.get(name) != value
            and (name in self.context.facts or len(self.context.facts) < MAX_FACTS)
        }
        if changed:
            self.context = replace(self.context, facts={**self.context.facts, **changed})

    def _is_trusted(self, record: Record) -> bool:
        """Only the kernel's own lines are kernel evidence: facility 0 in kmsg form, no other syslog tag in text form."""
        if self.chunk.source != "kernel":
            return True
        return record.kernel if self.chunk.format == "kmsg" else not record.by_others

    def _offset_of(self, start: int) -> int:
        return self.part_offset if start == 0 else self.chunk.offset + start

    def _line_at(self, at: int) -> int:
        """The number of the line that chunk[at] is in."""
        before, numbers = self.newlines_before(at), self.chunk.numbers
        return self.chunk.line + before if numbers is None else numbers[before]

    def newlines_before(self, at: int) -> int:
        """The newlines of chunk[:at]. To be asked for ever later places: each is counted once."""
        self._newlines += newlines(self.chunk.data, self._counted_to, at)
        self._counted_to = at
        return self._newlines
