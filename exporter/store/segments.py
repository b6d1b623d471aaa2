"""Reads ranges of the journal's segments as they are on disk, for clients that copy the journal. Never writes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exporter.store.journal import segment_path, segments_in

# In one range. A line of the journal is shorter (see MAX_LINE of exporter.outputs.journal_reader), so a range has a whole one.
MAX_RANGE_BYTES = 4 << 20


class Segment(NamedTuple):
    """An existing segment. All but the last one are complete: nothing is written to them any more."""

    number: int
    size: int


def list_segments(folder: Path) -> list[Segment]:
    """The existing segments, oldest first."""
    segments = []
    for number, path in segments_in(folder):
        with suppress(FileNotFoundError):  # deleted meanwhile
            segments.append(Segment(number, path.stat().st_size))
    return segments


def read_range(folder: Path, number: int, offset: int, count: int) -> bytes:
    """Up to `count` bytes from an offset on, cut after the last newline. Raises FileNotFoundError for a deleted segment.

    A first line that is longer is returned whole if MAX_RANGE_BYTES have room for it, else the beginning of it.
    """
    with segment_path(folder, number).open("rb") as file:
        data = os.pread(file.fileno(), count, offset)
        if b"\n" not in data and len(data) == count < MAX_RANGE_BYTES:
            data = os.pread(file.fileno(), MAX_RANGE_BYTES, offset)
            data = data[: data.find(b"\n") + 1] or data
    if len(data) == MAX_RANGE_BYTES and b"\n" not in data:
        return data
    return data[: data.rfind(b"\n") + 1]
