"""Splits large logs into parts, and groups logs and parts into batches of a size that suits the engine."""

import os
from collections.abc import Callable, Iterable, Iterator

from exporter.core.values import dataclass
from exporter.scan.plan import Task, Unread, Wanted, plan
from exporter.scan.reader import STDIN
from exporter.scan.spans import LogSpan, can_be_cut, spans
from exporter.scan.work import Item

MAX_ITEMS = 4096  # of a batch: what is held of it, and what one dead worker may cost
OPENING_BYTES = 1 << 16  # to find and open a log takes as long as to read so much of it


def only_here(item: Item) -> bool:
    """Whether only this process can read a log: its stdin."""
    return item.log.path == STDIN or isinstance(item.log, Unread)


def items_of(items: Iterable[Item], span_bytes: int) -> Iterator[Item]:
    """Each log as one item; a large one as several items of about `span_bytes`."""
    for item in items:
        log = item.log
        size = 0 if log.path == STDIN or isinstance(log, Unread) else _size(log.path)
        if size <= span_bytes * 3 // 2:
            yield item._replace(bytes=size)
            continue
        task = plan(log.path, log.source) if isinstance(log, Wanted) else log
        if isinstance(task, Task) and can_be_cut(task):
            yield from _parts(task, size, span_bytes)
        else:
            yield item._replace(log=task, bytes=size)


def batched(items: Iterable[Item], wanted: Callable[[], int], most: int = MAX_ITEMS) -> Iterator[tuple[Item, ...]]:
    """Groups items into batches of about `wanted()` bytes, asked anew for each batch."""
    batch: list[Item] = []
    room = 0
    for item in items:
        cost = item.bytes + OPENING_BYTES
        if batch and (cost > room or len(batch) == most or only_here(item) or only_here(batch[-1])):
            yield tuple(batch)
            batch = []
        if not batch:
            room = wanted()
        batch.append(item)
        room -= cost
    if batch:
        yield tuple(batch)


@dataclass(slots=True)
class Pace:
    """The size of the next batch: `bytes` at first, then as many as a worker reads in `seconds` (0: always `bytes`)."""

    bytes: int
    seconds: float = 0.0
    _bytes_read: int = 0
    _seconds_read: float = 0.0

    def record_speed(self, read: int, seconds: float) -> None:
        self._bytes_read += read
        self._seconds_read += seconds

    def wanted(self) -> int:
        if not self.seconds or self._seconds_read < 1.0:  # less than a second says nothing
            return self.bytes
        return int(self._bytes_read / self._seconds_read * self.seconds)


def _parts(task: Task, size: int, span_bytes: int) -> Iterator[Item]:
    at = 0
    try:
        for span in spans(task, span_bytes):
            yield Item(task, span, (size if span.stop is None else span.stop) - span.start)
            at = span.stop or 0
    except OSError as error:
        yield Item(Unread(task.path, error.strerror or str(error)), LogSpan(start=at))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # whoever reads it will tell
        return 0
