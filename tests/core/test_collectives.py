"""Where ranks wait in their collectives: what their lines prove, merged in any order, bounded whatever they say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest

from exporter.core import collectives
from exporter.core.collectives import (
    MAX_GROUPS,
    MAX_POINTS,
    MAX_RANK,
    Waiting,
    all_of,
    collective_texts,
    collectives_of,
    dump_waiting,
    load_waiting,
    merged,
    waiting_of,
)


def waits(
    rank: int | str, seq: int | str, op: str = "", group: str = "", host: str | None = None, **more: str
) -> Waiting:
    return waiting_of({"seq": str(seq), "op": op, "group": group, **more}, str(rank), host)


def texts(*lines: Waiting) -> list[str]:
    return collective_texts(collectives_of(all_of(lines)))


GROUP = "ID 0 PG GUID 0(default_pg)"


def test_the_rank_with_the_smallest_number_is_behind() -> None:
    others = [waits(rank, 412, "ALLREDUCE", GROUP) for rank in range(8) if rank != 3]
    assert texts(*others, waits(3, 411, "BROADCAST", GROUP, host="n7")) == [
        "group 0(default_pg): rank 3 on n7 is behind, in BROADCAST 411; 7 other ranks wait in ALLREDUCE 412"
    ]


def test_ranks_at_one_place_are_not_behind() -> None:
    report = [waits(rank, 412, "ALLREDUCE", GROUP) for rank in (0, 1)]
    assert texts(*report) == [
        "group 0(default_pg): the 2 ranks that report wait in ALLREDUCE 412; one that prints nothing may be behind"
    ]


def test_all_ranks_of_a_group_at_one_place_are_a_hang() -> None:
    report = [waits(rank, 9, "_ALLGATHER_BASE", GROUP, numel_in="10", numel_out="40") for rank in range(4)]
    assert texts(*report) == [
        "group 0(default_pg): all 4 ranks wait in _ALLGATHER_BASE 9; none is behind: a GPU or the network hangs"
    ]
    assert texts(*report[:2]) == [
        "group 0(default_pg): only ranks 0, 1 report, from _ALLGATHER_BASE 9; 2 of the group's 4 ranks report nothing here"
    ]
    assert texts(report[0]) == [
        "group 0(default_pg): only rank 0 reports, from _ALLGATHER_BASE 9; 3 of the group's 4 ranks report nothing here"
    ]


def test_different_operations_at_one_number_are_told() -> None:
    assert texts(waits(0, 9, "ALLREDUCE", GROUP), *(waits(rank, 9, "BROADCAST", GROUP) for rank in (1, 2))) == [
        "group 0(default_pg): the ranks call different operations at number 9: rank 0 ALLREDUCE, ranks 1, 2 BROADCAST"
    ]


def test_the_size_of_a_group_is_only_what_a_line_proves() -> None:
    sizes = [
        waits(0, 9, "_ALLGATHER_BASE", numel_in="3", numel_out="10"),
        waits(0, 9, "ALLREDUCE", numel_in="10", numel_out="10"),
        waits(0, 9, "_ALLGATHER_BASE", numel_in="0", numel_out="10"),
        waits(0, 9, "_ALLGATHER_BASE", numel_in="1", numel_out="9" * 15),
        merged(
            waits(0, 9, "_ALLGATHER_BASE", numel_in="1", numel_out="8"),
            waits(1, 9, "_ALLGATHER_BASE", numel_in="1", numel_out="4"),
        ),
    ]
    assert [collectives_of(each)[0]["size"] for each in sizes] == [None] * 5
    assert collectives_of(waits(0, 9, "_REDUCE_SCATTER_BASE", numel_in="16", numel_out="2"))[0]["size"] == 8


def test_groups_are_compared_apart() -> None:
    tensor, data = "ID 5 PG GUID 22(TENSOR)", "ID 3 PG GUID 7(DATA)"
    lines = [waits(rank, 900, "ALLREDUCE", tensor) for rank in range(4)] + [
        waits(rank, 31, "", data) for rank in range(4)
    ]
    assert texts(*lines, waits(4, 30, "", data)) == [
        "group 22(TENSOR): the 4 ranks that report wait in ALLREDUCE 900; one that prints nothing may be behind",
        "group 7(DATA): rank 4 is behind, in operation 30; 4 other ranks wait in operation 31",
    ]


def test_a_line_without_a_group_lends_its_operation_to_the_line_with_one() -> None:
    """PyTorch 2.3 names the operation in one line and the group in the next."""
    lines = [waits(rank, 7 - (rank == 1), "ALLREDUCE") for rank in range(3)]
    lines += [waits(rank, 7 - (rank == 1), "", GROUP) for rank in range(3)]
    assert texts(*lines) == ["group 0(default_pg): rank 1 is behind, in ALLREDUCE 6; 2 other ranks wait in ALLREDUCE 7"]


def test_lines_of_several_groups_that_none_names_prove_nothing() -> None:
    assert texts(waits(0, 900, "ALLREDUCE"), waits(0, 31, "BROADCAST"), waits(1, 31, "BROADCAST")) == []
    assert "the lines name no group" in texts(waits(0, 900, "ALLREDUCE"), waits(1, 31, "BROADCAST"))[0]


@pytest.mark.parametrize("op", ["SEND", "RECV"])
def test_point_to_point_operations_have_numbers_of_their_own(op: str) -> None:
    assert texts(waits(0, 3, op, GROUP), waits(1, 900, "ALLREDUCE", GROUP)) == []


@pytest.mark.parametrize(
    ("rank", "seq"),
    [
        ("-1", "3"),
        ("x", "3"),
        (str(MAX_RANK + 1), "3"),
        ("9" * 40, "3"),
        ("0", "9" * 16),
        ("0", ""),
        ("٣", "3"),
        ("1", "٣"),
    ],
)
def test_numbers_that_no_job_has_are_left_out(rank: str, seq: str) -> None:
    assert waits(rank, seq) == ()
    assert waiting_of({"seq": "3"}, None, None) == ()


def test_many_ranks_and_groups_take_bounded_memory() -> None:
    rng = random.Random(1)
    hostile = all_of(
        waits(
            rng.randrange(MAX_RANK),
            rng.randrange(10**14),
            f"op{rng.random()}" * 20,
            f"g{rng.random()}",
            "h" * 999,
        )
        for _ in range(3000)
    )
    one = all_of(waits(rank, rng.randrange(10**14), f"op{rank}" * 20, GROUP, "h" * 999) for rank in range(3000))
    assert len(hostile) <= MAX_GROUPS
    assert len(one[0].points) == 2 * MAX_POINTS
    assert len(json.dumps(collectives_of(one))) < 1 << 14
    assert len(json.dumps(dump_waiting(hostile))) < 1 << 19
    assert collectives_of(one)[0]["reporting"] == 3000


def shuffled(lines: list[Waiting], rng: random.Random) -> Waiting:
    """The lines merged in some order and grouping."""
    parts = list(lines)
    while len(parts) > 1:
        rng.shuffle(parts)
        parts.append(merged(parts.pop(), parts.pop()))
    return parts[0]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_and_repetition_of_lines_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    lines = [
        waits(
            rng.randrange(12), rng.randrange(14), rng.choice(["A", "B", "C", "D", "E", "F", ""]), rng.choice(["", GROUP, "1"]),
            rng.choice([None, "n1", "n2"]), numel_in="1", numel_out=str(rng.choice([8, 12])),
        )
        for _ in range(40)
    ]  # fmt: skip
    whole = all_of(lines)
    assert shuffled([*lines, *rng.choices(lines, k=9)], rng) == whole
    assert load_waiting(json.loads(json.dumps(dump_waiting(whole)))) == whole


def test_the_stored_form_is_refused_if_it_is_another() -> None:
    for broken in ([["x"]], [["g", "y", "1", []]], [["g", 1, "zz", []]], [["g", 1, "1", [[1]]]]):
        with pytest.raises((ValueError, TypeError)):
            load_waiting(broken)


def test_of_five_hundred_ranks_few_are_named() -> None:
    lines: Iterable[Waiting] = (waits(rank, 412 - (rank == 300), "ALLREDUCE", GROUP) for rank in range(512))
    (found,) = collectives_of(all_of(lines))
    assert [place["count"] for place in found["places"]] == [1, 511]
    assert len(found["places"][1]["ranks"]) == collectives.MAX_SHOWN
    assert collective_texts([found]) == [
        "group 0(default_pg): rank 300 is behind, in ALLREDUCE 411; 511 other ranks wait in ALLREDUCE 412"
    ]
