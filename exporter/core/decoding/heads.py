"""Line layouts: a cache of prefix positions by line shape. A log has few shapes, and a flood has one or two.

The result of decoding is the same with or without it. A line whose text is not a plain slice of its bytes (colours,
NULs, carriage returns, characters outside ASCII) has no layout.
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
    """The positions of the text, the timestamp and the prefix fields in lines of one shape."""

    text: int
    stamp: Stamp | None
    mono: slice | None
    rank: slice | None
    others_at: tuple[int, ...]  # where a line of the shape may be marked as not the kernel's


class Layouts:
    """The layouts of lines of one format and source."""

    def __init__(self, format: LogFormat, source: SourceKind) -> None:  # noqa: A002 (the field's word)
        self._format: LogFormat = format
        self._source: SourceKind = source
        carrier = [formats.CRI.pattern] if format == "cri" else []
        self._patterns = [Expression(pattern, NO_NEEDS) for pattern in (*prefixes.PATTERNS[source], *carrier)]
        self._layouts: dict[bytes, Layout | None] = {}
        self._stamps: dict[bytes, Stamp | None] = {}  # of heads
        self._remembered = 0

    def of(self, line: bytes, shape: bytes, clock: Clock) -> Layout | None:
        """The layout of a line of this shape; None if the line must be decoded on its own."""
        try:
            return self._layouts[shape]
        except KeyError:
            fields = formats.prefix_fields(line, self._format, self._source, clock)
            if fields and (fields.bad_time or fields.by_others):
                return None
            layout = fields and Layout(
                fields.text,
                fields.stamp,
                slice(*fields.mono) if fields.mono else None,
                slice(*fields.rank) if fields.rank else None,
                tuple(at for at in fields.checked_at if may_be_by_others(line.decode(), at)),
            )
            self._count(len(shape))
            self._layouts[shape] = layout
            return layout

    def applies_to_shape(self, line: bytes, shape: bytes, layout: Layout) -> bool:
        """Whether all lines of the shape have these prefixes: no pattern reads hexadecimal digits."""
        return shape[: layout.text].isascii() and not looked_at(
            self._patterns, line.decode(), starts=range(layout.text + 1)
        )

    def time_of(self, head: bytes, clock: Clock, times: Times) -> float | None:
        """The time of a job's line with these first bytes."""
        if self._format != "plain" or formats.is_rewritten(head):
            return formats.time_of(head, self._format, clock)
        shape = shape_of(head)
        try:
            stamp = self._stamps[shape]
        except KeyError:
            self._count(len(shape))
            stamp = self._stamps[shape] = first_stamp(head.decode())
        if stamp is None:
            return None
        time = times.of(stamp, head)
        return formats.time_of(head, self._format, clock) if time is None else time

    def _count(self, size: int) -> None:
        self._remembered += size
        if self._remembered > MAX_REMEMBERED:
            self._layouts.clear()
            self._stamps.clear()
            self._remembered = size
