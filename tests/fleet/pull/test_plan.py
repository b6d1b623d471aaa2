"""What to read next, from a cursor and a list of segments: any life of a journal, against a model of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet.history.pulled import PullCursor
from exporter.fleet.pull.step import DROPPED, REPLACED, advanced, plan, tail_of
from exporter.store.journal import Segment

KEPT = 3  # segments


def segments(*sizes: tuple[int, int]) -> list[Segment]:
    return [Segment(*size) for size in sizes]


@pytest.mark.parametrize(
    ("cursor", "listed", "start", "gaps"),
    [
        (None, [], None, []),
        (None, [(3, 10), (4, 5)], (3, 0), []),  # what was before the first pull is no gap
        (PullCursor(segment=3, position=10), [(3, 10)], None, []),
        (PullCursor(segment=3, position=10), [(3, 12)], (3, 10), []),
        (PullCursor(segment=3, position=10), [(3, 10), (4, 5)], (4, 0), []),
        (PullCursor(segment=3, position=10), [], None, []),
        (PullCursor(segment=3, position=10, complete=True), [(4, 5)], (4, 0), []),
        (PullCursor(segment=3, position=10, complete=True), [(3, 10)], None, []),
        # It may have grown before it was deleted.
        (PullCursor(segment=3, position=10), [(4, 5)], (4, 0), [(DROPPED, 1)]),
        (PullCursor(segment=3, position=10), [(7, 5)], (7, 0), [(DROPPED, 4)]),
        (PullCursor(segment=3, position=10, complete=True), [(7, 5)], (7, 0), [(DROPPED, 3)]),
        (PullCursor(segment=3, position=10), [(3, 10), (5, 5)], (5, 0), [(DROPPED, 1)]),
        (PullCursor(segment=3, position=10), [(3, 9)], (3, 0), [(REPLACED, 1)]),
        (PullCursor(segment=3, position=10), [(1, 50)], (1, 0), [(REPLACED, 1)]),
    ],
)
def test_what_is_read_next(
    cursor: PullCursor | None, listed: list[tuple[int, int]], start: tuple[int, int] | None, gaps: list[tuple[str, int]]
) -> None:
    found = plan(cursor, segments(*listed))
    assert (found and (found.cursor.segment, found.cursor.position)) == start
    assert [(gap.kind, gap.count) for gap in (found.gaps if found else ())] == gaps


def test_a_gap_says_which_segments() -> None:
    one, more = (plan(PullCursor(segment=3, complete=True), segments((last, 1))) for last in (5, 9))
    assert one is not None
    assert one.gaps[0].message.startswith("segment 4 was deleted on the node before it was pulled;")
    assert more is not None
    assert more.gaps[0].message.startswith("segments 4 to 8 were deleted on the node before they were pulled;")


STEPS = st.lists(st.one_of(st.just("rotate"), st.just("pull"), st.binary(min_size=1, max_size=40)), max_size=40)


@given(steps=STEPS, count=st.integers(1, 30))
def test_what_is_read_is_what_was_written_but_for_the_segments_that_are_told(
    steps: list[str | bytes], count: int
) -> None:
    """A journal of which three segments are kept, pulled at any time, `count` bytes at a time."""
    journal: dict[int, bytes] = {1: b""}
    dropped: dict[int, bytes] = {}
    read: dict[int, bytes] = {}
    lost: set[int] = set()
    cursor: PullCursor | None = None
    for step in (*steps, "pull"):
        if isinstance(step, bytes):
            journal[max(journal)] += step
        elif step == "rotate":
            journal[max(journal) + 1] = b""
            while len(journal) > KEPT:
                oldest = min(journal)
                dropped[oldest] = journal.pop(oldest)
        else:
            while planned := plan(cursor, [Segment(number, len(data)) for number, data in sorted(journal.items())]):
                at = planned.cursor
                for gap in planned.gaps:
                    assert gap.kind == DROPPED
                    lost |= set(range(at.segment - gap.count, at.segment))
                before = journal[at.segment][at.position - at.overlap : at.position]
                assert tail_of(before) == (at.tail or tail_of(b""))
                data = journal[at.segment][at.position :][:count]
                assert planned.bytes_left == sum(len(d) for n, d in journal.items() if n >= at.segment) - at.position
                read[at.segment] = read.get(at.segment, b"") + data
                after = advanced(at, data, before, planned)
                if after == cursor:
                    break  # the last segment is empty
                cursor = after
    first = min(read, default=1)
    for number, data in (dropped | journal).items():
        if number >= first and number not in lost:
            assert read.get(number, b"") == data
        else:
            assert data.startswith(read.get(number, b""))
