"""One step of a pull: the list of a node's segments, and the next range, checked and cleaned. No state, no database."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.fleet.pull.clean import Cleaned, clean
from exporter.fleet.pull.client import Access, SegmentGone, list_segments, read_range
from exporter.fleet.pull.plan import Cursor, Gap, advanced, plan, restarted, tail_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step found. cursor: behind it. size: bytes read of the journal; behind: bytes still to read.

    tag: of the list of segments, if the whole journal was read when it had that tag.
    """

    cursor: Cursor | None
    cleaned: Cleaned = field(default_factory=Cleaned)
    size: int = 0
    behind: int = 0
    gaps: tuple[Gap, ...] = ()
    more: bool = False
    tag: str = ""


def step(base: str, node: str, cursor: Cursor | None, tag: str, access: Access) -> Step:
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
        return Step(cursor=cursor, behind=planned.behind, more=True)  # the next list shows the gap
    before, data = data[: at.overlap], data[at.overlap :]
    after = advanced(at, data, before, planned)
    behind = max(planned.behind - len(data), 0)
    # What is listed of the last segment but does not come is a line that is being written.
    more = after.complete or (behind > 0 and bool(data))
    return Step(
        cursor=after, cleaned=clean(data, node), size=len(data), behind=behind, gaps=planned.gaps, more=more,
        tag="" if more else listing.tag,
    )  # fmt: skip
