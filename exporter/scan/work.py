"""The work of a worker: reads logs, or parts of large ones, and returns incidents.

Inputs and results are frozen values that can be pickled, and results depend on the inputs only: a worker may be this
process, another one, or one on another machine.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from io import FileIO
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

import exporter
from exporter.config.accounts import SERVICE_ACCOUNTS, uids_of
from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding import jobs
from exporter.core.matching.log_end import LogEnd
from exporter.core.matching.pipeline import Pipeline, Processed
from exporter.core.model import NO_CONTEXT, Chunk, Incident, Job, LogContext
from exporter.core.values import dataclass
from exporter.scan.plan import SAMPLE_BYTES, Task, Unread, Wanted, plan_from
from exporter.scan.reader import BLOCK_BYTES, head, keep_freed_blocks, open_log
from exporter.scan.spans import WHOLE, LogSpan
from exporter.scan.stop import Stop
from exporter.sources.holes import data_after

if TYPE_CHECKING:
    from exporter.core.diagnosis.open_incidents import OpenIncidents

WINDOW_SECONDS = 60.0

EngineChoice = Literal["auto", "hyperscan", "python"]
Log = Task | Wanted | Unread


class Item(NamedTuple):
    """One log or a part of one. bytes: its size on disk, 0 if unknown. context: that of the log before the part, if known."""

    log: Log
    span: LogSpan = WHOLE
    bytes: int = 0
    context: LogContext = NO_CONTEXT


class Survived(NamedTuple):
    """A run of a log's program that went on after its errors, to the end of the log; as in `Match.raised_by`."""

    path: str
    run: str | None


class Scanned(NamedTuple):
    """The result of one item. bytes, newlines: of its decompressed lines. context: what they say about the job."""

    path: str
    bytes: int = 0
    newlines: int = 0
    lines_matched: int = 0
    incidents: tuple[Incident, ...] = ()
    unmatched: int = 0
    context: LogContext = NO_CONTEXT
    unread: Unread | None = None
    stopped: bool = False  # by the user, before its end
    survived: Survived | None = None
    job: str | None = None  # the name of its job; None for a kernel log


