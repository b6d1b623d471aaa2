"""Chunks in, matches out: the one way that bytes take, in the daemon and in `scan` alike.

Looks only at lines that a gate occurs in. Keeps, for each log, what its lines so far told about the job (`LogContext`)
and which signatures its still open last line has already shown, so that a line is counted once however it arrives.
Knows no files, no clocks and no incidents.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Literal

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.lines import candidates
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import Heads, dated_in
from exporter.core.matching.chunk_matcher import CUT, ECHO, NO_LINES, UNMATCHED, ChunkMatcher, LinesBefore
from exporter.core.matching.evaluators import Evaluators
from exporter.core.matching.flood import NO_RUNS
from exporter.core.matching.log_end import SILENT_SECONDS, LogEnd
from exporter.core.matching.log_state import LogState, OpenLine, dump_log_state, load_log_state
from exporter.core.matching.quarantine import Quarantined
from exporter.core.matching.rules import Matcher
from exporter.core.model import (
    Chunk,
    Job,
    LogContext,
    LogFormat,
    Match,
    SourceKind,
)
from exporter.core.patterns.prefilter import Databases, Engine, HyperscanEngine, build, key_of
from exporter.core.patterns.required_literals import Gate
from exporter.core.values import dataclass, replace

CHUNK_SECONDS = 0.25  # of work on a chunk: then the kernel's log, a commit and other logs have their turn
LAST_LINES_SECONDS = 3.0  # without a new line: a log whose container was started again is read to its end
MAX_CONTAINERS = 4096  # whose restarts are remembered; a node has some hundred
_OVERLAP = 4096  # bytes that two windows of an oversize line share: no signature's line is longer where it matters
_JOINERS = (Gate(b" stdout P"), Gate(b" stderr P"))  # a CRI line that goes on in the next one
# In no text. With up to 800 literals, all longer than three bytes, Hyperscan looks at every fourth byte only, and has to
# look closer so often that English text takes three times as long.
_PACER = Gate(b"\x01\x02\x03")


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
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`window`: the silence in seconds that ends an episode, where matches may be folded in a flood. `clock` gives
        seconds, from anywhere: with one, a chunk of a job's log is done with in parts, and lines that cost too much stop
        only their own log.
        """
        self.window = window
        self.catalogue = catalogue
        self.clock = clock
        self.matcher = Matcher(catalogue, clock)
        self.evaluators = Evaluators(self.matcher)
        self._choice = engine
        self._engines: dict[SourceKind, Engine] = {}
        self._stamps_of: dict[LogFormat, Heads] = {}
        self._utc_offset = utc_offset
        self._line_bytes = line_bytes
        self._overlap = min(_OVERLAP, line_bytes // 2)
        self._logs: dict[str, LogState] = {}
        self._dated: dict[str, tuple[int, float | None]] = {}  # by log: as of which chunk; not stored
        self._before: dict[str, LinesBefore] = {}  # not stored: a restart costs some lines their time
        self._suspects: set[str] = set()  # logs whose last lines look like a crash
        self._containers: dict[tuple[str | None, ...], int] = {}  # started again, and how often; not stored
        self._crashed: dict[str, str] = {}  # logs in which a signature named a crash, by origin; not stored
        self._changed: set[str] = set()

    def process(self, chunk: Chunk, until: int | None = None) -> Processed:
        """Match one chunk, or only its lines before `until`. What is not consumed must be offered again, with what follows."""
        state = self._logs.get(chunk.log, LogState())
        self.matcher.quarantine.begin(chunk.log, chunk.path, chunk.read_at)
        if chunk.job and chunk.job.restart:
            self._note_restart(chunk.job)
        data = chunk.data
        complete = data.rfind(b"\n") + 1
        full = len(data) >= self._line_bytes  # no source holds back more: to wait for more would be to wait for ever
        oversize = full and not complete and chunk.end != "quiet"
        limit = complete if chunk.end == "more" and not oversize else len(data)
        limit = limit if until is None else min(limit, until)
        clock = Clock(chunk.latest, self._utc_offset, chunk.boot_time, lambda: self._dated_in(chunk))
        work = ChunkMatcher(self, chunk, clock, state, self._before.get(chunk.log, NO_LINES))
        consumed = min(complete, limit) if chunk.end == "quiet" else limit
        began, is_partly_done = self.clock(), False
        for candidate in candidates(data, self.engine_for(chunk.source).scan(data), limit):
            if candidate.start and chunk.source == "job" and self.clock() - began > CHUNK_SECONDS:
                consumed, is_partly_done = candidate.start, True
                break
            may_wait = chunk.end == "more" and not (full and candidate.start == 0)
            if not work.match_line(candidate, may_wait=may_wait):
                consumed = candidate.start
                break
        if oversize and chunk.end == "more" and not is_partly_done:
            consumed = len(data) - self._overlap
        work.read_to(consumed, is_all=chunk.end == "final" and consumed == len(data))
        self._keep(chunk, work, consumed)
        return Processed(
            consumed=consumed,
            newlines=work.newlines_before(consumed),
            matches=tuple(work.matches),
            unmatched=work.counts[UNMATCHED],
            echoes=work.counts[ECHO],
            oversize=int(oversize) + work.counts[CUT],
            quarantined=self.matcher.quarantine.begun(),
        )

    def _dated_in(self, chunk: Chunk) -> float | None:
        """A time with a year in a chunk of a job's log, else in one before it."""
        if chunk.source != "job" or chunk.format != "plain":
            return None
        if self._dated.get(chunk.log, (-1, None))[0] != chunk.offset:
            dated = dated_in(chunk.data, Clock(chunk.latest, self._utc_offset))
            before = self._dated.get(chunk.log, (-1, None))[1]
            self._dated[chunk.log] = (chunk.offset, before if dated is None else dated)
        return self._dated[chunk.log][1]

    @property
    def engine(self) -> Engine:
        """The engine in use, for its name and version; each kind of log has one of its own."""
        return self.engine_for("job")

    def engine_for(self, source: SourceKind) -> Engine:
        """The engine that looks for the gates of one kind of log, built when such a log is first read."""
        if source not in self._engines:
            self._engines[source] = build(self._literals(source), self._choice, self.catalogue.databases)
        return self._engines[source]

    def databases(self) -> Databases:
        """What engines with these gates need not build; none where Hyperscan is missing."""
        built = {key_of(self._literals(source)): self.engine_for(source) for source in self.matcher.gates}
        return {key: engine.serialized() for key, engine in built.items() if isinstance(engine, HyperscanEngine)}

    def _literals(self, source: SourceKind) -> list[Gate]:
        return [*self.matcher.gates[source], *_JOINERS, _PACER]

    def stamps_of(self, format: LogFormat) -> Heads:  # noqa: A002 (the field's word)
        """Where timestamps are in job lines of a format."""
        if format not in self._stamps_of:
            self._stamps_of[format] = Heads(format)
        return self._stamps_of[format]

    def context_of(self, log: str) -> LogContext:
        """What a log has told about its job so far."""
        return self._logs.get(log, LogState()).context

    def silent(self, now: float) -> list[Match]:
        """The crashes that logs ended in which have been silent for long; each is told once."""
        return self._ended([log for log in self._suspects if abs(now - self._logs[log].end.read_at) >= SILENT_SECONDS])

    def ended(self, jobs: Container[str], now: float) -> list[Match]:
        """The crashes that logs ended in: of jobs that the scheduler says are over, of containers that were started again."""
        suspects = ((log, self._logs[log].end.suspect) for log in sorted(self._suspects))
        jobs_of = ((log, suspect.job) for log, suspect in suspects if suspect and suspect.job)
        return self._ended([log for log, job in jobs_of if job.id in jobs or self._is_of_run_before(log, job, now)])

    def _note_restart(self, job: Job) -> None:
        """The kubelet gives each run of a container a log of its own, with the number of its restarts as the name."""
        container = _container(job)
        self._containers[container] = max(self._containers.pop(container, 0), int(job.restart or 0))
        while len(self._containers) > MAX_CONTAINERS:
            del self._containers[next(iter(self._containers))]

    def _is_of_run_before(self, log: str, job: Job, now: float) -> bool:
        """Whether a log is of a run before the container's latest, and has been read to its end, as far as it seems."""
        was_restarted = job.restart is not None and int(job.restart) < self._containers.get(_container(job), 0)
        return was_restarted and abs(now - self._logs[log].end.read_at) >= LAST_LINES_SECONDS

    def went_on(self, match: Match) -> bool:
        """Whether the program that wrote a line went on after the last crash that a signature named in its log."""
        end = self.end_of(self._crashed.get(match.origin, ""))
        return end.went_on and end.run_name == match.raised_by

    def _ended(self, logs: Iterable[str]) -> list[Match]:
        crashes = []
        for log in logs:
            end, crash = self._logs[log].end.ended()
            self._put(log, replace(self._logs[log], end=end))
            if crash:
                crashes.append(crash)
        return crashes

    def end_of(self, log: str) -> LogEnd:
        """What the last lines of a log say about its end."""
        return self._logs.get(log, LogState()).end

    def begin_part(self, log: str, context: LogContext) -> None:
        """A part of a log begins here, behind `context`: of the lines before it only their end and their process matter."""
        state = self._logs.get(log, LogState())
        self.restore({log: dump_log_state(replace(state, context=context, open_line=None))})

    def restore(self, stored: Mapping[str, str]) -> None:
        """Take up the state of logs where an earlier process left it (what `unsaved` gave)."""
        for log, text in stored.items():
            if log in self._before:  # what its lines before showed is not known to be kept
                self._before[log] = self._before[log]._replace(runs=NO_RUNS)
            try:
                self._logs[log] = load_log_state(text)
                self._note_suspect(log)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                self._changed.add(log)  # no form of ours: the log goes on without what had been seen in it

    def unsaved(self) -> dict[str, str | None]:
        """The state of each log that changed since `saved`: JSON, or None once it is forgotten."""
        return {log: dump_log_state(self._logs[log]) if log in self._logs else None for log in self._changed}

    def saved(self) -> None:
        self._changed.clear()

    def forget(self, log: str) -> None:
        """Forget a log that will not return."""
        self._before.pop(log, None)
        self._dated.pop(log, None)
        self._suspects.discard(log)
        self.matcher.quarantine.forget(log)
        self._crashed = {origin: crashed for origin, crashed in self._crashed.items() if crashed != log}
        if self._logs.pop(log, None) is not None:
            self._changed.add(log)

    def _keep(self, chunk: Chunk, work: ChunkMatcher, consumed: int) -> None:
        data, done_to = chunk.data, chunk.offset + consumed
        part = max(data.rfind(b"\n", 0, consumed), data.rfind(b"\r", 0, consumed)) + 1
        open_from = chunk.offset + part if part else work.part_offset
        shown = frozenset(s for s in work.shown if s[0] >= open_from)
        is_open = (chunk.end != "final" or consumed < len(data)) and (open_from < done_to or bool(shown))
        self._put(
            chunk.log,
            LogState(work.context, OpenLine(open_from, shown) if is_open else None, work.end, work.raising.reports),
        )
        if chunk.end != "final" or consumed < len(data):
            self._before[chunk.log] = work.lines_before(consumed)
        if work.end.named is not None:
            self._crashed[chunk.origin] = chunk.log

    def _put(self, log: str, state: LogState) -> None:
        if state != self._logs.get(log, LogState()):
            self._logs[log] = state
            self._changed.add(log)
            self._note_suspect(log)

    def _note_suspect(self, log: str) -> None:
        (self._suspects.add if self._logs[log].end.suspect else self._suspects.discard)(log)


def _container(job: Job) -> tuple[str | None, ...]:
    """What tells a container from others; the owner is the folder, so that no other folder speaks of it."""
    return job.owner, job.pod_uid, job.container
