"""Reads incidents from the journal's segments, starting at a position. Never writes, never blocks.

The journal is the queue of every output: it is on disk, bounded, and holds only committed records.
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

# A record has a first line of 2,048 characters, captures of 512 and ten lines of 16,384; JSON may write six for one.
MAX_LINE = 2 << 20
MAX_BATCH_BYTES = 1 << 20  # of the journal; a longer record is sent alone
_CHECKSUM_BYTES = 64  # before a position; they show whether the file is still the one that was read


class JournalPosition(NamedTuple):
    """A position in the journal: a segment, the offset after a complete line, and a checksum of the bytes before it."""

    segment: int
    offset: int
    checksum: int


class PositionedRecord(NamedTuple):
    """A record and the position after it."""

    record: Mapping[str, Any]
    end: JournalPosition


@dataclass(frozen=True, slots=True)
class Batch:
    """The incidents between two positions. `unreadable`: none, but a line that is too long for a record."""

    start: JournalPosition
    end: JournalPosition
    records: tuple[PositionedRecord, ...]
    unreadable: bool = False

    def first(self, count: int) -> Batch:
        """A batch of only the first `count` records."""
        records = self.records[:count]
        return Batch(self.start, records[-1].end, records)


def end_position(folder: Path, end: JournalEnd) -> JournalPosition:
    try:
        with segment_path(folder, end.segment).open("rb") as file:
            return JournalPosition(end.segment, end.offset, _checksum(file, end.offset))
    except FileNotFoundError:
        return JournalPosition(end.segment, 0, 0)


def start_position(folder: Path) -> JournalPosition:
    """The position of the journal's first record."""
    segments = segments_in(folder)
    return JournalPosition(segments[0][0] if segments else 1, 0, 0)


def valid_position(folder: Path, position: JournalPosition) -> JournalPosition:
    """The same position; the journal's start if the file there is missing or was replaced. Sending twice beats losing."""
    try:
        with segment_path(folder, position.segment).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size >= position.offset and _checksum(file, position.offset) == position.checksum:
                return position
    except FileNotFoundError:
        segments = segments_in(folder)
        if position.offset == 0 and not (segments and segments[-1][0] >= position.segment):
            return position  # the journal has not started this segment yet
    return start_position(folder)


def read_batch(folder: Path, start: JournalPosition, end: JournalEnd, max_records: int) -> Batch:
    """The next incidents between `start` and `end`. Raises OSError; FileNotFoundError for a deleted segment."""
    at, records, size = start, list[PositionedRecord](), 0
    while at.segment <= end.segment and len(records) < max_records:
        is_last = at.segment == end.segment
        if is_last and at.offset >= end.offset:
            break
        with segment_path(folder, at.segment).open("rb") as file:
            for line, line_end in _lines(file, at, end.offset if is_last else None):
                if records and (not line or size + len(line) > MAX_BATCH_BYTES):
                    return Batch(start, at, tuple(records))
                at = line_end
                if not line:
                    return Batch(start, at, (), unreadable=True)
                if record := _incident(line):
                    records.append(PositionedRecord(record, line_end))
                    size += len(line)
                    if len(records) == max_records:
                        break
            else:
                if is_last:
                    break  # an incomplete line waits for its newline
                at = JournalPosition(_next_segment(folder, at.segment), 0, 0)
    return Batch(start, at, tuple(records))


def count_incidents(path: Path, offset: int) -> int:
    """The number of incidents in a segment from an offset on; 0 if it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(_incident(line) is not None for line, _ in _lines(file, JournalPosition(0, offset, 0), None))
    except OSError:
        return 0


def _next_segment(folder: Path, segment: int) -> int:
    for number, _ in segments_in(folder):
        if number > segment:
            return number
    raise FileNotFoundError(f"{folder}: segment {segment + 1} is gone")


def _lines(file: BinaryIO, start: JournalPosition, limit: int | None) -> Iterator[tuple[bytes, JournalPosition]]:
    """Complete lines up to an offset, with the position after each; b"" for a line that is too long."""
    file.seek(start.offset)
    offset, before = start.offset, b""
    while limit is None or offset < limit:
        line = file.readline(MAX_LINE)
        length, is_complete = len(line), line.endswith(b"\n")
        if not is_complete and length == MAX_LINE:
            line = b""
            while more := file.readline(MAX_LINE):
                length += len(more)
                before = more
                if is_complete := more.endswith(b"\n"):
                    break
        if not is_complete:
            return
        offset += length
        before = (before + line)[-_CHECKSUM_BYTES:]
        yield line, JournalPosition(start.segment, offset, _checksum(file, offset, before))


def _checksum(file: BinaryIO, offset: int, before: bytes = b"") -> int:
    """A checksum of the bytes before an offset. before: the last of them, if they were read already."""
    length = min(offset, _CHECKSUM_BYTES)
    if len(before) < length:
        before = os.pread(file.fileno(), length, offset - length)
    return zlib.crc32(before[len(before) - length :])


def _incident(line: bytes) -> dict[str, Any] | None:
    """The incident in a line; None for other records and for an incomplete one, which is written again."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("kind") == "incident" and record.get("id") else None