class Done(NamedTuple):
    """The results of a batch, one for each item in order, and the seconds it took."""

    scanned: tuple[Scanned, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that results depend on, pickled once for many batches. now: used as the time of reading."""

    catalogue: bytes
    key: str  # of the catalogue
    engine: EngineChoice
    utc_offset: float
    now: float
    version: str = exporter.__version__
    name_host: bool = False  # say on which machine a log could not be read

    @classmethod
    def of(cls, catalogue: Catalogue, engine: EngineChoice, now: float, *, name_host: bool) -> Recipe:
        import hashlib  # these take 5 ms, and one process needs none of it
        import pickle

        packed = zlib.compress(pickle.dumps(catalogue), 1)
        return cls(
            packed, hashlib.sha256(packed).hexdigest(), engine, time.localtime().tm_gmtoff, now, name_host=name_host
        )


class OtherVersion(Exception):
    """A worker has another version of gpufault than the scan, so its results could differ."""


def read_batch(recipe: Recipe, items: Sequence[Item]) -> Done:
    """Read a batch in a process that knows nothing of the scan. Raises OtherVersion."""
    host = os.uname().nodename
    if exporter.__version__ != recipe.version:
        raise OtherVersion(
            f"{host} has gpufault {exporter.__version__}, and this is {recipe.version}; install the same on both"
        )
    done = _read(items, _pipeline_by(recipe), recipe.now)
    if not recipe.name_host:
        return done
    return done._replace(
        scanned=tuple(s._replace(unread=_on_host(s.unread, host)) if s.unread else s for s in done.scanned)
    )


def read_prepared(items: Sequence[Item]) -> Done:
    """Read a batch in a process that was prepared, or forked from one that was."""
    return _read(items, _of_thread.pipeline, _of_thread.now)


def _read(items: Sequence[Item], pipeline: Pipeline, now: float) -> Done:
    started = time.monotonic()
    return Done(tuple(scan_one(item, pipeline, now) for item in items), time.monotonic() - started)


class _OfThread(threading.local):
    """The pipeline of one thread, its time of reading, and its recipe: a Dask worker may have several threads."""

    pipeline: Pipeline
    now: float
    built: tuple[str, EngineChoice, float] | None = None


_of_thread = _OfThread()


def prepare(pipeline: Pipeline, now: float) -> None:
    """Keep what `read_prepared` reads with."""
    _of_thread.pipeline, _of_thread.now = pipeline, now


def prepare_by(recipe: Recipe) -> None:
    """Build what `read_prepared` reads with."""
    prepare(_pipeline_by(recipe), recipe.now)


def _pipeline_by(recipe: Recipe) -> Pipeline:
    wanted = (recipe.key, recipe.engine, recipe.utc_offset)
    if _of_thread.built != wanted:
        import pickle

        catalogue: Catalogue = pickle.loads(zlib.decompress(recipe.catalogue))  # noqa: S301 (from the scan that asks)
        _of_thread.pipeline = pipeline_of(catalogue, recipe.engine, recipe.utc_offset)
        _of_thread.built = wanted
    return _of_thread.pipeline


def pipeline_of(catalogue: Catalogue, engine: EngineChoice, utc_offset: float) -> Pipeline:
    keep_freed_blocks()
    return Pipeline(catalogue, engine=engine, utc_offset=utc_offset, window=WINDOW_SECONDS)


def _on_host(unread: Unread, host: str) -> Unread:
    return unread._replace(why=f"{unread.why} (on {host})")


def scan_one(
    item: Item,
    pipeline: Pipeline,
    now: float,
    progress: Callable[[str, int], None] = lambda _path, _bytes: None,
    stop: Stop | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Scanned:
    """Read one item, up to its end or until the user stops."""
    log = item.log
    if isinstance(log, Unread):
        return Scanned(log.path, unread=log)
    try:
        with open_log(log.path) as stream:
            task = plan_from(log.path, log.source, _first(log.path, stream)) if isinstance(log, Wanted) else log
            if isinstance(task, Unread):
                return Scanned(task.path, unread=task)
            return _scan(task, stream, item, pipeline, now, progress, stop or Stop(), block_bytes)
    except OSError as error:
        return Scanned(log.path, unread=Unread(log.path, error.strerror or str(error)))


def _first(path: str, stream: IO[bytes]) -> bytes:
    """The first bytes of a log that was just opened. A stream is opened a second time for them."""
    return os.pread(stream.fileno(), SAMPLE_BYTES, 0) if isinstance(stream, FileIO) else head(path, SAMPLE_BYTES)


def _scan(
    task: Task,
    stream: IO[bytes],
    item: Item,
    pipeline: Pipeline,
    now: float,
    progress: Callable[[str, int], None],
    stop: Stop,
    block_bytes: int,
) -> Scanned:
    reading = _Reading(task, stream, item, pipeline, now, block_bytes)
    unread, stopped = None, False
    try:
        reading.read(progress, stop)
    except OSError as error:
        unread = Unread(task.path, error.strerror or str(error))
    except KeyboardInterrupt:
        stopped = True
    context, end = pipeline.context_of(task.path), pipeline.end_of(task.path)
    pipeline.forget(task.path)
    pipeline.saved()  # nothing of it is: what has changed is not to pile up
    return reading.scanned(context, end, unread, stopped=stopped)


def _status_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # stdin, or gone
        return None


def _job_of(path: str, status: os.stat_result | None) -> Job | None:
    return jobs.with_owner(jobs.job_of(path), status.st_uid if status else None, _service_uids())


@cache
def _service_uids() -> frozenset[int]:
    return uids_of(SERVICE_ACCOUNTS)


class _Reading:
    """The state of reading one item."""

    def __init__(
        self, task: Task, stream: IO[bytes], item: Item, pipeline: Pipeline, now: float, block_bytes: int
    ) -> None:
        self._block_bytes = block_bytes
        self._task = task
        self._stream = stream
        self._is_plain = isinstance(stream, FileIO)  # neither an archive nor stdin
        status = os.fstat(stream.fileno()) if self._is_plain else _status_of(task.path)
        self._size = status.st_size if status and self._is_plain else 0
        self._span = item.span
        self._context = item.context
        self._pipeline = pipeline
        self._now = now
        self._written_at = status.st_mtime if status else None
        self._job = _job_of(task.path, status) if task.source == "job" else None
        self._open: OpenIncidents | None = None
        self._matched = self._unmatched = self._newlines = 0
        self._offset = self._span.read_from
        self._line = self._span.line - self._span.lines_before
        self._rest = b""

    def read(self, progress: Callable[[str, int], None], stop: Stop) -> None:
        """Raises OSError if the log cannot be read to its end, KeyboardInterrupt if the user stops the scan."""
        path, stream, last = self._task.path, self._stream, False
        if self._offset and not self._is_plain:
            stream.seek(self._offset)
        # Blocks end where they do when all of the log is read: what is cut off a line that fills several depends on it.
        size = self._block_bytes - self._offset % self._block_bytes
        while not last and ((span := self._span).stop is None or self._offset < span.stop):
            if stop.asked:
                raise KeyboardInterrupt
            self._skip_hole()
            damage, more = None, 0
            with nullcontext() if self._is_plain else stop.at_once():  # where it may take long
                try:
                    more = self._read_on(stream, size)
                except OSError as error:  # what was read before it counts, to the last byte
                    damage = error
            last, size = more <= 0 or (more < size and self._has_ended()), self._block_bytes
            if self._offset < span.start:
                self._take(span.start, last=last)
                if self._offset >= span.start:
                    self._begin()
            if self._offset >= span.start:
                self._add(self._take(span.stop, last=last))
                if more > 0:
                    progress(path, more)
            if damage:
                raise damage

    def _read_on(self, stream: IO[bytes], size: int) -> int:
        """Read `size` bytes after the unprocessed rest. Returns how many were read. Raises OSError.

        The rest of a plain log, part of a line, is read again: joining two blocks would cost more.
        """
        held = len(self._rest)
        if self._is_plain:
            self._rest = os.pread(stream.fileno(), held + size, self._offset)
        else:
            self._rest += getattr(stream, "read1", stream.read)(size)  # a pipe's bytes as they come
        return len(self._rest) - held

    def _skip_hole(self) -> None:
        """Go on at the block in which the next data of a sparse file lies, as the daemon does, from within a line of NULs."""
        at = self._offset + len(self._rest)
        if not self._is_plain or at + self._block_bytes > self._size or self._rest.strip(b"\0"):
            return
        data = data_after(self._stream.fileno(), at)
        block = (self._size if data is None else data) // self._block_bytes * self._block_bytes
        if block > at:
            self._offset, self._rest = min(block, self._span.stop or block), b""

    def _has_ended(self) -> bool:
        """Whether a plain log was read up to the size it had when opened. Files in /proc have no size."""
        return 0 < self._size <= self._offset + len(self._rest)

    def _take(self, stop: int | None, *, last: bool) -> Processed:
        """Pass what was read to the pipeline, up to an offset."""
        task = self._task
        chunk = Chunk(
            log=task.path,
            origin=task.path,
            path=task.path,
            source=task.source,
            format=task.format,
            offset=self._offset,
            line=self._line,
            data=self._rest,
            read_at=self._now,
            written_at=self._written_at,
            end="final" if last else "more",
            job=self._job,
        )
        done = self._pipeline.process(chunk, None if stop is None else stop - self._offset)
        self._offset += done.consumed
        self._line += done.newlines
        self._rest = self._rest[done.consumed :]
        return done

    def _begin(self) -> None:
        """Process the lines before a span: what matters are their times, whether they end a crash, and who raised them."""
        self._pipeline.begin_part(self._task.path, self._context)

    def _add(self, done: Processed) -> None:
        if done.matches:
            from exporter.core.diagnosis.incidents import condense  # most logs show nothing
            from exporter.core.diagnosis.open_incidents import OpenIncidents

            repeats = self._pipeline.catalogue.repeats
            self._open = self._open or OpenIncidents(WINDOW_SECONDS, repeats=repeats)
            for incident in condense(done.matches, WINDOW_SECONDS, repeats):
                self._open.join(incident)
        self._matched += sum(match.lines for match in done.matches)
        self._unmatched += done.unmatched
        self._newlines += done.newlines

    def scanned(self, context: LogContext, end: LogEnd, unread: Unread | None, *, stopped: bool) -> Scanned:
        is_end = self._span.stop is None and not stopped and unread is None
        return Scanned(
            path=self._task.path,
            bytes=max(0, self._offset - self._span.start),
            newlines=self._newlines,
            lines_matched=self._matched,
            incidents=tuple(entry.incident for entry in self._open or ()),
            unmatched=self._unmatched,
            context=context,
            unread=unread,
            stopped=stopped,
            survived=Survived(self._task.path, end.run_name) if is_end and end.went_on else None,
            job=jobs.log_group(self._job, self._task.path) if self._task.source == "job" else None,
        )
