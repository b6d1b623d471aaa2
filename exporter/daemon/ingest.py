"""From sources to matches: reads new lines of all sources and matches them. Knows nothing of incidents and of the state."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from exporter.core.catalogue.loader import Catalogue
from exporter.core.decoding.job_files import NodeJob
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.quarantine import Quarantined
from exporter.core.model import Chunk, Match
from exporter.daemon import handover, source_factory
from exporter.daemon.handover import Keeper, Row, Stored
from exporter.daemon.pacing import PollScheduler, Sleep
from exporter.metrics.counters import Counters
from exporter.node.silent_jobs import SilentJobs
from exporter.sources.base import Source, SourceStats
from exporter.sources.calls import Lanes
from exporter.sources.node_jobs import NodeJobs
from exporter.sources.reader_thread import ReaderThread, ThreadedSource

if TYPE_CHECKING:
    from exporter.config.node import Config


class Ingest:
    """The sources and the pipeline that matches their lines. Call `use` before anything else.

    on_matches: gets the matches of each chunk. between: called after each chunk of a round.
    """

    sources: Sequence[Source]
    pipeline: Pipeline
    node_jobs: NodeJobs

    def __init__(
        self,
        counters: Counters,
        warn: Callable[[str], None],
        clock: Callable[[], float],
        *,
        on_matches: Callable[[Sequence[Match]], None],
        between: Callable[[], None],
    ) -> None:
        self.lanes = Lanes()
        self.source_errors: dict[str, int] = {}
        self.has_read_all = False  # whether every source has been read since `use`
        self._counters = counters
        self._warn = warn
        self._clock = clock
        self._on_matches = on_matches
        self._sleep = Sleep()
        self.waker = self._sleep.waker
        self._rounds = PollScheduler(self._consume, self._failed, between, clock)
        self._stats: dict[str, SourceStats] = {}  # of all sources so far: a reload does not start them at zero

    def use(
        self, config: Config, catalogue: Catalogue, stored: Stored, *, node: str, first_start: bool
    ) -> Sequence[Row]:
        """Build the sources and the pipeline; a source continues where the previous one of its name stopped.

        Returns the rows of logs that moved from one source to another, to store with the next commit.
        """
        moved = source_factory.moved(config, stored)
        stored = handover.changed(stored, moved)
        self.pipeline = Pipeline(
            catalogue,
            engine=config.signatures.engine,
            utc_offset=time.localtime().tm_gmtoff,
            line_bytes=config.limits.line_bytes,
            window=config.incidents.window,
            clock=time.thread_time,  # CPU time: a log is not to blame for a busy machine
        )
        self.pipeline.restore(stored.get("logs", {}))
        self.node_jobs = NodeJobs()
        self._silent_after = config.incidents.silent_after
        self._silent_jobs = SilentJobs(self._clock())
        self._thread = ReaderThread(self.lanes, self._sleep.news.wake)
        self.sources = source_factory.build(
            config,
            stored,
            node=node,
            first_start=first_start,
            warn=self._warn,
            wake=self._sleep.news.wake,
            node_jobs=self.node_jobs,
            thread=self._thread,
        )
        for source in self.sources:
            source.stats = self._stats.get(source.name, source.stats)
        return moved

    def read(self) -> bool:
        """One round over all sources. True if something was read."""
        busy = self._rounds.read(self.sources)
        self.has_read_all = True
        return busy

    @property
    def is_reading(self) -> bool:
        """Whether a round waits for a file system, so that nobody can say what is left to read."""
        return not self._thread.is_free

    def wait(self, seconds: float, *, busy: bool = False) -> None:
        """Sleep until there is something to read, at most `seconds`. busy: the last round read something."""
        with self._thread.running():
            if not busy:
                self._sleep.until_news(self.sources, seconds)
            elif not self._rounds.has_more:
                self._sleep.pause(self.sources, seconds)

    def matches_of_silence(self, now: float, gpu_jobs: Collection[str], ended: Iterable[NodeJob]) -> list[Match]:
        """Crashes that logs show by their end or silence, and jobs that use a GPU and print nothing."""
        silent = self._silent_jobs.poll(now, self._silent_after, gpu_jobs, self.node_jobs.last_writes)
        names = {name for job in ended for name in job.names}
        matches = [*self.pipeline.ended(names, now), *self.pipeline.silent(now), *silent]
        self._counters.count_matches(matches)
        return matches

    def prepare_commit(self) -> None:
        """Count what the sources lost, and forget the logs that they no longer have."""
        for source in self.sources:
            self._counters.count_losses(source.name, source.stats)
            for key, value in source.unsaved().items():
                if value is None:
                    self.pipeline.forget(key)

    def keepers(self) -> dict[str, Keeper]:
        """The parts with rows in the state file, by the name of their key space."""
        of_sources: dict[str, Keeper] = {handover.space_of(source.name): source for source in self.sources}
        return {**of_sources, "logs": self.pipeline}

    def blind(self) -> list[str]:
        """Why logs are not read: one reason for each source, or the initial scan."""
        if not self.has_read_all:
            return ["initial scan of the sources in progress"]
        return [f"source {s.name}: {s.stats.blind}" for s in self.sources if s.stats.blind]

    def impaired(self, quarantined: Iterable[Quarantined]) -> list[str]:
        """What is not read or matched because of one log, or one of several paths."""
        sources = [
            f"source {s.name}: {s.stats.down_reason}" for s in self.sources if s.stats.up and s.stats.down_reason
        ]
        return sources + [signature.unnamed for signature in quarantined]

    def quarantined(self) -> tuple[Quarantined, ...]:
        """The signatures that are switched off because they were too slow."""
        return self.pipeline.matcher.quarantine.at(self._clock())

    def timeouts(self) -> Mapping[str, int]:
        """How often each signature was too slow."""
        return self.pipeline.matcher.quarantine.timeouts

    def close(self) -> None:
        """Close the sources before `use` builds others."""
        self.has_read_all = False
        self._stats |= {source.name: source.stats for source in self.sources}
        self._close_sources()

    def end(self) -> None:
        self._close_sources()
        self.lanes.close()

    def _close_sources(self) -> None:
        """Close the sources. A source that does not answer is left alone."""
        for source in self.sources:
            source.close()
        self._thread.end([source.source.close for source in self.sources if isinstance(source, ThreadedSource)])

    def _consume(self, source: Source, chunk: Chunk) -> bool:
        """Process a chunk. True if some of it was consumed."""
        done = self.pipeline.process(chunk)
        source.advance(chunk.log, done.consumed, done.newlines)
        self._counters.count_chunk(done, chunk.source)
        for signature in done.quarantined:
            self._warn(str(signature))
        self._on_matches(done.matches)
        return done.consumed > 0

    def _failed(self, source: Source, error: Exception) -> None:
        self.source_errors[source.name] = self.source_errors.get(source.name, 0) + 1
        self._warn(f"source {source.name} failed: {error!r}; please report it")
