"""The time of each line of a chunk: its own, else that of a line before it, else the latest possible one.

Where a timestamp is depends on the shape of a line. A log has few shapes, so `Heads` remembers them.
"""

from typing import NamedTuple

from exporter.core.decoding import formats
from exporter.core.decoding.prefixes import Clock, Stamp, Times, first_stamp, time_from
from exporter.core.model import AHEAD_SECONDS, STAMPED, Chunk, LogFormat, TimeSource

MAX_REMEMBERED = 1 << 20  # bytes of shapes
_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)


class Heads:
    """The timestamps of job lines of one format, by the shape of their first bytes."""

    def __init__(self, format: LogFormat) -> None:  # noqa: A002 (the field's word)
        self._format: LogFormat = format
        self._stamps: dict[bytes, Stamp | None] = {}
        self._remembered = 0

    def time_of(self, head: bytes, clock: Clock, times: Times) -> float | None:
        """The time of a job's line with these first bytes."""
        if self._format != "plain" or formats.is_rewritten(head, self._format):
            return formats.time_of(head, self._format, clock)
        shape = head.translate(_ONE_DIGIT)
        try:
            stamp = self._stamps[shape]
        except KeyError:
            self._remembered += len(shape)
            if self._remembered > MAX_REMEMBERED:
                self._stamps.clear()
                self._remembered = len(shape)
            stamp = self._stamps[shape] = first_stamp(head.decode())
        if stamp is None:
            return None
        time = times.of(stamp, head)
        return formats.time_of(head, self._format, clock) if time is None else time


SourcedTime = tuple[float, TimeSource]
Nearest = tuple[SourcedTime | None, int]  # the timestamp of a line, and how many lines back that line is

MAX_LINES_BACK = 128  # lines, as many as a chain of tracebacks has: what lies farther back happened at another time
NO_STAMP: Nearest = (None, 0)
_HEAD = 128  # bytes of a line that contain its timestamp, behind all prefixes


class Untimed(NamedTuple):
    """Matches without a time of their own, behind a line at `since`; `until`: the time of the first line behind them that
    has one, 0 if it is to come, among `left` lines from `start` on.
    """

    since: float
    start: int
    left: int = MAX_LINES_BACK
    until: float = 0.0


def dated_in(data: bytes, clock: Clock) -> float | None:
    """The first time with a year in the first lines of a job's log or chunk."""
    start = 0
    for _ in range(MAX_LINES_BACK):
        stop = data.find(b"\n", start)
        text = data[start : min(start + _HEAD, stop if stop >= 0 else len(data))].decode("utf-8", "replace")
        stamp = first_stamp(text)
        if stamp and stamp.prefix.stamp and (time := time_from(stamp.prefix, text, stamp.start, clock)) is not None:
            return time
        if stop < 0:
            break
        start = stop + 1
    return None


