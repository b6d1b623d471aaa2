"""PyTorch's flight recorder: the last collective operations of each rank, which it dumps when one times out.

A dump is a pickle, or JSON, that a job's user wrote. Its data is read by an interpreter of the operations that build data;
nothing of it is imported or called. Format: version 2 of torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

import json
import pickletools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

MAX_SHOWN = 8  # ranks named in a sentence, and sentences of a group
MAX_NAME = 96  # characters of a group, an operation or a frame
MAX_NUMBER = 10**15
# A pickle may hold one list in many places, so what is read of each is bounded.
MAX_GROUPS = 64
MAX_RANKS = 1 << 14
MAX_FRAMES = 64
FILE_NAME = re.compile(r".*(?:trace_rank|_dump)_(?P<rank>[0-9]{1,5})(?:\.json)?")
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/")  # their frames do not say where the program stands


class Operation(NamedTuple):
    """The latest collective operation of a rank in a process group.

    frame: where the program called it, as "train.py:88 step"; "" if not recorded.
    """

    seq: int
    name: str
    is_complete: bool
    frame: str


class Dump(NamedTuple):
    """What one rank recorded. Both by the name of the process group; ranks are those of the whole group."""

    rank: int
    operations: Mapping[str, Operation]
    ranks: Mapping[str, Sequence[int]]


def parse_dump(data: bytes, rank: int) -> Dump:
    """Read the dump of one rank. Raises ValueError for anything else."""
    try:
        content = json.loads(data) if data.lstrip()[:1] == b"{" else _unpickle(data)
        groups = islice(content["pg_config"].items(), MAX_GROUPS)
        ranks = {_text(name): _ranks(group["ranks"]) for name, group in groups}
        return Dump(rank, dict(_latest(content["entries"])), ranks)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a dump of PyTorch's flight recorder: {error}") from error


def describe(dumps: Iterable[Dump], waiting: Iterable[int]) -> list[str]:
    """Compare the ranks of each process group in which an operation with one of these numbers waits.

    Empty if none does: the dumps are of another run.
    """
    of_rank = {dump.rank: dump for dump in dumps}
    numbers = set(waiting)
    sentences: list[str] = []
    groups = {name for dump in of_rank.values() for name in dump.operations}
    for group in sorted(groups)[:MAX_GROUPS]:
        latest = {rank: dump.operations[group] for rank, dump in of_rank.items() if group in dump.operations}
        if any(operation.seq in numbers and not operation.is_complete for operation in latest.values()):
            members = max((dump.ranks.get(group, ()) for dump in of_rank.values()), key=len)
            sentences += _sentences(group, latest, [rank for rank in members if rank not in latest])
    return sentences


def _sentences(group: str, latest: Mapping[int, Operation], missing: Sequence[int]) -> Iterator[str]:
    alike: dict[Operation, list[int]] = defaultdict(list)
    for rank, operation in sorted(latest.items()):
        alike[operation].append(rank)
    for operation, ranks in sorted(alike.items())[:MAX_SHOWN]:
        name = f"{operation.name} {operation.seq}"
        called = f", called at {operation.frame}" if operation.frame else ""
        if operation.is_complete:
            state = f"finished {name}{called}, and {'has' if len(ranks) == 1 else 'have'} not called the next operation"
        else:
            state = f"{'waits' if len(ranks) == 1 else 'wait'} in {name}{called}"
        yield f"group {group}: {_named(ranks)} {state}"
    if len(alike) > MAX_SHOWN:
        yield f"group {group}: the other ranks are in {len(alike) - MAX_SHOWN} later states"
    if missing:
        yield f"group {group}: {_named(missing)} left no dump here"


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - MAX_SHOWN} more" if len(ranks) > MAX_SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MAX_SHOWN]))}{more}"


def _latest(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Operation]]:
    """Of each group the first operation that is not complete, else the last one."""
    by_group: dict[str, list[Operation]] = defaultdict(list)
    for entry in entries:
        if not entry.get("is_p2p"):  # numbered apart
            name = _text(entry["profiling_name"]).removeprefix("nccl:")
            seq, is_complete = _number(entry["collective_seq_id"]), entry["state"] == "completed"
            operation = Operation(seq, name, is_complete, _frame(entry.get("frames") or ()))
            by_group[_text(entry["process_group"][0])].append(operation)
    for group, operations in by_group.items():
        pending = [operation for operation in operations if not operation.is_complete]
        yield group, min(pending) if pending else max(operations)


def _frame(frames: Iterable[Mapping[str, Any]]) -> str:
    """The innermost frame of the program itself."""
    for frame in islice(frames, MAX_FRAMES):
        path = frame["filename"]
        if path.endswith(".py") and not any(library in path for library in _LIBRARIES):
            return f"{_text(path.rpartition('/')[2])}:{_number(frame['line'])} {_text(frame['name'])}"
    return ""


def _ranks(value: str | Iterable[int]) -> list[int]:
    numbers = (int(match[0]) for match in re.finditer(r"\d+", value)) if isinstance(value, str) else value
    return [_number(rank) for rank in islice(numbers, MAX_RANKS)]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is not text")
    return value[:MAX_NAME]


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < MAX_NUMBER:
        raise ValueError("a number is out of range")
    return value


def _unpickle(data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []  # where in the stack the contents of a list, dictionary or tuple begin
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name == "STOP":
            return stack.pop()
        if name == "MARK":
            marks.append(len(stack))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name == "REDUCE":  # of a list with its type: only the list counts
            arguments = stack.pop()
            stack[-1] = arguments[0]
        elif name in ("APPEND", "SETITEM"):
            _fill(stack, len(stack) - (1 if name == "APPEND" else 2))
        elif name in ("APPENDS", "SETITEMS", "TUPLE"):
            start = marks.pop()
            if name == "TUPLE":
                stack[start:] = [tuple(stack[start:])]
            else:
                _fill(stack, start)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the operation {name} does not build data")
    raise ValueError("cut off")


def _fill(stack: list[Any], start: int) -> None:
    """Move what lies from `start` on into the list or dictionary below it."""
    items, target = stack[start:], stack[start - 1]
    del stack[start:]
    if isinstance(target, list):
        target.extend(items)
    else:
        target.update(zip(items[::2], items[1::2], strict=True))


_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "GLOBAL": lambda: None,  # named, not imported
}
_VALUES = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
