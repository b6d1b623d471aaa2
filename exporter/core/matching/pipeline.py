"""Chunks in, matches out: the one way that bytes take, in the daemon and in `scan` alike.

Looks only at lines that a gate occurs in. Keeps, for each log, what its lines so far told about the job (`LogContext`)
and which signatures its still open last line has already shown, so that a line is counted once however it arrives.
Knows no files, no clocks and no incidents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding import formats
from exporter.core.decoding.lines import Candidate, candidates, following, newlines, pieces
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import LOOK_BACK, Timestamps
from exporter.core.matching.flood import Flood
from exporter.core.matching.flood_fast_path import FloodFastPath, KnownShapes
from exporter.core.matching.log_state import LogState, OpenLine, dump_log_state, load_log_state
from exporter.core.matching.quarantine import Quarantined
from exporter.core.matching.rules import MAX_BEHIND, MAX_TEXT, Found, Matcher, facts_of, gpu_of
from exporter.core.matching.verdict_cache import Evaluator, Evaluators
from exporter.core.model import Chunk, ContextLine, LogContext, LogFormat, Match, Record, SourceKind
from exporter.core.patterns.prefilter import Engine, build
from exporter.core.patterns.required_literals import Gate

MAX_FACTS = 128  # facts kept a log: three times what the chattiest (collect_env and a Slurm prolog together) tells
MAX_FACT_CHARS = 256
MAX_MARK_CHARS = 1024
MAX_MARKS = 32  # context signatures are fewer
MAX_JOINED = 1 << 20  # bytes of a line that a carrier split up
MAX_BETWEEN = 16  # lines of the other stream between two parts of one write; behind more, it is an unfinished line
CHUNK_SECONDS = 0.25  # of work on a chunk: then the kernel's log, a commit and other logs have their turn
LINE_SECONDS = 1.0  # of work on one line: the rest of a line that costs more is skipped
_OVERLAP = 4096  # bytes that two windows of an oversize line share: no signature's line is longer where it matters
# What a line may have shown besides signatures, whose ids have no brackets: that it was joined to an earlier one, that
# it quotes an error, that it looks like a crash.
_JOINED, _ECHO, _UNMATCHED, _CUT = "(joined)", "(echo)", "(unmatched)", "(cut)"
_JOINERS = (Gate(b" stdout P"), Gate(b" stderr P"))  # a CRI line that goes on in the next one


@dataclass(frozen=True, slots=True)
class Processed:
    """What came of one chunk. The first `consumed` bytes, with `newlines` newlines, are done with."""

    consumed: int
    newlines: int
    matches: tuple[Match, ...] = ()
    unmatched: int = 0  # lines that look like a crash and match nothing
    echoes: int = 0  # lines that only quoted an error
    oversize: int = 0  # windows of lines longer than the limit
    quarantined: tuple[Quarantined, ...] = ()  # rules that ran out of time on this log again and again, as of now


class _LinesToCome(Exception):
    """A match depends on lines that have not been written yet."""


class Pipeline:
    """One matcher, one engine, and the state of every log that has any. Not for two threads at once."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        engine: Literal["auto", "hyperscan", "python"] = "auto",
        utc_offset: float = 0.0,
        line_bytes: int = 1 << 20,
        window: float | None = None,
        look_back: int = LOOK_BACK,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`window`: the silence in seconds that ends an episode, where matches may be folded in a flood. `look_back`: how
        many lines before one without a stamp may tell its time. `clock` tells seconds, from anywhere: with one, a chunk of a
        job's log is done with in parts, and lines that cost too much stop only their own log.
        """
        self.window = window
        self.look_back = look_back
        self.catalogue = catalogue
        self.clock = clock
        self.matcher = Matcher(catalogue, clock)
        self.evaluators = Evaluators(self.matcher)
        self._choice = engine
        self._engines: dict[SourceKind, Engine] = {}
        self._shapes_of: dict[tuple[LogFormat, SourceKind], KnownShapes] = {}
        self._utc_offset = utc_offset
        self._line_bytes = line_bytes
        self._overlap = min(_OVERLAP, line_bytes // 2)
        self._logs: dict[str, LogState] = {}
        self._heads: dict[str, bytes] = {}  # not stored: a restart costs so many lines their stamp
        self._changed: set[str] = set()

    def process(self, chunk: Chunk, until: int | None = None) -> Processed:
        """Match one chunk, or only its lines before `until`. What is not consumed must be offered again, with what follows."""
        state = self._logs.get(chunk.log, LogState())
        self.matcher.quarantine.begin(chunk.log, chunk.path, chunk.read_at)
        data = chunk.data
        complete = data.rfind(b"\n") + 1
        full = len(data) >= self._line_bytes  # no source holds back more: to wait for more would be to wait for ever
        oversize = full and not complete and chunk.end != "quiet"
        limit = complete if chunk.end == "more" and not oversize else len(data)
        limit = limit if until is None else min(limit, until)
        clock = Clock(chunk.read_at, self._utc_offset, chunk.boot_time)
        work = _Work(self, chunk, clock, state, self._heads.get(chunk.log, b""))
        consumed = min(complete, limit) if chunk.end == "quiet" else limit
        began, is_partly_done = self.clock(), False
        for candidate in candidates(data, self.engine_for(chunk.source).scan(data), limit):
            if candidate.start and chunk.source == "job" and self.clock() - began > CHUNK_SECONDS:
                consumed, is_partly_done = candidate.start, True
                break
            may_wait = chunk.end == "more" and not (full and candidate.start == 0)
            if not work.look_at(candidate, may_wait=may_wait):
                consumed = candidate.start
                break
        if oversize and chunk.end == "more" and not is_partly_done:
            consumed = len(data) - self._overlap
        work.flood.end()
        self._keep(chunk, work, consumed)
        return Processed(
            consumed=consumed,
            newlines=work.newlines_before(consumed),
            matches=tuple(work.matches),
            unmatched=work.counts[_UNMATCHED],
            echoes=work.counts[_ECHO],
            oversize=int(oversize) + work.counts[_CUT],
            quarantined=self.matcher.quarantine.begun(),
        )

    @property
    def engine(self) -> Engine:
        """The engine in use, for its name and version; each kind of log has one of its own."""
        return self.engine_for("job")

    def engine_for(self, source: SourceKind) -> Engine:
        """The engine that looks for the gates of one kind of log, built when such a log is first read."""
        if source not in self._engines:
            self._engines[source] = build([*self.matcher.gates[source], *_JOINERS], self._choice)
        return self._engines[source]

    def known_shapes(self, format: LogFormat, source: SourceKind) -> KnownShapes:  # noqa: A002 (the field's word)
        """How lines of that kind are counted in a flood, and where their prefixes lie."""
        if (format, source) not in self._shapes_of:
            self._shapes_of[format, source] = KnownShapes(self.evaluators, format, source)
        return self._shapes_of[format, source]

    def context_of(self, log: str) -> LogContext:
        """What a log has told about its job so far."""
        return self._logs.get(log, LogState()).context

    def restore(self, stored: Mapping[str, str]) -> None:
        """Take up the state of logs where an earlier process left it (what `unsaved` gave)."""
        for log, text in stored.items():
            try:
                self._logs[log] = load_log_state(text)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                self._changed.add(log)  # no form of ours: the log goes on without what had been seen in it

    def unsaved(self) -> dict[str, str | None]:
        """The state of each log that changed since `saved`: JSON, or None once it is forgotten."""
        return {log: dump_log_state(self._logs[log]) if log in self._logs else None for log in self._changed}

    def saved(self) -> None:
        self._changed.clear()

    def forget(self, log: str) -> None:
        """Forget a log that will not return."""
        self._heads.pop(log, None)
        self.matcher.quarantine.forget(log)
        if self._logs.pop(log, None) is not None:
            self._changed.add(log)

    def _keep(self, chunk: Chunk, work: _Work, consumed: int) -> None:
        data, done_to = chunk.data, chunk.offset + consumed
        part = max(data.rfind(b"\n", 0, consumed), data.rfind(b"\r", 0, consumed)) + 1
        open_from = chunk.offset + part if part else work.part_offset
        shown = frozenset(s for s in work.shown if s[0] >= open_from)
        is_open = (chunk.end != "final" or consumed < len(data)) and (open_from < done_to or bool(shown))
        state = LogState(work.context, OpenLine(open_from, shown) if is_open else None)
        if state != self._logs.get(chunk.log, LogState()):
            self._logs[chunk.log] = state
            self._changed.add(chunk.log)
        self._heads[chunk.log] = work.stamps.heads_before(consumed)


class _Work:
    """The work on one chunk."""

    def __init__(self, pipeline: Pipeline, chunk: Chunk, clock: Clock, state: LogState, heads: bytes) -> None:
        self.pipeline = pipeline
        self.chunk = chunk
        self.clock = clock
        self.context = state.context
        self.matches: list[Match] = []
        self.flood = Flood(self.matches, pipeline.window, pipeline.catalogue.mixed_severity)
        self.counts: Counter[str] = Counter()
        self.shown: set[tuple[int, str]] = set()
        self.part_offset = chunk.offset
        if state.open_line and chunk.offset >= state.open_line.offset:
            self.part_offset = state.open_line.offset
            self.shown = set(state.open_line.shown)
        known = pipeline.known_shapes(chunk.format, chunk.source)
        self.stamps = Timestamps(chunk, clock, heads, known.layouts, pipeline.look_back)
        self.fast_path = FloodFastPath(chunk, clock, known, self.stamps, self.flood)
        self._newlines = self._counted_to = 0
        self._last_newline = chunk.data.rfind(b"\n")

    def look_at(self, candidate: Candidate, *, may_wait: bool) -> bool:
        """Match one line; False if it has to wait for the lines behind it."""
        is_joined = self.shown and (self._offset_of(candidate.start), _JOINED) in self.shown
        return is_joined or self.fast_path.takes(candidate) or self._matches(candidate, may_wait=may_wait)

    def _matches(self, candidate: Candidate, *, may_wait: bool) -> bool:
        chunk = self.chunk
        block, line, line_stop, time = chunk.data, candidate, candidate.stop, None
        carried = chunk.format in formats.CONTAINER_FORMATS
        if carried:
            joined = self._joined(candidate, may_wait=may_wait)
            if joined is None:
                return False
            text, time, line_stop = joined
            block = text.encode("utf-8", "replace")
            # The gates of a line that nothing was joined to, and that is looked at as a whole, are those found.
            ends, gates = candidate.ends, candidate.gates
            if line_stop > candidate.stop or len(block) > MAX_TEXT or b"\r" in block:
                ends, gates = self.pipeline.engine_for(chunk.source).scan(block)
            line = Candidate(0, len(block), ends, gates)
        gates = line.gates
        evaluator = self.pipeline.evaluators.under(gates, chunk.source)
        if not evaluator.lines:
            return True
        parts = pieces(block, line, MAX_TEXT)
        once = candidate.start > 0 and line_stop <= self._last_newline and len(parts) == 1

        def behind() -> list[str]:
            return self._texts(line_stop, evaluator.lines - 1, may_wait=may_wait)

        began = self.pipeline.clock()
        for number, (part, start, stop) in enumerate(parts):
            if number and self.pipeline.clock() - began > LINE_SECONDS:
                self._count(self._offset_of(candidate.start), _CUT, once=once)
                break
            if carried:
                text = block[start:stop].decode("utf-8", "backslashreplace")
                part, record = candidate.start, formats.decode_job_text(text, time, self.clock)
            else:
                record = self._record(start, stop)
                if start == candidate.start:
                    self.stamps.note(start, record.time, record.mono)
            try:
                self._match(candidate, self._offset_of(part), record, evaluator, gates, behind, once=once)
            except _LinesToCome:
                return False
        return True

    def _texts(self, stop: int, count: int, *, may_wait: bool) -> list[str]:
        """The texts of the lines behind one. What users wrote there breaks off a block."""
        ranges, complete = following(self.chunk.data, stop, count)
        if may_wait and not complete:
            raise _LinesToCome
        records = [self._record(start, stop) for start, stop in ranges]
        return [record.text[:MAX_BEHIND] if self._is_trusted(record) else "" for record in records]

    def _record(self, start: int, stop: int) -> Record:
        raw = self.chunk.data[start : min(stop, start + MAX_TEXT)]
        return formats.decode(raw, self.chunk.format, self.chunk.source, self.clock)

    def _match(
        self,
        candidate: Candidate,
        offset: int,
        record: Record,
        evaluator: Evaluator,
        gates: Sequence[int],
        behind: Callable[[], Sequence[str]],
        *,
        once: bool,
    ) -> None:
        """Judge one text. `once`: no part of its line will be looked at again."""
        if not self._is_trusted(record):
            self._count(offset, _ECHO, once=once)
            evaluator = self.pipeline.evaluators.under(gates, self.chunk.source, trusted=False)
        text = record.text[:MAX_TEXT]  # an invalid UTF-8 byte becomes four characters
        shown = evaluator.shown(text, behind)
        if shown.echo:
            self._count(offset, _ECHO, once=once)
        if shown.unknown_crash:
            self._count(offset, _UNMATCHED, once=once)
        text = shown.block or text
        for one in shown.found:
            if one.rule.kind == "fact":
                self._learn(one, text)
        for one in shown.found:
            if one.rule.kind == "signature":
                self._show(candidate, offset, record, one, text, once=once)

    def _show(self, candidate: Candidate, offset: int, record: Record, found: Found, text: str, *, once: bool) -> None:
        chunk, signature = self.chunk, found.rule.id
        if not once:
            if (offset, signature) in self.shown:
                return
            self.shown.add((offset, signature))
        is_context = found.rule.is_context
        time, time_source = self.stamps.time_of(candidate.start, candidate.stop, record.time, record.mono)
        rank = record.rank or found.capture("rank", text) or None
        told_apart = gpu_of(found, text, record.device) if chunk.source == "kernel" else None
        if once and not is_context and self.flood.takes([(signature, told_apart, rank)], time):
            return
        line, captures = self._line_at(candidate.start), found.captures(text)
        marks = self.context.marks
        if is_context and (signature in marks or len(marks) < MAX_MARKS):
            mark = ContextLine(path=chunk.path, line=line, text=record.text[:MAX_MARK_CHARS], captures=captures)
            self.context = replace(self.context, marks={**marks, signature: mark})
        match = Match(
            signature=signature,
            source=chunk.source,
            origin=chunk.origin,
            path=chunk.path,
            line=line,
            offset=offset,
            time=time,
            time_source=time_source,
            read_at=chunk.read_at,
            written_at=chunk.written_at,
            boot_seconds=record.mono if chunk.source == "kernel" else None,
            seq=record.seq,
            text=record.text[:MAX_TEXT],
            captures=captures,
            gpu=told_apart or gpu_of(found, text, record.device),
            rank=rank,
            job=chunk.job,
            shares_node=chunk.shares_node,
            grave=chunk.source == "kernel" and self.pipeline.catalogue.is_critical_line(signature, captures),
            context=self.context,
        )
        self.flood.add(match, told_apart)

    def _count(self, offset: int, what: str, *, once: bool) -> None:
        if once or (offset, what) not in self.shown:
            self.counts[what] += 1
        if not once:
            self.shown.add((offset, what))

    def _learn(self, found: Found, text: str) -> None:
        news = {
            name: value[:MAX_FACT_CHARS]
            for name, value in facts_of(found, text).items()
            if self.context.facts.get(name) != value
            and (name in self.context.facts or len(self.context.facts) < MAX_FACTS)
        }
        if news:
            self.context = replace(self.context, facts={**self.context.facts, **news})

    def _joined(self, candidate: Candidate, *, may_wait: bool) -> tuple[str, float | None, int] | None:
        """The writer's whole line that begins in a carrier's line: text, time, where its last part stops in the chunk.

        None if its end is to come.
        """
        data, carrier = self.chunk.data, formats.CONTAINER_FORMATS[self.chunk.format]
        part = here = carrier(data[candidate.start : candidate.stop], self.clock)
        texts, size, at, stop, between, starts = [here.text], len(here.text), candidate.stop, candidate.stop, 0, []
        while part.continues and size < MAX_JOINED and between <= MAX_BETWEEN:
            ranges, complete = following(data, at, 1)
            if not complete:
                if may_wait:
                    return None
                break
            start, at = ranges[0]
            next_part = carrier(data[start:at], self.clock)
            between += 1
            if next_part.stream == here.stream:
                part, stop, between = next_part, at, 0
                texts.append(part.text)
                size += len(part.text)
                starts.append(start)
        self.shown.update((self._offset_of(start), _JOINED) for start in starts)
        return "".join(texts), here.time, stop

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
