from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from exporter.core.flight_recorder import FILE_NAME, Dump, describe, parse_dump

TRAIN = {"name": "step", "filename": "/home/alice/train.py", "line": 88}
TORCH = {
    "name": "all_reduce",
    "filename": "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py",
    "line": 2,
}


def entry(seq: int, name: str = "nccl:all_reduce", state: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": seq, "profiling_name": name, "state": state, "process_group": ("0", "default_pg"),
        "is_p2p": False, "frames": [TORCH, TRAIN], "time_created_ns": 1, **more,
    }  # fmt: skip


def content(*entries: dict[str, Any], ranks: str = "[0, 1, 2, 3]") -> dict[str, Any]:
    return {"version": "2.4", "pg_config": {"0": {"name": "0", "ranks": ranks}}, "entries": list(entries)}


def dump(rank: int, *entries: dict[str, Any], protocol: int = 2) -> Dump:
    return parse_dump(pickle.dumps(content(*entries), protocol), rank)


def test_a_rank_that_is_behind_is_named_with_the_place_of_its_last_call() -> None:
    waits = [dump(rank, entry(11), entry(12, state="started")) for rank in (0, 1)]
    assert describe([*waits, dump(2, entry(10), entry(11))], [12]) == [
        "group 0: rank 2 finished all_reduce 11, called at train.py:88 step, and has not called the next operation",
        "group 0: ranks 0, 1 wait in all_reduce 12, called at train.py:88 step",
        "group 0: rank 3 left no dump here",
    ]


def test_ranks_that_call_different_operations_at_one_number_are_told_apart() -> None:
    dumps = [dump(0, entry(5, state="started", frames=[])), dump(1, entry(5, "nccl:broadcast", "scheduled", frames=[]))]
    assert describe(dumps, [5])[:2] == ["group 0: rank 0 waits in all_reduce 5", "group 0: rank 1 waits in broadcast 5"]


def test_point_to_point_operations_are_left_out() -> None:
    dumps = [dump(0, entry(5, state="started"), entry(9, "nccl:send", "started", is_p2p=True))]
    assert describe(dumps, [5])[0].startswith("group 0: rank 0 waits in all_reduce 5")
    assert describe(dumps, [9]) == []


def test_dumps_of_another_run_are_not_compared() -> None:
    assert describe([dump(0, entry(7, state="started"))], [12]) == []
    assert describe([dump(0, entry(12))], [12]) == []


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_any_protocol_is_read(protocol: int) -> None:
    assert dump(3, entry(5), protocol=protocol).operations["0"].seq == 5


def test_json_is_read() -> None:
    read = parse_dump(json.dumps(content(entry(5), ranks="0,1")).encode(), 0)
    assert (read.operations["0"].name, read.ranks["0"]) == ("all_reduce", [0, 1])


def test_a_list_with_its_type_is_read_as_the_list() -> None:
    """As torch pickles a list of integers: `build_intlist` is named, and would be called."""
    typed = b"\x80\x02}(X\x04\x00\x00\x00sizectorch.jit._pickle\nbuild_intlist\n(](K\x01K\x02etRu."
    with pytest.raises(ValueError, match="pg_config"):
        parse_dump(typed, 0)  # read, but not a dump


class Call:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (print, ("called",))


def nested(depth: int) -> list[Any]:
    """Small as a pickle, and 2 ** depth items long as a text."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value, value]
    return value


BAD = {
    "a name that is endless": pickle.dumps(content(entry(5, nested(60))), 2),  # type: ignore[arg-type]
    "a huge number": pickle.dumps(content(entry(1 << 200_000)), 2),
    "an infinite number": pickle.dumps(content(entry(float("inf"))), 2),  # type: ignore[arg-type]
    "a negative number": pickle.dumps(content(entry(-1)), 2),
    "empty": b"",
    "text": b"hello\n",
    "cut off": pickle.dumps(content(entry(5)), 2)[:-40],
    "other data": pickle.dumps([1, 2], 2),
    "wrong types": pickle.dumps({"pg_config": {"0": 1}, "entries": [1]}, 2),
    "a huge memo": b"\x80\x02}r\xff\xff\xff\xff.",
    "nothing on the stack": b"\x80\x02u.",
    "deep JSON": b'{"a":' * 100_000,
    "an object": pickle.dumps(Call(), 2),
    "an instance": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "a persistent id": b"\x80\x02K\x01Q.",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_anything_else_is_refused_and_nothing_is_called(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not a dump"):
        parse_dump(data, 0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_3", "comm_lib_trace_rank_3", "node1_dump_3", "nccl_trace_rank_3.json"]
)
def test_the_rank_is_read_from_the_name_of_the_file(name: str) -> None:
    match = FILE_NAME.fullmatch(name)
    assert match
    assert match["rank"] == "3"
