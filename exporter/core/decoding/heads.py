"""The times of lines by their first bytes. Where a timestamp is depends on a line's shape, of which a log has few.

The result is the same as that of decoding.
"""

from __future__ import annotations

from exporter.core.decoding import formats
from exporter.core.decoding.prefixes import Clock, Stamp, Times, first_stamp
from exporter.core.model import LogFormat

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
