"""Records of one node, made safe to store: each line names that node, is one JSON object, and is not too long. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from exporter.core.text.printable import printable
from exporter.fleet.history.insert import MAX_RECORD_CHARS

KINDS = ("incident", "facts", "heartbeat", "job_end", "fault")
OTHER_NODE, NOT_A_RECORD, TOO_LONG = REASONS = ("other_node", "not_a_record", "too_long")
_EXAMPLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Lines of a node. refused: how many lines by reason; other_node: a name that refused records have."""

    lines: tuple[bytes, ...]
    refused: dict[str, int]
    other_node: str = ""


class _Refused(ValueError):
    pass


def clean(data: bytes, node: str) -> Cleaned:
    """The usable records of `data` as lines, each with `node` as its node.

    A record is written anew, so that no reader of JSON sees another node, or another number of records, in it.
    """
    lines: list[bytes] = []
    refused: dict[str, int] = {}
    other_node = ""
    for text in data.split(b"\n"):
        if not text.strip():
            continue
        try:
            record = _record(text)
        except _Refused as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            continue
        if record["kind"] not in KINDS:
            continue  # of a later version
        if not is_same_node(record.get("node"), node):
            refused[OTHER_NODE] = refused.get(OTHER_NODE, 0) + 1
            other_node = other_node or printable(str(record.get("node"))[:_EXAMPLE_CHARS])
            continue
        record["node"] = node
        # Lone surrogates, which JSON can write but UTF-8 cannot, become question marks.
        lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n")
    return Cleaned(lines=tuple(lines), refused=refused, other_node=other_node)


def is_same_node(name: object, node: str) -> bool:
    """Whether a record's name means the target's node: the same, or one is the other without its domain."""
    if not isinstance(name, str) or not name:
        return False
    return name == node or name.startswith(f"{node}.") or node.startswith(f"{name}.")


def _record(text: bytes) -> dict[str, Any]:
    if len(text) > MAX_RECORD_CHARS:
        raise _Refused(TOO_LONG)
    try:
        record = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise _Refused(NOT_A_RECORD) from None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise _Refused(NOT_A_RECORD)
    return record


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("number out of range")
    return number
