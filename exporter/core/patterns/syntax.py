"""Regular expressions as trees: read once in the syntax that `re` and `regex` share, and refused where they cannot serve.

Nothing is compiled or searched here: a pattern that would exhaust memory is refused before anyone compiles it.
"""

import itertools
import re
import warnings
from collections.abc import Sequence
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]

__all__ = ["FLAGS", "MAX_SIZE", "REPEATS", "Unreadable", "inside", "literal_runs", "parse", "refusal", "sre"]

# Of `regex`, which reads re's own syntax by default (VERSION0), so that re's parser reads the same pattern.
FLAGS = int(re.MULTILINE)
MAX_DEPTH = 50  # of groups in groups: whatever walks a pattern calls itself for each; no built-in pattern has over 6
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
MAX_SIZE = (
    20_000  # single characters, repeats written out; `regex` takes 0.3 kB each, no built-in pattern has over 1,100
)


# An escape takes the next character, and a set its brackets: neither begins what regex reads in its own way.
_ESCAPE_OR_SET = re.compile(r"\\(?s:.)|\[\^?\]?(?:\\(?s:.)|[^\]\\])*\]")
# Fuzzy matching such as {e<=1} or {1i+2d<=3:[a-z]}, which `re` reads as plain text.
_FUZZY = re.compile(r"\{(?=[^{}]*[deis])[deis\d<=+, ]+(?::[^{}]*)?\}")


class Unreadable(ValueError):
    """A pattern that re and regex do not read alike, or not at all."""


def parse(pattern: str, *, ignore_case: bool = False) -> Any:
    """The tree of a pattern, as `re` parses it. Raises Unreadable."""
    deepest = max(itertools.accumulate((c == "(") - (c == ")") for c in pattern), default=0)
    if deepest > MAX_DEPTH:
        raise Unreadable(f"nests groups {deepest} deep, over {MAX_DEPTH}; write it flat")
    if fuzzy := _FUZZY.search(_ESCAPE_OR_SET.sub("_", pattern)):
        raise Unreadable(f"{fuzzy[0]} is fuzzy matching, which is not supported; to match a brace, write \\{{")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # `[[:digit:]]`: re and regex read such sets differently
            return sre_parse.parse(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise Unreadable(f"not in the common syntax of re and regex: {error}; write it as re does") from None


def inside(op: Any, arg: Any) -> list[Any]:
    """The sequences that a node is made of."""
    if op is sre.SUBPATTERN:
        return [arg[-1]]
    if op is sre.ATOMIC_GROUP:
        return [arg]
    if op in REPEATS:
        return [arg[2]]
    if op is sre.BRANCH:
        return list(arg[1])
    if op is sre.GROUPREF_EXISTS:
        return [branch for branch in arg[1:] if branch is not None]
    return []


def literal_runs(pattern: str) -> list[str]:
    """The literals of a pattern in their order: `error: .*at (?:line )?` has "error: ", "at " and "line "."""
    runs: list[str] = []

    def collect(nodes: Sequence[Any]) -> None:
        run = ""
        for op, arg in nodes:
            if op is sre.LITERAL:
                run += chr(arg)
                continue
            runs.append(run)
            run = ""
            for sequence in inside(op, arg):
                collect(list(sequence))
        runs.append(run)

    collect(list(parse(pattern)))
    return [run for run in runs if run]


def spelt_out(pattern: str, group: str) -> str | None:
    """What a group holds in each match, "" without such a group; None if that varies. Only digits count as spelt out."""
    parsed = parse(pattern)
    number = parsed.state.groupdict.get(group)
    if number is None:
        return None if any(name.startswith(f"{group}__") for name in parsed.state.groupdict) else ""
    for op, arg in parsed:
        if op is sre.SUBPATTERN and arg[0] == number:
            text = "".join(chr(code) if one is sre.LITERAL else "?" for one, code in arg[-1])
            return text if text.isdecimal() and text.isascii() else None
    return None


def refusal(pattern: str) -> str | None:
    """Why a pattern cannot serve, then what to do; None if it can. Of those that are readable, none is compiled here."""
    try:
        parsed = parse(pattern)
    except Unreadable as error:
        return str(error)
    if (size := _size(list(parsed))) > MAX_SIZE:
        return (
            f"written out, its repeats are {size} characters, over {MAX_SIZE}; repeat less, or without a bound (*, +)"
        )
    if parsed.getwidth()[0] == 0:
        return "can match without any text, and so every line; require some"
    return None


def _size(nodes: Sequence[Any]) -> int:
    return sum(_size_of(op, arg) for op, arg in nodes)


def _size_of(op: Any, arg: Any) -> int:
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return _size(list(arg[1]))
    within = sum(_size(list(sequence)) for sequence in inside(op, arg))
    if op not in REPEATS:
        return within or 1
    least, most, _ = arg
    return max(1, within) * max(1, least if most is sre.MAXREPEAT else int(most))
