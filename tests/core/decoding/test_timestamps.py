"""What of a chunk's lines the next chunk is told, so that a line without a timestamp finds the one before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import MAX_LINES_BACK, NO_STAMP, Heads, Nearest, Timestamps
from tests.support.matches import NOW, chunk

STAMPED = b"2023-11-12T23:41:00Z step"
LINES = st.lists(st.sampled_from([b"", b"x" * 300, STAMPED, b"x"]), max_size=12)
SILENCE = st.lists(st.just(b"x"), max_size=2 * MAX_LINES_BACK)


def nearest(lines: list[bytes]) -> Nearest:
    """As a stranger would look: from the last line back."""
    for distance, line in enumerate(reversed(lines), 1):
        if line.startswith(STAMPED):
            return ((1699832460.0, "log"), distance) if distance <= MAX_LINES_BACK else NO_STAMP
    return NO_STAMP


@given(before=LINES, silence=SILENCE, lines=LINES, more=st.sampled_from([b"", b"an open line"]))
def test_the_next_chunk_is_told_the_nearest_timestamp_of_all_lines(
    before: list[bytes], silence: list[bytes], lines: list[bytes], more: bytes
) -> None:
    told = nearest([*before, *silence])
    data = b"".join(line + b"\n" for line in lines)
    stamps = Timestamps(chunk(data + more), Clock(NOW), told, Heads("plain"))
    assert stamps.nearest_before(len(data)) == nearest([*before, *silence, *lines])


@pytest.mark.parametrize(("written_at", "source"), [(NOW - 86_400, "file"), (None, "observed")])
def test_a_line_with_the_kernels_clock_alone_is_of_the_logs_last_change(written_at: float | None, source: str) -> None:
    stamps = Timestamps(
        chunk(b"[   12.500000] NVRM: Xid\n", source="kernel", written_at=written_at),
        Clock(NOW),
        NO_STAMP,
        Heads("plain"),
    )
    assert stamps.time_of(0, 24, None, 12.5) == (12.5, source)
