"""Reads logs with an engine's workers, large ones in parts, and joins the results in reading order.

Lost batches are read again.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from functools import cache

from exporter.core.catalogue.loader import Catalogue
from exporter.core.values import dataclass
from exporter.scan.batches import MAX_ITEMS, Pace, batched, items_of, only_here
from exporter.scan.engines.local import Local
from exporter.scan.engines.scan_engine import ScanEngine, Unusable
from exporter.scan.plan import Unread
from exporter.scan.stitch import Stitched, stitched
from exporter.scan.stop import Stop
from exporter.scan.work import Done, EngineChoice, Item, OtherVersion, Recipe, Scanned, pipeline_of, prepare, scan_one

POLL_SECONDS = 0.2  # within which Ctrl-C is seen
# Batches lost one after another without one that came back: then nothing works, and why is told once. One log that
# kills its worker takes as many as it takes to find it by halves.
MAX_LOST = MAX_ITEMS.bit_length() + 3

Results = Iterator[tuple[Item, Scanned]]


@dataclass(slots=True)
class Dispatch:
    """Sends items to an engine.

    here: reads items that only this process can read. record_speed: gets the bytes and seconds of each batch. stop: asked while
    waiting for a batch; finished results are still returned. `reading`: the log of the first item without a result.
    """

    engine: ScanEngine
    recipe: Callable[[], Recipe]
    here: Callable[[Item], Scanned]
    record_speed: Callable[[int, float], None]
    stop: Callable[[], bool]
    reading: str = ""
    _lost: int = 0

    def results(self, batches: Iterator[Sequence[Item]]) -> Results:
        """One result for each item, in order. Raises Unusable, and KeyboardInterrupt if the user stops the scan."""
        running: deque[tuple[Sequence[Item], Future[Done] | None]] = deque()
        while True:
            # While a lost batch waits to be read again nothing new sets out: what dies then is known to die by itself.
            held = self.stop() or any(map(_failed, running))
            room = 0 if held else self.engine.width - len(running)
            for items in itertools.islice(batches, room):
                running.append((items, None if only_here(items[0]) else self._submit(items)))
            if not running:
                return
            items, future = running.popleft()
            self.reading = items[0].log.path
            if future is None:
                yield from ((item, self.here(item)) for item in items)
            elif self._loss(future):
                yield from self._in_halves(items)
            else:
                yield from self._came_back(items, future)

    def again(self, item: Item) -> Scanned:
        ((_, scanned),) = self._in_halves((item,))
        return scanned

    def _submit(self, items: Sequence[Item]) -> Future[Done]:
        return self.engine.submit(self.recipe, items)

    def _in_halves(self, items: Sequence[Item]) -> Results:
        """Read lost items again; if they are lost again, in halves, until the item that kills its worker is found."""
        future = self._submit(items)
        why = self._loss(future)
        if not why:
            yield from self._came_back(items, future)
        elif len(items) == 1:
            yield items[0], Scanned(items[0].log.path, unread=Unread(items[0].log.path, why))
        else:
            middle = len(items) // 2
            yield from self._in_halves(items[:middle])
            yield from self._in_halves(items[middle:])

    def _came_back(self, items: Sequence[Item], future: Future[Done]) -> Results:
        done = future.result()
        self.record_speed(sum(item.bytes for item in items), done.seconds)
        yield from zip(items, done.scanned, strict=True)

    def _loss(self, future: Future[Done]) -> str:
        """Wait for a batch. Returns why it was lost; empty if it was not."""
        while not wait_for([future], 0 if self.stop() else POLL_SECONDS).done:
            if self.stop():
                raise KeyboardInterrupt
            self.engine.check()
        error = _error(future)
        if isinstance(error, OtherVersion):
            raise Unusable(str(error))
        why = self.engine.loss(error) if error else ""
        if error and not why:
            raise error
        self._lost = self._lost + 1 if why else 0
        if self._lost >= MAX_LOST:
            raise Unusable(f"{self._lost} batches were lost one after another. The last: {why}")
        return why


def _error(future: Future[Done]) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as cancelled:
        return cancelled


def _failed(batch: tuple[Sequence[Item], Future[Done] | None]) -> bool:
    future = batch[1]
    return future is not None and future.done() and _error(future) is not None


class ByWorkers:
    """Reads logs, and parts of large ones, with the workers of an engine."""

    def __init__(
        self,
        workers: ScanEngine | int,
        catalogue: Catalogue,
        choice: EngineChoice,
        now: float,
        stop: Stop,
        progress: Callable[[str, int], None],
    ) -> None:
        engine = self._engine = Local(workers) if isinstance(workers, int) else workers
        self._progress = progress
        self._stop = stop
        self._pace = Pace(engine.batch_bytes, engine.batch_seconds)

        def here(item: Item) -> Scanned:
            return scan_one(item, pipeline_of(catalogue, choice, time.localtime().tm_gmtoff), now, stop=stop)

        @cache
        def recipe() -> Recipe:
            return Recipe.of(catalogue, choice, now, name_host=engine.remote)

        if not engine.remote:
            prepare(pipeline_of(catalogue, choice, time.localtime().tm_gmtoff), now)
        self._dispatch = Dispatch(engine, recipe, here, self._pace.record_speed, stop)

    @property
    def reading(self) -> str:
        return self._dispatch.reading

    def read(self, items: Iterator[Item]) -> Generator[Stitched]:
        finished = False
        try:
            batches = batched(items_of(items, self._engine.span_bytes), self._pace.wanted)
            for one in stitched(self._dispatch.results(batches), self._dispatch.again):
                yield one
                self._progress(one.scanned.path, one.scanned.bytes)
                if one.ended:
                    self._progress(one.scanned.path, 0)
            finished = True
        finally:
            self._engine.close(at_once=not finished)
