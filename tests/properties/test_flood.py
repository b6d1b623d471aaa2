"""A flood that is folded gives the incidents of all its matches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.diagnosis.incidents import condense
from exporter.core.matching.flood import Flood
from exporter.core.model import MAX_KEPT_MATCHES, Match

WINDOW = 2.0
LINES = st.tuples(
    st.sampled_from(["gpu_fault", "xid_79"]),
    st.sampled_from([None, "0000:3b:00.0"]),
    st.one_of(st.just(0.0), st.floats(-3.0, 5.0), st.sampled_from([WINDOW, -WINDOW])),  # after the line before
    st.sampled_from([None, "0", "7"]),
    st.sampled_from([1, 3 * MAX_KEPT_MATCHES]),  # how often
)


@given(st.lists(LINES, max_size=12), st.integers(0, 12))
def test_a_folded_flood_is_the_same_incidents(
    lines: list[tuple[str, str | None, float, str | None, int]], cut: int
) -> None:
    whole: list[Match] = []
    folded: list[Match] = []
    flood = Flood(folded, WINDOW)
    time = 100.0
    for number, (signature, gpu, later, rank, often) in enumerate(lines):
        if number == cut:  # the next chunk
            flood = Flood(folded, WINDOW, before=flood.end())
        for _ in range(often):
            time += later / often
            match = matched(signature, gpu, time, rank, len(whole))
            whole.append(match)
            if not flood.takes([(signature, gpu, rank)], time):
                flood.add(match, gpu)
    flood.end()
    assert sum(match.lines for match in folded) == len(whole)
    assert condense(folded, WINDOW) == condense(whole, WINDOW)


def test_of_a_flood_little_is_kept() -> None:
    folded: list[Match] = []
    flood = Flood(folded, WINDOW)
    for number in range(1000):
        if not flood.takes([("gpu_fault", None, None)], number / 10):
            flood.add(matched("gpu_fault", None, number / 10, None, number), None)
    flood.end()
    assert len(folded) == MAX_KEPT_MATCHES
    assert (folded[0].lines, folded[0].until) == (991, 99.9)


def test_in_a_later_chunk_one_match_stands_for_all() -> None:
    folded: list[Match] = []
    flood = Flood(folded, WINDOW)
    for number in range(100):
        if number % 25 == 0:  # the next chunk
            flood = Flood(folded, WINDOW, before=flood.end())
        if not flood.takes([("gpu_fault", None, "7")], number / 10):
            flood.add(matched("gpu_fault", None, number / 10, "7", number), None)
    flood.end()
    assert [match.lines for match in folded] == [16, *[1] * 9, 25, 25, 25]
    assert [(match.time, match.until) for match in folded[-3:]] == [(2.5, 4.9), (5.0, 7.4), (7.5, 9.9)]


def matched(signature: str, gpu: str | None, time: float, rank: str | None, number: int) -> Match:
    return Match(
        signature=signature,
        source="kernel",
        origin="boot",
        path="kernel",
        line=number + 1,
        offset=number,
        time=time,
        time_source="log",
        read_at=1000.0,
        text="GPU fault",
        gpu=gpu,
        rank=rank,
    )
