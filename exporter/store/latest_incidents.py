"""Reads incidents from the journal's segments backwards, the latest first. Never writes. Each call reads a bounded amount."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from exporter.store.journal import segments_in

BLOCK_BYTES = 256 << 10
MAX_BYTES = 8 << 20  # of the journal, read by one call: 50 ms
_POSITION = re.compile(r"([0-9]{1,9})-([0-9]{1,12})", re.ASCII)


class Before(NamedTuple):
    """A position: what stands before an offset of a segment, and in the segments before it."""

    segment: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From its text, such as 12-3456. Raises ValueError."""
        match = _POSITION.fullmatch(text)
        if not match:
            raise ValueError("not a position; use `next` of the previous page")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.segment}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Page:
    """Incidents, the latest first. next: where the next page begins; None at the journal's beginning."""

    incidents: tuple[Mapping[str, Any], ...]
    next: Before | None


def latest_incidents(
    folder: Path,
    count: int,
    *,
    before: Before | None = None,
    is_wanted: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    is_too_old: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    max_bytes: int = MAX_BYTES,
) -> Page:
    """The latest incidents that are wanted, at most `count`. Of several records of an incident, the last one counts.

    is_too_old: tells of a record that no wanted one was written before it. A page may be short of `count`, even empty,
    before the journal's beginning: then `max_bytes` were read. Raises OSError.
    """
    incidents: dict[str, Mapping[str, Any]] = {}
    room = max_bytes
    for segment, path in reversed(segments_in(folder)):
        if before is not None and segment > before.segment:
            continue
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                end = min(before.offset, size) if before is not None and before.segment == segment else size
                for offset, line in _lines_backwards(file, end):
                    incident = _incident(line)
                    if incident is not None:
                        if is_too_old(incident):
                            return Page(tuple(incidents.values()), None)
                        if is_wanted(incident):
                            incidents.setdefault(incident["id"], incident)
                    room -= len(line) + 1
                    if len(incidents) >= count or room <= 0:
                        return Page(tuple(incidents.values()), Before(segment, offset))
        except FileNotFoundError:  # deleted meanwhile, and so are those before it
            break
    return Page(tuple(incidents.values()), None)


def _lines_backwards(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Offset and content of each complete line before an offset, the last one first."""
    rest, at, is_complete = b"", end, False
    while at:
        size = min(BLOCK_BYTES, at)
        at -= size
        rest = os.pread(file.fileno(), size, at) + rest
        first, *lines = rest.split(b"\n")
        offset = at + len(rest)
        for line in reversed(lines):
            offset -= len(line)
            if is_complete:
                yield offset, line
            is_complete = True  # what stands behind the last newline is not written yet
            offset -= 1
        rest = first
    if is_complete and rest:
        yield 0, rest


def _incident(line: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_incident = isinstance(record, dict) and record.get("kind") == "incident" and isinstance(record.get("id"), str)
    return record if is_incident else None
