"""Records of one node, checked, and each with that node's name: another node's are refused. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from exporter.core.diagnosis import record_schema
from exporter.core.diagnosis.record_schema import RefusedRecord, as_line, parse
from exporter.net.node_names import is_same_node

OTHER_NODE, NOT_A_RECORD, TOO_LONG = REASONS = ("other_node", "not_a_record", "too_long")
_EXAMPLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Lines of a node. refused: how many lines by one of REASONS and by what is wrong."""

    lines: tuple[bytes, ...] = ()
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


def clean(data: bytes, node: str) -> Cleaned:
    """The usable records of `data` as lines, each with `node` as its node."""
    lines: list[bytes] = []
    refused: Counter[tuple[str, str]] = Counter()
    other_node = ""
    for text in data.split(b"\n"):
        try:
            record = parse(text) if text.strip() else None
        except RefusedRecord as error:
            refused[TOO_LONG if error.reason == record_schema.TOO_LONG else NOT_A_RECORD, error.reason] += 1
            continue
        if record is None:
            continue
        if not is_same_node(record.node, node):
            other_node = other_node or record.node[:_EXAMPLE_CHARS]
            refused[OTHER_NODE, f"they name another node, such as {other_node}"] += 1
            continue
        lines.append(as_line(record if record.node == node else record.model_copy(update={"node": node})))
    return Cleaned(lines=tuple(lines), refused=refused)
