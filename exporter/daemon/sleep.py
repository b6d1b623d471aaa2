"""The daemon's sleep between two rounds. It ends when there is something to read, with a limit on wake-ups by files."""

from __future__ import annotations

import time
from collections.abc import Sequence

from exporter.process.wake import Waker
from exporter.sources.base import Source

ROUND_SECONDS = 0.05  # between two wake-ups by files: each costs as much as to read 0.3 MB, however little was written


class Sleep:
    """waker: for signals and requests. news: for files. Records that may be overwritten always wake at once."""

    def __init__(self) -> None:
        self.waker = Waker()
        self.news = Waker()
        self._woken = time.monotonic()

    def until_news(self, sources: Sequence[Source], seconds: float) -> None:
        """Sleep until there is something to read, at most `seconds`; then continue as `pause` does."""
        until = time.monotonic() + seconds
        if not self.waker.wait([self.news.fileno(), *_descriptors(sources)], seconds):
            self.pause(sources, until - time.monotonic())

    def pause(self, sources: Sequence[Source], seconds: float) -> None:
        """Sleep until ROUND_SECONDS after the last news of files, at most `seconds`; further news does not end it."""
        urgent = _descriptors([source for source in sources if source.overwritten])
        self.waker.wait(urgent, min(seconds, self._woken + ROUND_SECONDS - time.monotonic()))
        if self.news.clear():
            self._woken = time.monotonic()


def _descriptors(sources: Sequence[Source]) -> list[int]:
    return [fd for source in sources if (fd := source.fileno()) is not None]
