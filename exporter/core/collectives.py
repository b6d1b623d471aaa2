"""Where the ranks of a job wait in their collective operations, as their own lines say. Knows no incidents or files.

All values are bounded, however many ranks report: of each group the lowest and highest sequence numbers are kept, with a
bit for each rank. Merging is associative, commutative and idempotent, so the order and the repetition of lines change
nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar

MAX_GROUPS = 8  # process groups of which some rank hangs; a rank of Megatron is in some ten, and mostly hangs in one
MAX_POINTS = 2  # sequence numbers kept of a group, the lowest and the highest each
MAX_OPERATIONS = 2  # at one sequence number: two are a fault of the program already
MAX_HOSTS = 8  # named at one sequence number
MAX_RANK = (1 << 14) - 1  # 2 KiB of bits; with the bounds above, 200 KiB an incident if a job forges all of it
MAX_SEQ_DIGITS = 15
MAX_NAME = 64  # characters of a group, an operation or a host
MAX_SHOWN = 8  # ranks named in a text or a record
CONTRADICTED = -1
UNNAMED = ""  # the group of a line that names none
# Numbered apart from collectives, so a smaller number says nothing.
_POINT_TO_POINT = ("SEND", "RECV", "RECVANYSOURCE", "COALESCED")
_GUID = re.compile(r"\bPG GUID (?P<guid>\S.*)|GUID (?P<only>\S.*)")
# The size of a group shows in what an operation of all ranks gives to each.
_SIZES: Mapping[str, tuple[str, str]] = {
    "_ALLGATHER_BASE": ("numel_out", "numel_in"),
    "_REDUCE_SCATTER_BASE": ("numel_in", "numel_out"),
}

_K = TypeVar("_K")
_V = TypeVar("_V")


class WaitPoint(NamedTuple):
    """The ranks at one sequence number, as bits: all, and by operation; and the hosts of the lowest of them."""

    ranks: int = 0
    operations: tuple[tuple[str, int], ...] = ()
    hosts: tuple[tuple[int, str], ...] = ()


class Group(NamedTuple):
    """One process group: how many ranks it has, the ranks that report, and their places by number.

    size: 0 if no line tells it, CONTRADICTED if two lines do not agree.
    """

    name: str
    size: int = 0
    ranks: int = 0
    points: tuple[tuple[int, WaitPoint], ...] = ()


Waiting = tuple[Group, ...]


def waiting_of(captures: Mapping[str, str], rank: str | None, host: str | None) -> Waiting:
    """Where a rank waits, from the captures `seq`, `op` and `group` of its line. Empty if a number is missing or absurd."""
    seq = captures.get("seq", "")
    if rank is None or not (_is_number(rank, len(str(MAX_RANK))) and _is_number(seq, MAX_SEQ_DIGITS)):
        return ()
    if (number := int(rank)) > MAX_RANK:
        return ()
    bit, operation = 1 << number, captures.get("op", "")[:MAX_NAME]
    point = WaitPoint(bit, ((operation, bit),) if operation else (), ((number, host[:MAX_NAME]),) if host else ())
    return (Group(_group_name(captures.get("group", "")), _size(captures), bit, ((int(seq), point),)),)


def merged(a: Waiting, b: Waiting) -> Waiting:
    """What two sets of lines say together."""
    if not a or not b or a == b:
        return a or b
    groups = _joined(((group.name, group) for group in (*a, *b)), _merged_groups)
    return tuple(groups[name] for name in sorted(groups)[:MAX_GROUPS])


def all_of(waiting: Iterable[Waiting]) -> Waiting:
    return reduce(merged, waiting, ())


def dump_waiting(waiting: Waiting) -> list[Any]:
    """As plain data for JSON; bits are hexadecimal texts."""
    return [
        [name, size, f"{ranks:x}", [
            [seq, f"{point.ranks:x}", [[op, f"{bits:x}"] for op, bits in point.operations], list(map(list, point.hosts))]
            for seq, point in points
        ]]
        for name, size, ranks, points in waiting
    ]  # fmt: skip


def load_waiting(stored: Iterable[Any]) -> Waiting:
    """What `dump_waiting` wrote. Raises ValueError and TypeError for anything else."""

    def point(bits: str, operations: Iterable[Any], hosts: Iterable[Any]) -> WaitPoint:
        by_operation = tuple((str(op), int(of, 16)) for op, of in operations)
        return WaitPoint(int(bits, 16), by_operation, tuple((int(rank), str(host)) for rank, host in hosts))

    return tuple(
        Group(str(name), int(size), int(ranks, 16), tuple((int(seq), point(*of)) for seq, *of in points))
        for name, size, ranks, points in stored
    )


def collectives_of(waiting: Waiting) -> list[dict[str, Any]]:
    """Each group as an object of a record: its name, its size if known, how many ranks report, and their places.

    Where a rank is at two places, lines of several groups that none names are mixed: those are left out.
    """
    named = [group for group in waiting if group.name != UNNAMED]
    unnamed = next((group for group in waiting if group.name == UNNAMED), Group(UNNAMED))
    records = [_recorded(_with_operations(group, unnamed)) for group in named]
    rest = _without(unnamed, named)
    if rest.points and not _is_mixed(rest):
        records.append(_recorded(rest))
    return [record for record in records if record["places"]]


def collective_texts(collectives: Iterable[Mapping[str, Any]]) -> list[str]:
    """What `collectives_of` tells, one sentence a group: who is behind, or that nobody who reports is."""
    return [text for group in collectives if (text := _text(group))]


def _text(group: Mapping[str, Any]) -> str:
    points, reporting, size = group["places"], group["reporting"], group.get("size") or 0
    missing = max(0, size - reporting)
    if not points or (reporting < 2 and not missing):
        return ""
    first, clauses = points[0], []
    if len(points) > 1:
        clauses = [f"{_who(first)} {_be(first)} behind, in {_at(first)}", _others(points, reporting - first["count"])]
    elif len(first["operations"]) > 1:
        calls = ", ".join(f"{_who(operation)} {operation['op']}" for operation in first["operations"])
        clauses = [f"the ranks call different operations at number {first['seq']}: {calls}"]
    elif missing:
        clauses = [f"only {_who(first)} {'reports' if reporting == 1 else 'report'}, from {_at(first)}"]
    elif size:
        clauses = [f"all {size:,} ranks wait in {_at(first)}", "none is behind: a GPU or the network hangs"]
    else:
        clauses = [f"the {reporting:,} ranks that report wait in {_at(first)}", "one that prints nothing may be behind"]
    if missing:
        clauses.append(f"{missing:,} of the group's {size:,} ranks report nothing here")
    if not group.get("group") and len(points) > 1:
        clauses.append("the lines name no group: this holds if they are of one")
    return (f"group {group['group']}: " if group.get("group") else "") + "; ".join(clauses)


def _others(points: Sequence[Mapping[str, Any]], count: int) -> str:
    where = _at(points[1]) if len(points) == 2 else f"operations up to {points[-1]['seq']}"
    return f"{count:,} other {'rank waits' if count == 1 else 'ranks wait'} in {where}"


def _be(point: Mapping[str, Any]) -> str:
    return "is" if point["count"] == 1 else "are"


def _at(point: Mapping[str, Any]) -> str:
    names = [operation["op"] for operation in point["operations"]]
    return f"{' and '.join(names) or 'operation'} {point['seq']}"


def _who(point: Mapping[str, Any]) -> str:
    """The ranks at a place, the first by name, with the host where its line tells it."""
    hosts = point.get("hosts") or {}
    shown = [f"{rank} on {hosts[rank]}" if rank in hosts else str(rank) for rank in point["ranks"]]
    more = point["count"] - len(shown)
    return f"rank{'s' if point['count'] != 1 else ''} {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")


def _recorded(group: Group) -> dict[str, Any]:
    points = [
        (seq, point) for seq, point in group.points if not any(op in _POINT_TO_POINT for op, _ in point.operations)
    ]
    reporting = 0
    for _, point in points:
        reporting |= point.ranks
    # Between the lowest and highest places that are kept, others may have been dropped.
    if len(group.points) == 2 * MAX_POINTS:
        reporting = group.ranks
    return {
        "group": group.name or None,
        "size": group.size if group.size > 0 else None,
        "reporting": reporting.bit_count(),
        "places": [_recorded_point(seq, point) for seq, point in points],
    }


def _recorded_point(seq: int, point: WaitPoint) -> dict[str, Any]:
    return {
        "seq": seq,
        "count": point.ranks.bit_count(),
        "ranks": [str(rank) for rank in _first(point.ranks)],
        "operations": [
            {"op": op, "count": bits.bit_count(), "ranks": [str(rank) for rank in _first(bits)]}
            for op, bits in point.operations
        ],
        "hosts": {str(rank): host for rank, host in point.hosts},
    }


def _with_operations(group: Group, unnamed: Group) -> Group:
    """A group with the operations that lines without its name tell of the same ranks at the same numbers."""
    others = dict(unnamed.points)

    def with_operations(seq: int, point: WaitPoint) -> WaitPoint:
        more = others.get(seq, WaitPoint())
        more = WaitPoint(0, tuple((op, bits & point.ranks) for op, bits in more.operations if bits & point.ranks))
        return _merged_points(point, more)

    size = group.size or (unnamed.size if unnamed.ranks == group.ranks else 0)
    return group._replace(size=size, points=tuple((seq, with_operations(seq, point)) for seq, point in group.points))


def _without(group: Group, others: Iterable[Group]) -> Group:
    """What no other group tells too, by rank and number."""
    counted: dict[int, int] = {}
    for other in others:
        for seq, point in other.points:
            counted[seq] = counted.get(seq, 0) | point.ranks

    def rest(bits: int, seq: int) -> int:
        return bits & ~counted.get(seq, 0)

    points = tuple(
        (seq, WaitPoint(
            rest(point.ranks, seq),
            tuple((op, rest(bits, seq)) for op, bits in point.operations if rest(bits, seq)),
            tuple((rank, host) for rank, host in point.hosts if rest(1 << rank, seq)),
        ))
        for seq, point in group.points
        if rest(point.ranks, seq)
    )  # fmt: skip
    return group._replace(points=points)


def _is_mixed(group: Group) -> bool:
    seen = 0
    for _, point in group.points:
        if seen & point.ranks:
            return True
        seen |= point.ranks
    return False


def _merged_groups(a: Group, b: Group) -> Group:
    points = _joined((*a.points, *b.points), _merged_points)
    numbers = sorted(points)
    kept = numbers if len(numbers) <= 2 * MAX_POINTS else [*numbers[:MAX_POINTS], *numbers[-MAX_POINTS:]]
    size = a.size if a.size == b.size or not b.size else b.size if not a.size else CONTRADICTED
    return Group(a.name, size, a.ranks | b.ranks, tuple((seq, points[seq]) for seq in kept))


def _merged_points(a: WaitPoint, b: WaitPoint) -> WaitPoint:
    operations = _joined((*a.operations, *b.operations), int.__or__)
    hosts = _joined((*a.hosts, *b.hosts), min)
    return WaitPoint(
        a.ranks | b.ranks,
        tuple((op, operations[op]) for op in sorted(operations)[:MAX_OPERATIONS]),
        tuple((rank, hosts[rank]) for rank in sorted(hosts)[:MAX_HOSTS]),
    )


def _joined(pairs: Iterable[tuple[_K, _V]], join: Callable[[_V, _V], _V]) -> dict[_K, _V]:
    joined: dict[_K, _V] = {}
    for key, value in pairs:
        joined[key] = join(joined[key], value) if key in joined else value
    return joined


def _first(ranks: int) -> list[int]:
    """The lowest of some ranks."""
    shown: list[int] = []
    while ranks and len(shown) < MAX_SHOWN:
        lowest = ranks & -ranks
        shown.append(lowest.bit_length() - 1)
        ranks ^= lowest
    return shown


def _group_name(text: str) -> str:
    """What tells a group from others on all ranks: its global id, where the line has one."""
    guid = _GUID.search(f"PG {text}") if "GUID " in text else None
    return (guid["guid"] or guid["only"] if guid else text)[:MAX_NAME]


def _size(captures: Mapping[str, str]) -> int:
    """The number of ranks of a group, where the line proves it; 0 if not."""
    whole, part = (captures.get(name, "") for name in _SIZES.get(captures.get("op", ""), ("", "")))
    if not (_is_number(whole, MAX_SEQ_DIGITS) and _is_number(part, MAX_SEQ_DIGITS)) or not int(part):
        return 0
    size, rest = divmod(int(whole), int(part))
    return size if not rest and 1 < size <= MAX_RANK else 0


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits
