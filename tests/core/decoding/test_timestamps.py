"""What of a chunk's lines the next chunk is told, so that a line without a stamp finds the one before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding.heads import Heads
from exporter.core.decoding.prefixes import Clock
from exporter.core.decoding.timestamps import Timestamps
from tests.support.matches import NOW, chunk

LINES = st.lists(st.integers(0, 400).map(lambda size: b"x" * size), max_size=12)


@given(before=LINES, lines=LINES, more=st.sampled_from([b"", b"an open line"]), look_back=st.integers(1, 9))
def test_the_heads_are_those_of_the_last_lines(
    before: list[bytes], lines: list[bytes], more: bytes, look_back: int
) -> None:
    heads = b"\n".join(line[:128] for line in before)
    data = b"".join(line + b"\n" for line in lines)
    stamps = Timestamps(chunk(data + more), Clock(NOW), heads, Heads("plain"), look_back)

    expected = [*heads.split(b"\n"), *(line[:128] for line in lines)][-look_back:]
    assert stamps.heads_before(len(data)) == b"\n".join(expected)
