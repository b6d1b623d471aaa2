"""When the main loop reads, sleeps and commits.

Sources whose records may be overwritten, such as the kernel's ring buffer, come first and again between the others. A
round has a time limit, so that a flood does not delay SIGTERM, systemd's watchdog or a commit.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from exporter.core.model import Chunk
from exporter.process.main_loop import Waker
from exporter.sources.base import Source

KERNEL_SECONDS = (
    0.05  # between two reads of the kernel's log: at 19,000 records a second it overwrites 256 KiB in 0.1 s
)
KERNEL_POLLS = 8  # of 1 MiB at most, then job logs have a turn
LARGE_CHUNK_BYTES = 1 << 19  # of one log in a round, half of what is read at a time: there is more of it
ROUND_BYTES = 4 << 20  # of all logs: as much as a source hands out in a poll
ROUND_SECONDS = 1.0  # then a source's rest waits for the next round: 4 MiB of nothing but crashes would take 6 s
NEWS_SECONDS = 0.1  # between two wake-ups by files: each costs as much as to read 0.3 MB, however little was written
INTERVAL_SECONDS = 0.25  # between two commits while matches keep coming: a commit costs as much as to read 1 MB
BURST_SECONDS = 0.75  # after as long a rest three commits follow each other at once: most crashes are a few lines


class PollScheduler:
    """Polls sources in rounds.

    consume: processes a chunk; True if some of it was consumed. failed: gets what a source raised. between: called after
    each chunk.
    """

    def __init__(
        self,
        consume: Callable[[Source, Chunk], bool],
        failed: Callable[[Source, Exception], None],
        between: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._consume = consume
        self._failed = failed
        self._between = between
        self._clock = clock
        self._priority_read_at = 0.0  # at the kernel's log
        self._bytes = 0
        self.has_more = False  # after the last round: there is probably more to read

    def read(self, sources: Sequence[Source]) -> bool:
        """Run one round. True if something was read."""
        began = time.monotonic()
        self._bytes, self.has_more = 0, False
        first = [source for source in sources if source.overwritten]
        busy = self._read_first(first)
        for source in sources:
            if source.overwritten:
                continue
            for chunk in self._poll(source):
                if chunk is None:
                    busy |= self._read_first(first)
                    self._between()
                    continue
                busy |= self._consume(source, chunk)
                self._bytes += len(chunk.data)
                is_large = len(chunk.data) >= LARGE_CHUNK_BYTES or self._bytes >= ROUND_BYTES
                # Sources that bring descriptors hand out bounded batches of what may be a long journal.
                self.has_more = self.has_more or is_large or source.fileno() is not None
                if time.monotonic() - self._priority_read_at >= KERNEL_SECONDS:
                    busy |= self._read_first(first)
                self._between()
                if time.monotonic() - began >= ROUND_SECONDS:
                    break
        return busy

    def _read_first(self, sources: Sequence[Source]) -> bool:
        """Read the sources whose records may be overwritten until they are empty. True if something was read."""
        busy = False
        for source in sources:
            for _ in range(KERNEL_POLLS):
                consumed = [self._consume(source, chunk) for chunk in self._poll(source) if chunk is not None]
                if not any(consumed):
                    break
                busy = True
            else:
                source.stats.defer("jobs")
        self._priority_read_at = time.monotonic()
        return busy

    def _poll(self, source: Source) -> Iterator[Chunk | None]:
        try:
            yield from source.poll(self._clock())
        except Exception as error:
            self._failed(source, error)


class Sleep:
    """waker: for signals and requests. news: for files. The first record that may be overwritten wakes at once."""

    def __init__(self) -> None:
        self.waker = Waker()
        self.news = Waker()
        self._woken = self._ended = time.monotonic()

    def until_news(self, sources: Sequence[Source], seconds: float) -> None:
        """Sleep until there is something to read, at most `seconds`; then continue as `pause` does."""
        until = time.monotonic() + seconds
        if not self.waker.wait([self.news.fileno(), *_descriptors(sources)], seconds):
            self.pause(sources, until - time.monotonic())

    def pause(self, sources: Sequence[Source], seconds: float) -> None:
        """Sleep until NEWS_SECONDS after the last news of files, at most `seconds`; further news does not end it.

        Records that may be overwritten end it, KERNEL_SECONDS after the pause before: those of a flood are read together.
        """
        until = time.monotonic() + seconds
        urgent = _descriptors([source for source in sources if source.overwritten])
        rest = self._ended + KERNEL_SECONDS - time.monotonic() if urgent else 0.0
        if not self.waker.wait((), min(seconds, rest)):
            self.waker.wait(urgent, min(until, self._woken + NEWS_SECONDS) - time.monotonic())
        self._ended = time.monotonic()
        if self.news.clear():
            self._woken = self._ended


def _descriptors(sources: Sequence[Source]) -> list[int]:
    return [fd for source in sources if (fd := source.fileno()) is not None]


class CommitPace:
    """Limits commits of matches to four a second, and a short burst after an idle time. Times are Unix seconds."""

    def __init__(self) -> None:
        self._used_to = -math.inf  # each commit uses an interval

    def seconds_left(self, now: float) -> float:
        """Seconds until the next commit is allowed; 0 or less: now."""
        return self._used_to - BURST_SECONDS - now

    def committed(self, now: float) -> None:
        """Record a commit. If the clock is set back, the next commit waits no longer than after a full burst."""
        self._used_to = min(max(now, self._used_to), now + BURST_SECONDS) + INTERVAL_SECONDS
