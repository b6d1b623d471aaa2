"""What to read next from a node's journal: from a cursor and the node's list of segments. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.store.segments import Segment

OVERLAP_BYTES = 256  # read again before a cursor; they show whether the journal is still the one that was read

# Kinds of gaps.
DROPPED, REPLACED = "dropped_segments", "replaced_journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a node's journal was read. tail: the hash of the last bytes before it, at most OVERLAP_BYTES.

    complete: the segment was read to its end, and nothing is written to it any more.
    """

    segment: int
    position: int = 0
    tail: str = ""
    complete: bool = False

    @property
    def overlap(self) -> int:
        """How many bytes before the position `tail` covers."""
        return min(self.position, OVERLAP_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Records that may be lost. count: segments."""

    kind: str
    count: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next range: from `cursor` on, to `size` bytes of its segment. behind: all bytes that are not read yet.

    is_last: the segment may grow.
    """

    cursor: Cursor
    size: int
    is_last: bool
    behind: int
    gaps: tuple[Gap, ...] = ()


def plan(cursor: Cursor | None, segments: Sequence[Segment]) -> Plan | None:
    """The next range to read; None if there is nothing new. Segments are in ascending order."""
    if not segments:
        return None  # an unreadable folder looks like that too, so the cursor stays
    if cursor is None:
        return _plan(Cursor(segment=segments[0].number), segments)
    sizes = dict(segments)
    size = sizes.get(cursor.segment)
    if (size is not None and size < cursor.position) or segments[-1].number < cursor.segment:
        return restarted(segments)
    if size is not None and not cursor.complete and (size > cursor.position or cursor.segment == segments[-1].number):
        return _plan(cursor, segments) if size > cursor.position else None
    later = [number for number, _ in segments if number > cursor.segment]
    if not later:
        return None
    # A segment that is gone may have grown after it was read, unless it was read to its end or is listed with that size.
    first_lost = cursor.segment + 1 if cursor.complete or size is not None else cursor.segment
    gaps = (_dropped(first_lost, later[0] - 1),) if later[0] > first_lost else ()
    return _plan(Cursor(segment=later[0]), segments, gaps)


def restarted(segments: Sequence[Segment]) -> Plan:
    """Another journal stands where the known one was: all of it is to be read. What was read before is recognised."""
    what = "the journal is another one than before and was read from its beginning; the end of the old one may be lost"
    return _plan(Cursor(segment=segments[0].number), segments, (Gap(kind=REPLACED, count=1, what=what),))


def advanced(cursor: Cursor, data: bytes, before: bytes, the_plan: Plan) -> Cursor:
    """The cursor behind `data`. before: the overlap that was read with it."""
    position = cursor.position + len(data)
    return Cursor(
        segment=cursor.segment,
        position=position,
        tail=tail_of((before + data)[-OVERLAP_BYTES:]) if data else cursor.tail,
        complete=not the_plan.is_last and (position >= the_plan.size or not data),
    )


def tail_of(data: bytes) -> str:
    """The hash that a cursor keeps of the bytes before it."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _plan(cursor: Cursor, segments: Sequence[Segment], gaps: tuple[Gap, ...] = ()) -> Plan:
    behind = sum(size for number, size in segments if number >= cursor.segment) - cursor.position
    size = dict(segments)[cursor.segment]
    return Plan(
        cursor=cursor, size=size, is_last=cursor.segment == segments[-1].number, behind=behind, gaps=gaps
    )  # fmt: skip


def _dropped(first: int, last: int) -> Gap:
    which = f"segment {first} was" if first == last else f"segments {first} to {last} were"
    what = f"{which} deleted on the node before they were pulled; pull more often, or raise journal.max_bytes"
    return Gap(
        kind=DROPPED, count=last - first + 1, what=what.replace("before they were", "before it was", first == last)
    )
