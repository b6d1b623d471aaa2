"""Timestamps of a chunk's lines: from the line, else from a line before it, else the latest possible time."""

from __future__ import annotations

from typing import Literal

from exporter.core.decoding import formats
from exporter.core.decoding.heads import Heads
from exporter.core.decoding.prefixes import Clock, Times
from exporter.core.model import Chunk

Stamp = tuple[float, Literal["log", "observed"]]

LOOK_BACK = 8  # lines without a timestamp belong to one before them; the rest of a longer traceback is new
_HEAD = 128  # bytes of a line that contain its timestamp, behind all prefixes
_LINE = 160  # most lines are shorter


class Timestamps:
    """The timestamps of one chunk's lines.

    `heads` are the first bytes of the lines before the chunk, joined by newlines. `look_back` is the number of earlier
    lines to search.
    """

    def __init__(self, chunk: Chunk, clock: Clock, heads: bytes, known: Heads, look_back: int = LOOK_BACK) -> None:
        self._look_back = look_back
        self._by_head = known
        self._chunk = chunk
        self._clock = clock
        self.times = Times(clock)
        self._heads = heads
        # By the start of a line: its own timestamp, and the nearest with its distance in lines.
        self._known: dict[int, Stamp | None] = {}
        self._nearest: dict[int, tuple[Stamp | None, int]] = {}

    def note(self, start: int, time: float | None, mono: float | None) -> None:
        """Store the times of a decoded line."""
        self._known[start] = _as_stamp(time, mono)

    def note_and_get(self, start: int, stop: int, time: float | None, mono: float | None) -> float:
        """Store the times of a line and return its time."""
        stamp = self._known[start] = _as_stamp(time, mono)
        return stamp[0] if stamp else self.time_of(start, stop, None, None)[0]

    def time_of(self, start: int, stop: int, time: float | None, mono: float | None) -> Stamp:
        """The time of the line chunk[start:stop], given the times of its record."""
        if stamp := _as_stamp(time, mono):
            return stamp
        stamp, before = self._nearest[start] = self._nearest_to(start, stop)
        return stamp if stamp and before <= self._look_back else (self._chunk.latest, "observed")

    def _nearest_to(self, start: int, stop: int) -> tuple[Stamp | None, int]:
        """The timestamp of a line or the nearest before it, with the distance in lines."""
        for looked in range(self._look_back + 1):
            if start in self._nearest:
                stamp, before = self._nearest[start]
                return stamp, looked + before
            if start not in self._known:
                self._known[start] = self._stamp(self._chunk.data[start : min(stop, start + _HEAD)])
            if stamp := self._known[start]:
                return stamp, looked
            if not start:
                heads = enumerate(reversed(self._heads.split(b"\n")), looked + 1)
                return next(((stamp, n) for n, head in heads if (stamp := self._stamp(head))), (None, 0))
            stop = start - 1
            start = self._chunk.data.rfind(b"\n", 0, stop) + 1
        return None, 0

    def heads_before(self, at: int) -> bytes:
        """The first bytes of the lines before a position, joined by newlines, for the next chunk."""
        data, most, size = self._chunk.data, self._look_back, self._look_back * _LINE
        while True:
            lines = data[max(0, at - size) : max(0, at - 1)].rsplit(b"\n", most)
            if len(lines) > most or size >= at:
                break
            size *= 8
        heads = [line[:_HEAD] for line in lines] if at else []
        if len(heads) <= most:  # the chunk has no more
            heads = [*self._heads.split(b"\n"), *heads]
        return b"\n".join(heads[-most:])

    def _stamp(self, head: bytes) -> Stamp | None:
        chunk = self._chunk
        if chunk.source == "kernel":
            record = formats.decode(head, chunk.format, chunk.source, self._clock)
            return _as_stamp(record.time, record.mono)
        return _as_stamp(self._by_head.time_of(head, self._clock, self.times), None)


def _as_stamp(time: float | None, mono: float | None) -> Stamp | None:
    """The wall time, else the kernel's clock, so that at least distances are right."""
    if time is not None:
        return time, "log"
    return None if mono is None else (mono, "observed")
