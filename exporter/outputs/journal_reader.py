"""Reads incidents out of the journal's segments, from a place on. Writes nothing, waits for nothing.

The journal is the queue of every output: it is on disk, bounded, and holds only what has been committed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from exporter.store.journal import JournalEnd, segment_path, segments_in

# A record has a first line of 2,048 characters, captures of 512 and ten lines of 16,384, and JSON may make six of one.
MAX_LINE = 2 << 20
MAX_BATCH_BYTES = 1 << 20  # of the journal; one record more than that goes alone
_CHECKED = 64  # bytes before a place that tell whether the file is still the one that was read


class Place(NamedTuple):
    """How far the journal was read: a segment, an offset in it behind a whole line, a checksum of what is before it."""

    segment: int
    offset: int
    check: int


class Placed(NamedTuple):
    """One record with the place behind it."""

    record: Mapping[str, Any]
    behind: Place


@dataclass(frozen=True, slots=True)
class Batch:
    """Incidents that follow `start`; `end` is behind them. `unreadable`: behind none, but a line too long to be one."""

    start: Place
    end: Place
    records: tuple[Placed, ...]
    unreadable: bool = False

    def first(self, count: int) -> Batch:
        """Only so many of its records."""
        kept = self.records[:count]
        return Batch(self.start, kept[-1].behind, kept)


def place_at(folder: Path, end: JournalEnd) -> Place:
    """The place behind all that the journal holds."""
    try:
        with segment_path(folder, end.segment).open("rb") as file:
            return Place(end.segment, end.offset, _check(file, end.offset))
    except FileNotFoundError:
        return Place(end.segment, 0, 0)


def first_place(folder: Path) -> Place:
    """The place before all that the journal holds."""
    found = segments_in(folder)
    return Place(found[0][0] if found else 1, 0, 0)


def mended(folder: Path, place: Place) -> Place:
    """The place, or the journal's beginning where its file is gone or holds other bytes: better twice than never."""
    try:
        with segment_path(folder, place.segment).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size >= place.offset and _check(file, place.offset) == place.check:
                return place
    except FileNotFoundError:
        found = segments_in(folder)
        if place.offset == 0 and not (found and found[-1][0] >= place.segment):
            return place  # the segment is about to be begun
    return first_place(folder)


def read(folder: Path, start: Place, end: JournalEnd, most: int) -> Batch:
    """The next incidents from `start` to `end`, at most `most`. Raises OSError, FileNotFoundError for a lost segment."""
    at, records, size = start, list[Placed](), 0
    while at.segment <= end.segment and len(records) < most:
        last = at.segment == end.segment
        if last and at.offset >= end.offset:
            break
        with segment_path(folder, at.segment).open("rb") as file:
            for line, behind in _lines(file, at, end.offset if last else None):
                if records and (not line or size + len(line) > MAX_BATCH_BYTES):
                    return Batch(start, at, tuple(records))
                at = behind
                if not line:
                    return Batch(start, at, (), unreadable=True)
                if record := _incident(line):
                    records.append(Placed(record, behind))
                    size += len(line)
                    if len(records) == most:
                        break
            else:
                if last:
                    break  # a line that was cut short waits for its newline
                at = Place(_after(folder, at.segment), 0, 0)
    return Batch(start, at, tuple(records))


def incidents_behind(path: Path, offset: int) -> int:
    """How many incidents a segment holds from an offset on; 0 if it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(_incident(line) is not None for line, _ in _lines(file, Place(0, offset, 0), None))
    except OSError:
        return 0


def _after(folder: Path, segment: int) -> int:
    """The segment that follows."""
    for number, _ in segments_in(folder):
        if number > segment:
            return number
    raise FileNotFoundError(f"{folder}: segment {segment + 1} is gone")


def _lines(file: BinaryIO, start: Place, limit: int | None) -> Iterator[tuple[bytes, Place]]:
    """Whole lines up to an offset, with the place behind each; b"" for one that is too long."""
    file.seek(start.offset)
    offset, before = start.offset, b""
    while limit is None or offset < limit:
        line = file.readline(MAX_LINE)
        length, whole = len(line), line.endswith(b"\n")
        if not whole and length == MAX_LINE:
            line = b""
            while more := file.readline(MAX_LINE):
                length += len(more)
                before = more
                if whole := more.endswith(b"\n"):
                    break
        if not whole:
            return
        offset += length
        before = (before + line)[-_CHECKED:]
        yield line, Place(start.segment, offset, _check(file, offset, before))


def _check(file: BinaryIO, offset: int, known: bytes = b"") -> int:
    """A checksum of the bytes before an offset; `known` are those of them that have been read already."""
    length = min(offset, _CHECKED)
    if len(known) < length:
        known = os.pread(file.fileno(), length, offset - length)
    return zlib.crc32(known[len(known) - length :])


def _incident(line: bytes) -> dict[str, Any] | None:
    """The record that a line holds, if it is one of an incident. One that was cut short comes again whole."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("kind") == "incident" and record.get("id") else None
