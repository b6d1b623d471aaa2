"""When the lines of a chunk were written: by their own stamp, else by that of a line before them, else when they were
read, or at the latest can have been written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

from exporter.core import decode
from exporter.core.decode import Clock
from exporter.core.lines import preceding
from exporter.core.model import Chunk, Record

Stamp = tuple[float, Literal["log", "observed"]]

LOOK_BACK = 8  # lines without a stamp belong to a stamped one before them; a longer traceback still ends stamped
_HEAD = 128  # bytes of a line that hold its stamp, behind all prefixes


class Stamps:
    """The stamps of one chunk's lines. `heads` are how the lines before the chunk begin, nearest first."""

    def __init__(self, chunk: Chunk, clock: Clock, heads: Sequence[bytes]) -> None:
        self._chunk = chunk
        self._clock = clock
        self._heads = heads
        self._known: dict[int, Stamp | None] = {}  # by where a line of the chunk begins

    def know(self, start: int, record: Record) -> None:
        """The line that begins there has been decoded."""
        self._known[start] = _stamp_of(record)

    def time_of(self, start: int, stop: int, record: Record) -> Stamp:
        """When what a record tells happened, that stands in the line chunk[start:stop]."""
        if stamp := _stamp_of(record):
            return stamp
        known, looked = self._known, -1
        for begin, end in itertools.chain([(start, stop)], preceding(self._chunk.data, start, LOOK_BACK)):
            looked += 1
            if begin in known:
                stamp = known[begin]
            else:
                stamp = known[begin] = self._stamp(self._chunk.data[begin : min(end, begin + _HEAD)])
            if stamp is not None:
                return stamp
        for head in self._heads[: LOOK_BACK - looked]:
            if (stamp := self._stamp(head)) is not None:
                return stamp
        return self._chunk.latest, "observed"

    def heads_before(self, at: int) -> list[bytes]:
        """How the lines before a place of the chunk begin, nearest first: what the next chunk is given."""
        return list(itertools.islice(self._all_heads(at), LOOK_BACK))

    def _all_heads(self, at: int) -> Iterator[bytes]:
        for start, stop in preceding(self._chunk.data, at, LOOK_BACK):
            yield self._chunk.data[start : min(stop, start + _HEAD)]
        yield from self._heads

    def _stamp(self, head: bytes) -> Stamp | None:
        chunk = self._chunk
        if chunk.source == "kernel":
            return _stamp_of(decode.decode(head, chunk.format, chunk.source, self._clock))
        time = decode.time_of(head, chunk.format, self._clock)
        return None if time is None else (time, "log")


def _stamp_of(record: Record) -> Stamp | None:
    """What a record tells of its time. Without the wall's it is on the kernel's own axis, so that distances are right."""
    if record.time is not None:
        return record.time, "log"
    return None if record.mono is None else (record.mono, "observed")
