"""When the lines of a chunk were written: by their own stamp, else by that of a line before them, else when they were
read, or at the latest can have been written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

from exporter.core import decode
from exporter.core.layouts import Layouts
from exporter.core.lines import preceding
from exporter.core.model import Chunk
from exporter.core.prefixes import Clock

Stamp = tuple[float, Literal["log", "observed"]]

LOOK_BACK = 8  # lines without a stamp belong to a stamped one before them; a longer traceback still ends stamped
_HEAD = 128  # bytes of a line that hold its stamp, behind all prefixes


class Stamps:
    """The stamps of one chunk's lines. `heads` are how the lines before the chunk begin, nearest first."""

    def __init__(self, chunk: Chunk, clock: Clock, heads: Sequence[bytes], layouts: Layouts) -> None:
        self._layouts = layouts
        self._chunk = chunk
        self._clock = clock
        self._heads = heads
        self._known: dict[int, Stamp | None] = {}  # by where a line of the chunk begins

    def know(self, start: int, time: float | None, mono: float | None) -> None:
        """The line that begins there has been decoded, and states these times."""
        self._known[start] = _stamp(time, mono)

    def time_of(self, start: int, stop: int, time: float | None, mono: float | None) -> Stamp:
        """When what the line chunk[start:stop] tells happened, given the times that a record of it states."""
        if stamp := _stamp(time, mono):
            return stamp
        known, data, looked = self._known, self._chunk.data, 0
        while True:
            if start in known:
                stamp = known[start]
            else:
                stamp = known[start] = self._stamp(data[start : min(stop, start + _HEAD)])
            if stamp is not None:
                return stamp
            if not start or looked == LOOK_BACK:
                break
            stop, looked = start - 1, looked + 1
            start = data.rfind(b"\n", 0, stop) + 1
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
            record = decode.decode(head, chunk.format, chunk.source, self._clock)
            return _stamp(record.time, record.mono)
        return _stamp(self._layouts.time_of(head, self._clock), None)


def _stamp(time: float | None, mono: float | None) -> Stamp | None:
    """Without the wall's clock it is on the kernel's own axis, so that distances are right."""
    if time is not None:
        return time, "log"
    return None if mono is None else (mono, "observed")
