"""Where lines' prefixes and texts lie, remembered by the lines' shape: a log has a few shapes, and a flood has one or two.

Changes nothing of what a line is decoded to. A line whose text is not, byte for byte, what stands behind its prefixes
(colours, NULs, carriage returns, letters beyond ASCII) has no layout.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.core.decoding import formats, prefixes
from exporter.core.decoding.prefixes import Clock, Stamp, Times, first_stamp, may_be_by_others
from exporter.core.model import LogFormat, SourceKind
from exporter.core.patterns.digit_sensitivity import looked_at, shape_of
from exporter.core.patterns.expression import Expression
from exporter.core.patterns.required_literals import NO_NEEDS

MAX_REMEMBERED = 1 << 20  # bytes of shapes


class Layout(NamedTuple):
    """Where a line's text begins, what stamps the line, and where else its prefixes say what."""

    text: int
    stamp: Stamp | None
    mono: slice | None
    rank: slice | None
    others: tuple[int, ...]  # where another line of the shape may say that others wrote it


class Layouts:
    """Those of the lines of one format and source."""

    def __init__(self, format: LogFormat, source: SourceKind) -> None:  # noqa: A002 (the field's word)
        self._format: LogFormat = format
        self._source: SourceKind = source
        carrier = [formats.CRI.pattern] if format == "cri" else []
        self._patterns = [Expression(pattern, NO_NEEDS) for pattern in (*prefixes.PATTERNS[source], *carrier)]
        self._layouts: dict[bytes, Layout | None] = {}
        self._stamps: dict[bytes, Stamp | None] = {}  # of heads
        self._remembered = 0

    def of(self, line: bytes, shape: bytes, clock: Clock) -> Layout | None:
        """The layout of a line of this shape; None if it has none, or is to be decoded by itself."""
        try:
            return self._layouts[shape]
        except KeyError:
            told = formats.prefix_fields(line, self._format, self._source, clock)
            if told and (told.impossible or told.others):
                return None
            layout = told and Layout(
                told.text,
                told.stamp,
                slice(*told.mono) if told.mono else None,
                slice(*told.rank) if told.rank else None,
                tuple(at for at in told.looked if may_be_by_others(line.decode(), at)),
            )
            self._remembers(len(shape))
            self._layouts[shape] = layout
            return layout

    def is_of_all(self, line: bytes, shape: bytes, layout: Layout) -> bool:
        """Whether a line's prefixes are those of all lines of its shape: they tell no digits apart, and look at nothing
        hexadecimal.
        """
        return shape[: layout.text].isascii() and not looked_at(
            self._patterns, line.decode(), starts=range(layout.text + 1)
        )

    def time_of(self, head: bytes, clock: Clock, times: Times) -> float | None:
        """The time that a job's line is stamped with which begins like this."""
        if self._format != "plain" or formats.is_rewritten(head):
            return formats.time_of(head, self._format, clock)
        shape = shape_of(head)
        try:
            stamp = self._stamps[shape]
        except KeyError:
            self._remembers(len(shape))
            stamp = self._stamps[shape] = first_stamp(head.decode())
        if stamp is None:
            return None
        time = times.of(stamp, head)
        return formats.time_of(head, self._format, clock) if time is None else time

    def _remembers(self, size: int) -> None:
        self._remembered += size
        if self._remembered > MAX_REMEMBERED:
            self._layouts.clear()
            self._stamps.clear()
            self._remembered = size
