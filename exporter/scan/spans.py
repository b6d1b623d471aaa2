"""Finds where a large log can be split so that its parts, read separately, give the same results as the whole.

A part is read without the lines before it, except for their times. So a cut must not separate parts of one line of a
container format, nor lie near lines that exceed the line limit. Compressed logs have no offsets, and records in
/dev/kmsg form have line numbers of their own: neither is split.
"""

import os
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from exporter.core.catalogue.pack_types import MAX_LINES
from exporter.core.decoding import formats
from exporter.core.decoding.lines import MAX_BETWEEN
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import MAX_LINES_BACK
from exporter.core.model import LogFormat
from exporter.scan.decompress import is_archive
from exporter.scan.plan import Task
from exporter.scan.reader import open_log
from exporter.sources.holes import data_after

# Bytes that are looked at on each side of where a cut is wanted. Well below the length from which a line is looked at
# in windows (Pipeline's line_bytes), so that no line near a cut is one of those.
WINDOW_BYTES = 1 << 18
# Lines that must stand whole before a cut: those that tell its first line's time, and those over which a carrier's line
# can go on. And behind it: what a signature that begins before it may look at.
LINES_BEFORE = max(MAX_LINES_BACK, MAX_BETWEEN + 1)
LINES_AFTER = MAX_LINES


class LogSpan(NamedTuple):
    """The lines of a log that begin from `start` on and before `stop` (None: the end); offsets in bytes.

    line: number of the first line; counted from 1 if unknown. Reading starts `lines_before` lines earlier, at `read_from`.
    """

    start: int = 0
    stop: int | None = None
    read_from: int = 0
    lines_before: int = 0
    line: int = 1


WHOLE = LogSpan()


class Cut(NamedTuple):
    """The start of a line, and the starts of the lines just before it."""

    at: int
    read_from: int


def can_be_cut(task: Task) -> bool:
    return task.format != "kmsg" and not is_archive(task.path)


def spans(task: Task, length: int, window_bytes: int = WINDOW_BYTES) -> Iterator[LogSpan]:
    """Split a log into spans of about `length` bytes. A lazy iterator. Raises OSError."""
    with open_log(task.path) as log:
        size = os.fstat(log.fileno()).st_size
        last = WHOLE
        wanted = length
        while wanted < size:
            cut = _cut_near(log, wanted, task.format, window_bytes)
            if cut is not None and cut.at < size:
                yield last._replace(stop=cut.at)
                last = LogSpan(cut.at, None, cut.read_from, LINES_BEFORE)
            wanted = data_after(log.fileno(), wanted + length) or size
        yield last


def _cut_near(log: IO[bytes], wanted: int, form: LogFormat, window_bytes: int) -> Cut | None:
    begin = max(0, wanted - window_bytes)
    log.seek(begin)
    window = _read(log.read, wanted + window_bytes - begin)
    cut = cut_in(window, wanted - begin, form, first=begin == 0)
    return cut and Cut(begin + cut.at, begin + cut.read_from)


def cut_in(window: bytes, wanted: int, form: LogFormat, *, first: bool) -> Cut | None:
    """The first cut at or after `wanted` in a block of a log. first: the block begins at the start of a line."""
    starts = _line_starts(window, first=first)
    clean = _clean_starts(window, starts, form)
    for index in range(LINES_BEFORE, len(starts) - LINES_AFTER):
        if starts[index] >= wanted and clean[index]:
            return Cut(starts[index], starts[index - LINES_BEFORE])
    return None


def _read(read: Callable[[int], bytes], size: int) -> bytes:
    """Read exactly this many bytes, fewer only at the end."""
    data = b""
    while len(data) < size and (more := read(size - len(data))):
        data += more
    return data


def _line_starts(window: bytes, *, first: bool) -> list[int]:
    starts = [0] if first else []
    at = window.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = window.find(b"\n", at + 1)
    return starts


def _clean_starts(window: bytes, starts: list[int], form: LogFormat) -> list[bool]:
    """The lines that continue no earlier one of their container. At most MAX_BETWEEN lines lie between two parts."""
    carrier = formats.CONTAINER_FORMATS.get(form)
    if carrier is None:
        return [True] * len(starts)
    clean, clock = [], Clock(0.0)
    going_on: dict[str, int] = {}  # by stream: the number of the line that goes on
    for index, start in enumerate(starts):
        clean.append(all(index - 1 - number > MAX_BETWEEN for number in going_on.values()))
        stop = starts[index + 1] - 1 if index + 1 < len(starts) else len(window)
        part = carrier(window[start:stop], clock)
        going_on.pop(part.stream, None)
        if part.continues:
            going_on[part.stream] = index
    return clean
