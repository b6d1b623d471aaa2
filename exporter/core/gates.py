"""Literals that every match of a pattern must contain: the gate that a line passes before a regex looks at it.

Read off the parsed pattern, so an author writes no gate and none can be forgotten. A gate never crosses a character
that a carrier may rewrite (docker's JSON escapes quotes, `<`, `>`, `&` and backslashes; the kernel escapes control
characters; ANSI colours stand around words but not inside them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.core.patterns import REPEATS, inside, parse, sre

MIN_LENGTH = 4  # shorter ones hit ordinary text: in 512 MB of training logs "NaN" hit 0.4 % of lines, "HSA_" none
MAX_LENGTH = 24  # longer ones hit no rarer, and colours or line wraps may cut them
MAX_ALTERNATIVES = 64
_REWRITTEN = frozenset("\"'\\<>&`\x7f") | {chr(c) for c in range(32)}


class NoGate(ValueError):
    """A pattern without a required literal would have to be tried on every line."""


@dataclass(frozen=True, slots=True, order=True)
class Gate:
    """One literal. `ignore_case`: ASCII letters of either case count."""

    literal: bytes
    ignore_case: bool = False


def derive(pattern: str, *, ignore_case: bool = False) -> frozenset[Gate]:
    """The best set of gates of which every match of `pattern` contains one, in its first line.

    Raises NoGate when there is none of at least MIN_LENGTH bytes, and Unreadable.
    """
    parsed = parse(pattern, ignore_case=ignore_case)
    any_case = bool(parsed.state.flags & re.IGNORECASE) or _ignores_case_within(parsed)
    best = _best(_of_sequence(list(parsed)))
    if best is None:
        raise NoGate(
            f"has no literal of {MIN_LENGTH} characters that every match must contain in its first line; add one"
        )
    return frozenset(Gate(text.lower().encode() if any_case else text.encode(), any_case) for text in best)


def _of_sequence(nodes: Sequence[Any]) -> list[frozenset[str]]:
    """All gate sets that a sequence offers: each of its literal runs, and each of its required parts."""
    found: list[frozenset[str]] = []
    run: list[str] = []

    def close() -> None:
        if run:
            found.append(frozenset(["".join(run)]))
            run.clear()

    for op, arg in nodes:
        if op is sre.LITERAL and arg == 10:  # only the first line of a block is gated
            break
        if op is sre.LITERAL and chr(arg) not in _REWRITTEN and arg < 128:
            run.append(chr(arg))
            continue
        if op is sre.SUBPATTERN and _is_plain(arg[-1]):
            run.extend(chr(a) for _, a in arg[-1])
            continue
        if op is sre.AT:  # a position has no width
            continue
        close()
        found.extend(_of_node(op, arg))
        if _may_hold_newline(op, arg):
            break
    close()
    return found


def _of_node(op: Any, arg: Any) -> list[frozenset[str]]:
    if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP) or (op in REPEATS and arg[0] >= 1):
        return _of_sequence(list(inside(op, arg)[0]))
    if op is sre.BRANCH:
        choices = [_best(_of_sequence(list(branch))) for branch in inside(op, arg)]
        union = frozenset[str]().union(*(c for c in choices if c))
        if all(choices) and len(union) <= MAX_ALTERNATIVES:
            return [union]
    return []


def _is_plain(nodes: Iterable[Any]) -> bool:
    return all(op is sre.LITERAL and chr(arg) not in _REWRITTEN and arg < 128 for op, arg in nodes)


def _may_hold_newline(op: Any, arg: Any) -> bool:
    """Whether a newline written inside this node ends the first line. Classes such as \\s are taken as spaces."""
    if op is sre.LITERAL:
        return bool(arg == 10)
    if op is sre.IN:
        return (sre.LITERAL, 10) in arg and (sre.NEGATE, None) not in arg
    return any(_may_hold_newline(*node) for sequence in inside(op, arg) for node in sequence)


def _ignores_case_within(nodes: Iterable[Any]) -> bool:
    """Whether some group ignores case, as in `(?i:error)`: then all gates do, which costs speed and misses nothing."""
    return any(
        (op is sre.SUBPATTERN and bool(arg[1] & re.IGNORECASE)) or any(map(_ignores_case_within, inside(op, arg)))
        for op, arg in nodes
    )


def _best(sets: Iterable[frozenset[str]]) -> frozenset[str] | None:
    """The set whose shortest literal is longest; of equals, the one with fewest literals. Long ones are cut."""
    best: frozenset[str] | None = None
    best_score = (0, 0)
    for candidate in sets:
        cut = frozenset(_core(text) for text in candidate)
        shortest = min(map(len, cut))
        if shortest >= MIN_LENGTH and (shortest, -len(cut)) > best_score:
            best, best_score = cut, (shortest, -len(cut))
    return best


def _core(text: str) -> str:
    """At most MAX_LENGTH characters of a literal, without spaces at its ends where it stays long enough."""
    cut = text[:MAX_LENGTH]
    return cut.strip() if len(cut.strip()) >= MIN_LENGTH else cut
