"""One step of a pull: the list of a node's segments, the next range to read, and its records, checked and cleaned.

No state, no database. Records that name another node are refused.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from exporter.core.diagnosis import record_schema
from exporter.core.diagnosis.record_schema import RefusedRecord, parse
from exporter.fleet.history.insert import NewRows
from exporter.fleet.history.pulled import OVERLAP_BYTES, PullCursor
from exporter.fleet.pull.client import NodeAccess, SegmentGone, list_segments, read_range
from exporter.net.url import is_same_node
from exporter.store.journal import Segment

# Kinds of gaps.
DROPPED, REPLACED = "dropped_segments", "replaced_journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap:
    """Records that may be lost. count: segments."""

    kind: str
    count: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next range: from `cursor` on, to `size` bytes of its segment. bytes_left: of all segments.

    is_last: the segment may grow.
    """

    cursor: PullCursor
    size: int
    is_last: bool
    bytes_left: int
    gaps: tuple[JournalGap, ...] = ()


def plan(cursor: PullCursor | None, segments: Sequence[Segment]) -> Plan | None:
    """The next range to read; None if there is nothing new. Segments are in ascending order."""
    if not segments:
        return None  # an unreadable folder looks like that too, so the cursor stays
    if cursor is None:
        return _plan(PullCursor(segment=segments[0].number), segments)
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
    return _plan(PullCursor(segment=later[0]), segments, gaps)


def restarted(segments: Sequence[Segment]) -> Plan:
    """Another journal stands where the known one was: all of it is to be read. What was read before is recognised."""
    message = (
        "the journal is another one than before and was read from its beginning; the end of the old one may be lost"
    )
    return _plan(
        PullCursor(segment=segments[0].number), segments, (JournalGap(kind=REPLACED, count=1, message=message),)
    )


def advanced(cursor: PullCursor, data: bytes, before: bytes, the_plan: Plan) -> PullCursor:
    """The cursor after `data`. before: the overlap that was read with it."""
    position = cursor.position + len(data)
    return PullCursor(
        segment=cursor.segment,
        position=position,
        tail=tail_of((before + data)[-OVERLAP_BYTES:]) if data else cursor.tail,
        complete=not the_plan.is_last and (position >= the_plan.size or not data),
    )


def tail_of(data: bytes) -> str:
    """The hash that a cursor keeps of the bytes before it."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _plan(cursor: PullCursor, segments: Sequence[Segment], gaps: tuple[JournalGap, ...] = ()) -> Plan:
    bytes_left = sum(size for number, size in segments if number >= cursor.segment) - cursor.position
    size = dict(segments)[cursor.segment]
    return Plan(
        cursor=cursor, size=size, is_last=cursor.segment == segments[-1].number, bytes_left=bytes_left, gaps=gaps
    )  # fmt: skip


def _dropped(first: int, last: int) -> JournalGap:
    which = f"segment {first} was" if first == last else f"segments {first} to {last} were"
    message = f"{which} deleted on the node before they were pulled; pull more often, or raise journal.max_bytes"
    return JournalGap(
        kind=DROPPED,
        count=last - first + 1,
        message=message.replace("before they were", "before it was", first == last),
    )


OTHER_NODE, NOT_A_RECORD, TOO_LONG = REASONS = ("other_node", "not_a_record", "too_long")
_EXAMPLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Records of a node. refused: how many lines by one of REASONS and by what is wrong."""

    rows: NewRows = field(default_factory=NewRows)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


def clean(data: bytes, node: str) -> Cleaned:
    """The usable records of `data`, each with `node` as its node."""
    rows = NewRows()
    refused: Counter[tuple[str, str]] = Counter()
    other_node = ""
    for text in data.split(b"\n"):
        try:
            record = parse(text) if text.strip() else None
        except RefusedRecord as error:
            refused[TOO_LONG if error.reason == record_schema.TOO_LONG else NOT_A_RECORD, error.reason] += 1
            continue
        if record is None:
            continue
        if not is_same_node(record.node, node):
            other_node = other_node or record.node[:_EXAMPLE_CHARS]
            refused[OTHER_NODE, f"they name another node, such as {other_node}"] += 1
            continue
        rows.add(record if record.node == node else record.model_copy(update={"node": node}))
    return Cleaned(rows=rows, refused=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step found. cursor: after it. size: bytes read of the journal.

    tag: of the list of segments, if the whole journal was read when it had that tag.
    """

    cursor: PullCursor | None
    cleaned: Cleaned = field(default_factory=Cleaned)
    size: int = 0
    bytes_left: int = 0
    gaps: tuple[JournalGap, ...] = ()
    more: bool = False
    tag: str = ""


def step(base: str, node: str, cursor: PullCursor | None, tag: str, access: NodeAccess) -> Step:
    """Read the next range of a node's journal. Raises PullFailed."""
    listing = list_segments(base, access, tag)
    if listing is None:
        return Step(cursor=cursor, tag=tag)
    planned = plan(cursor, listing.segments)
    if planned is None:
        return Step(cursor=cursor, tag=listing.tag)
    try:
        at = planned.cursor
        data = read_range(base, access, at.segment, at.position - at.overlap)
        if tail_of(data[: at.overlap]) != (at.tail or tail_of(b"")):
            planned = restarted(listing.segments)
            at = planned.cursor
            data = read_range(base, access, at.segment, 0)
    except SegmentGone:
        return Step(cursor=cursor, bytes_left=planned.bytes_left, more=True)  # the next list shows the gap
    before, data = data[: at.overlap], data[at.overlap :]
    after = advanced(at, data, before, planned)
    bytes_left = max(planned.bytes_left - len(data), 0)
    # What is listed of the last segment but does not come is a line that is being written.
    more = after.complete or (bytes_left > 0 and bool(data))
    return Step(
        cursor=after, cleaned=clean(data, node), size=len(data), bytes_left=bytes_left, gaps=planned.gaps, more=more,
        tag="" if more else listing.tag,
    )  # fmt: skip
