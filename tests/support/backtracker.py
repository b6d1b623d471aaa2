"""A plain backtracking matcher over the parse tree of a pattern, that counts its steps and does nothing clever.

`regex` tries the same paths in the same order, but searches literals at once and skips paths that cannot succeed. So the
steps counted here are an upper bound of its own, and the same on each machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from exporter.core.patterns.regex_safety import flags_within
from exporter.core.patterns.syntax import REPEATS, inside, parse, sre

_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_SPACE: r"\S", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_AT = {
    sre.AT_BEGINNING_STRING: r"\A", sre.AT_BEGINNING: r"^", sre.AT_END: r"$", sre.AT_END_STRING: r"\Z",
    sre.AT_BOUNDARY: r"\b", sre.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip
MOST_STEPS = 1_000_000  # that a pattern may take on any text: 10 to 20 ms of `regex`, which has 50 ms
_ONE = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)
_Program = list[tuple[Any, ...]]


class TooManySteps(Exception):
    """More than were allowed."""


class Backtracker:
    """One pattern, compiled to a program of a few instructions."""

    def __init__(self, pattern: str) -> None:
        parsed = parse(pattern)
        self._program: _Program = []
        self._compile(self._program, list(parsed), parsed.state.flags | re.MULTILINE)
        self._program.append(("end",))

    def find(self, text: str, most: int) -> tuple[tuple[int, int] | None, int]:
        """Where the pattern is first found, and how many steps that took. Raises TooManySteps."""
        self._text, self._steps, self._most = text, 0, most
        self._at = {
            where: {found.start() for found in re.finditer(how, text, re.MULTILINE)} for where, how in _AT.items()
        }
        first = self._program[0]
        for start in range(len(text) + 1):
            self._step(1)
            if first[0] == "one" and not (start < len(text) and first[1](text[start])):
                continue
            end = self._run(self._program, start, {})
            if end is not None:
                return (start, end), self._steps
        return None, self._steps

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > self._most:
            raise TooManySteps

    def _run(self, program: _Program, at: int, groups: dict[int, tuple[int, int]]) -> int | None:
        """Where the first way through a program ends."""
        text = self._text
        stack: list[tuple[int, int, int, int, dict[int, tuple[int, int]]]] = []
        pc = 0
        while True:
            self._step(1)
            op, *args = program[pc]
            fine = True
            if op == "one":
                fine = at < len(text) and args[0](text[at])
                at += 1
            elif op == "end":
                return at
            elif op == "split":
                stack.append((args[1], at, at, 1, groups))
                pc = args[0] - 1
            elif op == "jump":
                pc = args[0] - 1
            elif op == "loop":
                accepts, least, most, lazy = args
                stop = at
                while stop < len(text) and stop - at < most and accepts(text[stop]):
                    stop += 1
                self._step(stop - at)
                fine = stop - at >= least
                if fine and lazy:
                    stack.append((pc + 1, at + least + 1, stop, 1, groups))
                    at += least
                elif fine:
                    stack.append((pc + 1, stop - 1, at + least, -1, groups))
                    at = stop
            elif op == "at":
                fine = at in self._at[args[0]]
            elif op == "assert":
                inner, wanted, width = args
                fine = (at >= width and self._run(inner, at - width, groups) is not None) == wanted
            elif op == "atomic":
                end = self._run(args[0], at, groups)
                fine = end is not None
                at = end if end is not None else at
            elif op == "open":
                groups = groups | {-args[0]: (at, at)}
            elif op == "close":
                groups = groups | {args[0]: (groups[-args[0]][0], at)}
            elif op == "again":
                start, stop = groups.get(args[0], (0, -1))
                again = text[start:stop]
                fine = stop >= 0 and text.startswith(again, at)
                at += len(again)
            if fine:
                pc += 1
                continue
            while stack:
                pc, at, last, direction, groups = stack.pop()
                if (last - at) * direction < 0:
                    continue
                if at != last:
                    stack.append((pc, at + direction, last, direction, groups))
                break
            else:
                return None

    def _compile(self, program: _Program, nodes: Sequence[Any], flags: int) -> None:
        for op, arg in nodes:
            self._compile_node(program, op, arg, flags)

    def _compile_node(self, program: _Program, op: Any, arg: Any, flags: int) -> None:
        if op in _ONE:
            program.append(("one", _accepts(op, tuple(arg) if op is sre.IN else arg, flags)))
        elif op is sre.AT:
            program.append(("at", arg))
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            direction, body = arg
            width = body.getwidth()[1] if direction < 0 else 0
            program.append(("assert", self._inner(list(body), flags), op is sre.ASSERT, width))
        elif op is sre.ATOMIC_GROUP:
            program.append(("atomic", self._inner(list(arg), flags)))
        elif op is sre.SUBPATTERN:
            program.append(("open", arg[0] or 0))
            self._compile(program, list(inside(op, arg)[0]), flags_within(op, arg, flags))
            program.append(("close", arg[0] or 0))
        elif op is sre.BRANCH:
            self._branch(program, [list(branch) for branch in arg[1]], flags)
        elif op is sre.GROUPREF:
            program.append(("again", arg))
        elif op in REPEATS:
            self._repeat(program, op, arg, flags)
        else:
            raise NotImplementedError(op)

    def _inner(self, nodes: Sequence[Any], flags: int) -> _Program:
        inner: _Program = []
        self._compile(inner, nodes, flags)
        return [*inner, ("end",)]

    def _branch(self, program: _Program, branches: Sequence[Sequence[Any]], flags: int) -> None:
        jumps = []
        for branch in branches[:-1]:
            split = len(program)
            program.append(())
            self._compile(program, branch, flags)
            jumps.append(len(program))
            program.append(())
            program[split] = ("split", split + 1, len(program))
        self._compile(program, branches[-1], flags)
        for jump in jumps:
            program[jump] = ("jump", len(program))

    def _repeat(self, program: _Program, op: Any, arg: Any, flags: int) -> None:
        least, most, body = int(arg[0]), arg[1], list(arg[2])
        if op is sre.POSSESSIVE_REPEAT:
            program.append(("atomic", self._inner([(sre.MAX_REPEAT, arg)], flags)))
            return
        lazy = op is sre.MIN_REPEAT
        if len(body) == 1 and body[0][0] in _ONE:
            kind, what = body[0]
            accepts = _accepts(kind, tuple(what) if kind is sre.IN else what, flags)
            program.append(("loop", accepts, least, int(most), lazy))
            return
        for _ in range(least):
            self._compile(program, body, flags)
        splits = []
        for _ in range(1 if most is sre.MAXREPEAT else int(most) - least):
            splits.append(len(program))
            program.append(())
            self._compile(program, body, flags)
        if most is sre.MAXREPEAT:
            program.append(("jump", splits[0]))
        for split in splits:
            ways = (split + 1, len(program))
            program[split] = ("split", *(reversed(ways) if lazy else ways))


class _Accepts:
    """Whether a node of one character reads one."""

    def __init__(self, op: Any, arg: Any, flags: int) -> None:
        self._op, self._arg, self._flags = op, arg, flags
        self._known: dict[str, bool] = {}

    def __call__(self, character: str) -> bool:
        known = self._known.get(character)
        if known is None:
            cases = {character, character.lower(), character.upper()} if self._flags & re.IGNORECASE else {character}
            known = self._known[character] = any(_reads(self._op, self._arg, self._flags, one) for one in cases)
        return known


@cache
def _accepts(op: Any, arg: Any, flags: int) -> _Accepts:
    return _Accepts(op, arg, flags & (re.IGNORECASE | re.DOTALL))


def _reads(op: Any, arg: Any, flags: int, character: str) -> bool:
    if op is sre.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    if op is sre.LITERAL:
        return bool(ord(character) == arg)
    if op is sre.NOT_LITERAL:
        return bool(ord(character) != arg)
    if op is sre.RANGE:
        return bool(arg[0] <= ord(character) <= arg[1])
    if op is sre.CATEGORY:
        return re.match(_CATEGORIES[arg], character) is not None
    some = any(_reads(kind, what, flags, character) for kind, what in arg if kind is not sre.NEGATE)
    return some != ((sre.NEGATE, None) in arg)
