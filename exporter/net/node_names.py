"""The names of nodes: tools give them with their domain or without."""

from __future__ import annotations


def is_same_node(name: str, node: str) -> bool:
    """Whether two names mean one node: the same, or one is the other without its domain."""
    return name == node or name.startswith(f"{node}.") or node.startswith(f"{name}.")
