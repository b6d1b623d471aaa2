"""Reads logs with an engine's workers, large ones in parts, and joins the results in reading order."""

import time
from collections.abc import Callable, Generator, Iterator
from functools import cache

from exporter.core.catalogue.loader import Catalogue
from exporter.scan.batches import Pace, batched, items_of
from exporter.scan.dispatch import Dispatch
from exporter.scan.engines.local import Local
from exporter.scan.engines.scan_engine import ScanEngine
from exporter.scan.stitch import Stitched, stitched
from exporter.scan.stop import Stop
from exporter.scan.work import EngineChoice, Item, Recipe, Scanned, pipeline_of, prepare, scan_one


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