class Timestamps:
    """The timestamps of one chunk's lines; `before` is what precedes its first line."""

    def __init__(
        self, chunk: Chunk, clock: Clock, before: Nearest, heads: Heads, untimed: Untimed | None = None
    ) -> None:
        self._untimed = untimed and untimed._replace(start=0)
        self._by_head = heads
        self._chunk = chunk
        self._clock = clock
        self.times = Times(clock)
        self._before = before
        self._latest: SourcedTime = (chunk.latest, "file" if chunk.latest < chunk.read_at else "observed")
        # By the start of a line: its own timestamp, and the nearest.
        self._stamps: dict[int, SourcedTime | None] = {}
        self._nearest: dict[int, Nearest] = {}

    def note(self, start: int, time: float | None, mono: float | None) -> None:
        """Store the times of a decoded line."""
        self._stamps[start] = self._as_stamp(time, mono)

    def note_and_get(self, start: int, stop: int, time: float | None, mono: float | None) -> float:
        """Store the times of a line and return its time."""
        stamp = self._stamps[start] = self._as_stamp(time, mono)
        return stamp[0] if stamp else self.time_of(start, stop, None, None)[0]

    def time_of(self, start: int, stop: int, time: float | None, mono: float | None) -> SourcedTime:
        """The time of the line chunk[start:stop], given the times of its record."""
        if stamp := self._as_stamp(time, mono):
            return stamp
        stamp, distance = self._nearest[start] = self._nearest_to(start, stop)
        if stamp is None:
            return self._latest
        return (stamp[0], "inherited") if distance and stamp[1] == "log" else stamp

    def nearest_before(self, at: int) -> Nearest:
        """The nearest timestamp before the line that begins at `at`, for the next chunk."""
        if not at:
            return self._before
        stamp, distance = self._nearest_to(self._chunk.data.rfind(b"\n", 0, at - 1) + 1, at - 1)
        return (stamp, distance + 1) if stamp and distance < MAX_LINES_BACK else NO_STAMP

    def note_match(self, stop: int, time: float, time_source: TimeSource) -> tuple[float, float] | None:
        """Note the time of a match whose line ends at `stop`. Returns the times between which earlier matches without one
        were written, if it tells them.
        """
        if self._chunk.source != "job" or time_source not in STAMPED:
            return None
        written_between = None
        if self._untimed and time != self._untimed.since:
            untimed = self.untimed_before(stop)
            written_between = (untimed.since, untimed.until) if untimed and untimed.until > untimed.since else None
            self._untimed = None
        if time_source == "inherited":
            self._untimed = Untimed(time, stop + 1)
        return written_between

    def untimed_before(self, stop: int) -> Untimed | None:
        """What is known of the matches without a time, from the lines that begin before `stop`."""
        if self._untimed and not self._untimed.until:
            stamp, left = self._first_after(self._untimed.start, stop, self._untimed.left)
            until = stamp[0] if stamp else 0.0
            self._untimed = Untimed(self._untimed.since, stop, left, until) if stamp or left else None
        return self._untimed

    def _first_after(self, start: int, stop: int, lines: int) -> tuple[SourcedTime | None, int]:
        """The first timestamp of so many lines from `start` on that begin before `stop`, and how many lines are left."""
        while lines and start < stop:
            end = self._chunk.data.find(b"\n", start)
            if start not in self._stamps:
                self._stamps[start] = self._stamp(
                    self._chunk.data[start : min(end if end >= 0 else stop, start + _HEAD)]
                )
            lines -= 1
            if (stamp := self._stamps[start]) or end < 0:
                return stamp, lines
            start = end + 1
        return None, lines

    def _nearest_to(self, start: int, stop: int) -> Nearest:
        """The timestamp of a line, or the nearest before it."""
        for lines_back in range(MAX_LINES_BACK + 1):
            if start in self._nearest:
                stamp, distance = self._nearest[start]
                distance += lines_back
                return (stamp, distance) if distance <= MAX_LINES_BACK else NO_STAMP
            if start not in self._stamps:
                self._stamps[start] = self._stamp(self._chunk.data[start : min(stop, start + _HEAD)])
            if stamp := self._stamps[start]:
                return stamp, lines_back
            if not start:
                stamp, distance = self._before[0], self._before[1] + lines_back
                return (stamp, distance) if stamp and distance <= MAX_LINES_BACK else NO_STAMP
            stop = start - 1
            start = self._chunk.data.rfind(b"\n", 0, stop) + 1
        return NO_STAMP

    def _stamp(self, head: bytes) -> SourcedTime | None:
        chunk = self._chunk
        if chunk.source == "kernel":
            record = formats.decode(head, chunk.format, chunk.source, self._clock)
            return self._as_stamp(record.time, record.mono)
        return self._as_stamp(self._by_head.time_of(head, self._clock, self.times), None)

    def _as_stamp(self, time: float | None, mono: float | None) -> SourcedTime | None:
        """The wall time, else the kernel's clock, so that at least distances are right: its start is taken from the log's
        last change. A time in the future is not believed.
        """
        if time is not None:
            return (time, "log") if time <= self._chunk.read_at + AHEAD_SECONDS else self._latest
        return None if mono is None else (mono, self._latest[1])
