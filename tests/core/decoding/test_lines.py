"""Lines as ranges of a block: which of them hold a hit, and what of a long one is looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.decoding.lines import Candidate, candidates, following, newlines, pieces
from exporter.core.patterns.prefilter import Hits, PythonEngine
from exporter.core.patterns.required_literals import Gate


def hits(block: bytes, *literals: bytes) -> Hits:
    return PythonEngine([Gate(literal) for literal in literals]).scan(block)


def lines(block: bytes, *literals: bytes, limit: int | None = None) -> list[bytes]:
    """The lines that hold one of the literals."""
    found = candidates(block, hits(block, *literals), len(block) if limit is None else limit)
    return [block[c.start : c.stop] for c in found]


def looked_at(line: bytes, *literals: bytes, longest: int) -> list[bytes]:
    """What is looked at of a block that is one line."""
    (candidate,) = candidates(line, hits(line, *literals), len(line))
    return [line[p.start : p.stop] for p in pieces(line, candidate, longest)]


def test_a_line_with_many_hits_is_given_once_with_all_its_gates() -> None:
    block = b"one\nGPU fault, GPU fault\nfault\n"
    assert list(candidates(block, hits(block, b"GPU", b"fault"), len(block))) == [
        Candidate(4, 24, [7, 13, 18, 24], [0, 1, 0, 1]),
        Candidate(25, 30, [30], [1]),
    ]


def test_lines_end_at_newlines_and_nowhere_else() -> None:
    block = b"a\x0bGPU\x0c\x85\x1c\xe2\x80\xa8b\rGPU\x00\n\nGPU"
    assert lines(block, b"GPU") == [b"a\x0bGPU\x0c\x85\x1c\xe2\x80\xa8b\rGPU\x00", b"GPU"]


def test_a_hit_at_the_very_end_of_a_line_belongs_to_it() -> None:
    assert lines(b"GPU\nGPU\nGPU", b"GPU") == [b"GPU", b"GPU", b"GPU"]


def test_a_line_behind_the_limit_is_not_looked_at() -> None:
    assert lines(b"GPU 1\nGPU 2", b"GPU", limit=6) == [b"GPU 1"]


def test_only_the_parts_between_carriage_returns_that_hold_a_hit_are_looked_at() -> None:
    bar = b"".join(b"\r%3d%%" % n for n in range(100))
    assert looked_at(b"GPU 1" + bar + b"\rGPU 2\r\r", b"GPU", longest=100) == [b"GPU 1", b"GPU 2"]


def test_of_a_long_part_the_surroundings_of_each_hit_are_looked_at() -> None:
    line = b"a" * 100 + b"GPU" + b"b" * 100 + b"GPU" + b"c" * 100
    assert looked_at(line, b"GPU", longest=20) == [b"a" * 7 + b"GPU" + b"b" * 10, b"b" * 7 + b"GPU" + b"c" * 10]


def test_a_hit_at_the_edge_of_a_window_has_one_of_its_own() -> None:
    line = b"x" * 40 + b"GPU 1" + b"yy" + b"GPU 22" + b"z" * 40
    assert any(b"GPU 22zz" in window for window in looked_at(line, b"GPU", longest=20))


def test_a_window_says_where_its_part_begins() -> None:
    line = b"bar\r" + b"x" * 40 + b"GPU" + b"x" * 40
    (candidate,) = candidates(line, hits(line, b"GPU"), len(line))
    (piece,) = pieces(line, candidate, 20)
    assert piece.part == 4
    assert piece.start > 4


def test_the_lines_behind_are_given_with_whether_they_are_all_there() -> None:
    block = b"a\nbb\n\ncc"
    assert following(block, 1, 0) == ([], True)
    assert following(block, 1, 2) == ([(2, 4), (5, 5)], True)
    assert following(block, 1, 3) == ([(2, 4), (5, 5), (6, 8)], False)  # the last may still grow
    assert following(block, 1, 9) == ([(2, 4), (5, 5), (6, 8)], False)
    assert following(b"a\n", 1, 1) == ([], False)


BLOCKS = st.lists(st.sampled_from([b"\n", b"\r", b"\x00", b"\xff", b"\x1b", b"G", b"P", b"U", b"GPU", b"x"])).map(
    b"".join
)


@given(BLOCKS)
def test_every_line_with_a_hit_is_found_and_no_other(block: bytes) -> None:
    assert lines(block, b"GPU", b"U\xff") == [line for line in block.split(b"\n") if b"GPU" in line or b"U\xff" in line]


@given(BLOCKS.filter(lambda block: b"GPU" in block), st.integers(8, 40))
def test_every_hit_of_a_line_is_looked_at_with_what_is_around_it(block: bytes, longest: int) -> None:
    line = next(line for line in block.split(b"\n") if b"GPU" in line)
    (candidate,) = candidates(line, hits(line, b"GPU"), len(line))
    windows = list(pieces(line, candidate, longest))
    for window in windows:
        assert window.stop - window.start <= longest
        assert b"\r" not in line[window.part : window.stop]
        assert window.part == line.rfind(b"\r", 0, window.start) + 1
    for end in candidate.ends:
        part_end = (line + b"\r").find(b"\r", end)
        assert any(w.start <= end - 3 and min(end + longest // 4, part_end) <= w.stop for w in windows)


@given(
    st.lists(st.sampled_from([b"\n", b"a\n", b"b" * 40 + b"\n", b"c" * 3000])),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
def test_newlines_are_counted_however_long_the_lines_are(parts: list[bytes], start: int, stop: int) -> None:
    block = b"".join(parts)
    assert newlines(block, start, stop) == block.count(b"\n", start, stop)
