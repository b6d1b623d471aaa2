"""An upper bound on the steps of a backtracking search, over all texts of a size. Sound, but not exact.

Think of a search as tokens that read the text, each at a position in the pattern; one starts at every place. Loops are
where they pile up: a token stays as long as the loop can read, and others may enter meanwhile. Whether they may is a
question of characters. The loop of `\\[\\d+` is entered behind a `[`, which it cannot read: it holds one token at a time.
The loop of `error: .*` is entered behind `error: `, which it can read: it holds as many as there are such literals.
So each part of a pattern has three bounds: tokens that arrive in all, places where they arrive, tokens at one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile
from typing import Any, NamedTuple

from exporter.core.patterns.regex_safety import (
    CHARACTERS,
    MANY,
    MAX_POSITIONS,
    Class,
    Loop,
    characters,
    flags_within,
    sample,
)
from exporter.core.patterns.required_literals import Needs
from exporter.core.patterns.syntax import REPEATS, inside, parse, sre

FOREVER = 1 << 62  # steps of an exponential search, and of one that is not understood
_MAX_RUN = 48  # characters before a place that are known; of a longer literal, the rest only makes the bound smaller
_MOST_CHARACTERS = 64  # a class of more stands for any character
_MANY_TOKENS = 8  # what a text repeats is worth showing above this
_BIT = {character: 1 << number for number, character in enumerate(CHARACTERS)}
_NOTHING = 1 << len(CHARACTERS)  # "before the text", which no loop reads
_NEWLINE = _BIT["\n"]


class Size(NamedTuple):
    """Characters of a text, and of its longest line."""

    text: int
    line: int


class Cost(NamedTuple):
    """Steps at most, and the literals that a text repeats, one after the other, to cost as much."""

    steps: int
    repeated: tuple[str, ...] = ()

    def text(self, length: int) -> str:
        """A text that shows it."""
        each = length // max(1, len(self.repeated))
        return "".join((part * (each // len(part) + 1))[:each] for part in self.repeated)


class _Flow(NamedTuple):
    """The tokens that arrive somewhere in a pattern. `run`: which characters may stand before the place, the last one last."""

    total: int
    places: int
    peak: int  # at one place
    run: tuple[int, ...] = ()
    repeated: tuple[str, ...] = ()
    out_of: tuple[int, int] | None = (
        None  # the loop right before: what it reads, and how many may leave it for anything else
    )


def cost(pattern: str, size: Size, *, anchored: bool = False, ignore_case: bool = False) -> Cost:
    """What a search for `pattern` costs, or, `anchored`, a match from one place. Raises Unreadable."""
    parsed = parse(pattern, ignore_case=ignore_case)
    walk = _Walk(size)
    starts = 1 if anchored else size.text + 1
    walk.last(list(parsed), parsed.state.flags, _Flow(starts, starts, 1))
    return Cost(min(walk.steps, FOREVER), walk.dearest[1])


def with_needs(text: str, known: Needs, length: int) -> str:
    """A text with what a pattern requires at its end: in one without, it is not searched for."""
    seen = text.lower() if known.ignore_case else text
    missing = [literals[0] for literals in known.sets if not any(literal in seen for literal in literals)]
    end = "".join(f" {literal}" for literal in missing)
    return text[: length - len(end)] + end


@dataclass(slots=True)
class _Walk:
    """Through one pattern. `dearest` is the part that costs most, with what a text repeats for it."""

    size: Size
    steps: int = 0
    dearest: tuple[int, tuple[str, ...]] = (0, ())

    def last(self, nodes: Sequence[Any], flags: int, flow: _Flow) -> None:
        """The end of a pattern: the first token that comes to a part that cannot fail ends the search."""
        may_fail = list(nodes)
        while may_fail and _cannot_fail(*may_fail[-1]):
            may_fail.pop()
        sure = list(nodes[len(may_fail) :])
        flow = self.sequence(may_fail[:-1], flags, flow)
        for op, arg in may_fail[-1:]:
            if op is sre.SUBPATTERN and not sure:
                self.last(list(inside(op, arg)[0]), flags_within(op, arg, flags), flow)
                return
            if op in REPEATS and op is not sre.POSSESSIVE_REPEAT and arg[0] < arg[1]:
                for _ in range(int(arg[0])):
                    flow = self.sequence(list(arg[2]), flags, flow)
                sure.insert(0, (op, (0, int(arg[1]) - int(arg[0]), arg[2])))
            else:
                flow = self.sequence([(op, arg)], flags, flow)
        self.sequence(sure, flags, flow._replace(total=1, places=1, peak=1))

    def sequence(self, nodes: Sequence[Any], flags: int, flow: _Flow) -> _Flow:
        for number, (op, arg) in enumerate(nodes):
            behind = nodes[number + 1 :]
            flow = self._at(arg, _first(behind, flags), flow) if op is sre.AT else self._part(op, arg, flags, flow)
        return flow

    def _part(self, op: Any, arg: Any, flags: int, flow: _Flow) -> _Flow:
        if op in REPEATS:
            return self._repeated(op, arg, flags, flow)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._asserted(op, arg, flags, flow)
        if op is sre.GROUPREF:
            self._pay(flow.total * self.size.line, flow)
            return _Flow(flow.total, self.size.text + 1, flow.total, (), flow.repeated)
        if op is sre.SUBPATTERN:
            return self.sequence(list(inside(op, arg)[0]), flags_within(op, arg, flags), flow)
        if op is sre.ATOMIC_GROUP:
            come = self.sequence(list(arg), flags, flow)
            total = min(come.total, flow.total)
            return come._replace(total=total, peak=min(come.peak, total))
        if op in (sre.BRANCH, sre.GROUPREF_EXISTS):
            branches = [self.sequence(list(branch), flags, flow) for branch in inside(op, arg)]
            if op is sre.GROUPREF_EXISTS and len(branches) == 1:
                branches.append(flow)
            return self._joined(branches)
        self._pay(flow.total, flow)
        return self._behind(flow, _bits(characters(op, arg, flags)))

    def _behind(self, flow: _Flow, read: int) -> _Flow:
        """Behind one character. Where a loop cannot read it, each of its tokens leaves once, at its end."""
        flow = _left(flow, read)
        run = (*flow.run, read)[-_MAX_RUN:]
        return self._bounded(flow._replace(run=run, out_of=None))

    def _bounded(self, flow: _Flow) -> _Flow:
        """The text holds a run only so many times."""
        places = min(flow.places, self.size.text // _distance(flow.run) + 1)
        return flow._replace(places=places, total=min(flow.total, places * flow.peak))

    def _joined(self, flows: Sequence[_Flow]) -> _Flow:
        """Of several ways, only those whose runs agree come to one place at once."""
        total = sum(flow.total for flow in flows)
        places = min(self.size.text + 1, sum(flow.places for flow in flows))
        peak = max(sum(other.peak for other in flows if _agree(one.run, other.run)) for one in flows)
        shortest = min(len(flow.run) for flow in flows)
        run = tuple(_union(flow.run[at] for flow in flows) for at in range(-shortest, 0))
        repeated = max(flows, key=lambda flow: flow.peak).repeated
        return self._bounded(_Flow(min(total, places * peak), places, peak, run, repeated))

    def _repeated(self, op: Any, arg: Any, flags: int, flow: _Flow) -> _Flow:
        least, most, body = int(arg[0]), int(arg[1]), arg[2]
        kept = op is sre.POSSESSIVE_REPEAT
        if most <= MANY or (least == most <= _MAX_RUN):
            for _ in range(least):
                flow = self.sequence(list(body), flags, flow)
            ways = [flow]
            for _ in range(most - least):
                flow = self.sequence(list(body), flags, flow)
                ways.append(flow)
            come = self._joined(ways)
            total = min(come.total, ways[0].total) if kept else come.total
            return come._replace(total=total, peak=min(come.peak, total))
        loop = Loop()
        whole = loop.sequence(list(body), flags)
        loop.join(whole.last, whole.first)
        if not loop.classes or len(loop.classes) > MAX_POSITIONS or (not kept and loop.read_in_two_ways()):
            self._pay(FOREVER, flow)
            return flow
        return self._looped(loop, arg, whole.last, flags, flow, kept=kept)

    def _looped(self, loop: Loop, arg: Any, last: Sequence[int], flags: int, flow: _Flow, *, kept: bool) -> _Flow:
        """A loop that reads each text in one way: of each token that entered it, one is at each of its positions."""
        least, most, body = int(arg[0]), int(arg[1]), arg[2]
        classes = [_bits(some) for some in loop.classes]
        read, end = _union(classes), _union(classes[position] for position in last)
        stay = min(self.size.text if read & _NEWLINE else self.size.line, most * int(body.getwidth()[1]))
        entered = min(flow.places, _at_once(flow.run, read, stay))
        ends = max(sum(bool(classes[a] & classes[b]) for b in last) for a in last)
        peak = min(flow.total, entered * flow.peak)
        visits = min(flow.total * stay, self.size.text * peak)
        repeated = flow.repeated
        if entered > _MANY_TOKENS:
            repeated = (*repeated, _written(flow.run) or _sample(read))
        steps = max(1, sum(map(len, loop.follow)))
        inner = _Walk(self.size)
        for assertion in _assertions(list(body)):
            inner._asserted(*assertion, flags, _Flow(1, 1, 1))
        self._pay(visits * (steps + inner.steps), flow._replace(repeated=repeated))
        total, places = visits * ends, min(self.size.text + 1, flow.places * (stay + 1))
        if not least:
            total += flow.total
        out = peak * ends + (0 if least else flow.peak)
        if kept:
            total = flow.total
        left = (read, flow.total * ends)
        come = _Flow(min(total, places * out), places, min(out, total), _run_behind(flow.run, end, arg), repeated, left)
        return self._bounded(come)

    def _asserted(self, op: Any, arg: Any, flags: int, flow: _Flow) -> _Flow:
        direction, body = arg
        inner = _Walk(self.size)
        inner.sequence(list(body), flags, _Flow(1, 1, 1, flow.run if direction > 0 else ()))
        self._pay(flow.total * inner.steps, flow._replace(repeated=flow.repeated or inner.dearest[1]))
        if direction < 0 and (some := _only(list(body), flags)) is not None:
            return _before(flow, ~some | _NOTHING if op is sre.ASSERT_NOT else some)
        return flow

    def _at(self, where: Any, behind: int | None, flow: _Flow) -> _Flow:
        if where is sre.AT_BEGINNING_STRING:
            return _before(_Flow(min(flow.total, flow.peak), 1, flow.peak, flow.run, flow.repeated), _NOTHING)
        if where is sre.AT_BEGINNING:
            return _before(flow, _NEWLINE | _NOTHING)
        if where is sre.AT_BOUNDARY and flow.out_of and not flow.out_of[0] & ~_word():
            return _left(flow, 0)
        if where is sre.AT_BOUNDARY and behind is not None:
            if not behind & ~_word():
                return _before(flow, ~_word() | _NOTHING)
            if not behind & _word():
                return _before(flow, _word())
        return flow

    def _pay(self, steps: int, flow: _Flow) -> None:
        self.steps += steps
        self.dearest = max(self.dearest, (steps, flow.repeated), key=lambda part: part[0])


def _left(flow: _Flow, read: int) -> _Flow:
    """Of the tokens that leave a loop, those that go on with what it does not read."""
    if flow.out_of and not flow.out_of[0] & read:
        return flow._replace(total=min(flow.total, flow.out_of[1]), out_of=None)
    return flow


def _cannot_fail(op: Any, arg: Any) -> bool:
    """Whether a part matches at the worst nothing."""
    if op in REPEATS:
        return int(arg[0]) == 0
    return op in (sre.SUBPATTERN, sre.ATOMIC_GROUP) and all(_cannot_fail(*node) for node in inside(op, arg)[0])


def _before(flow: _Flow, allowed: int) -> _Flow:
    """It is known what stands before the place."""
    run = (*flow.run[:-1], flow.run[-1] & allowed) if flow.run else (allowed,)
    return flow._replace(run=run)


def _at_once(run: Sequence[int], read: int, stay: int) -> int:
    """The places at which tokens that are in a loop at once can have entered it, behind a run: a token that entered
    before reads all of the run that lies behind its own place.
    """
    for distance, some in enumerate(reversed(run), start=1):
        if not some & read:
            return 1 + (distance - 1) // _distance(tuple(run))
    return 1 + stay // _distance(tuple(run))


@lru_cache(maxsize=4096)
def _distance(run: tuple[int, ...]) -> int:
    """The least distance of two places that both stand behind a run."""
    for distance in range(1, len(run)):
        if all(run[at] & run[at + distance] for at in range(len(run) - distance)):
            return distance
    return max(1, len(run))


def _agree(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a & b for a, b in zip(reversed(one), reversed(other), strict=False))


def _run_behind(run: tuple[int, ...], end: int, arg: Any) -> tuple[int, ...]:
    """What stands before the place behind a loop."""
    least, body = int(arg[0]), arg[2]
    is_single = body.getwidth() == (1, 1)
    if is_single and least:
        return (end,) * min(least, _MAX_RUN)
    if is_single:
        behind: list[int] = []
        for some in reversed(run):
            behind.append(some | (behind[-1] if behind else end))
        return tuple(reversed(behind))
    return ((end,) if least else (end | run[-1],)) if least or run else ()


def _written(run: Sequence[int]) -> str:
    """A text that a run reads, without the part before it where nearly everything may stand."""
    return "".join(_sample(some) for some in dropwhile(lambda some: some.bit_count() > _MOST_CHARACTERS, run))


def _first(nodes: Sequence[Any], flags: int) -> int | None:
    """The characters that nodes begin with; None if they may read none, or that is not known."""
    found = 0
    for op, arg in nodes:
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            continue
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return found | _bits(characters(op, arg, flags))
        if op in REPEATS and not arg[0]:
            here = _first(list(arg[2]), flags)
            if here is None:
                return None
            found |= here
            continue
        firsts = [_first(list(sequence), flags_within(op, arg, flags)) for sequence in inside(op, arg)]
        known = [first for first in firsts if first is not None]
        return found | _union(known) if firsts and len(known) == len(firsts) else None
    return None


def _only(nodes: Sequence[Any], flags: int) -> int | None:
    """The characters of a look behind that looks at one; None if it looks at more."""
    if len(nodes) == 1:
        op, arg = nodes[0]
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return _bits(characters(op, arg, flags))
    return None


def _assertions(nodes: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    for op, arg in nodes:
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            yield op, arg
        for sequence in inside(op, arg):
            yield from _assertions(list(sequence))


@lru_cache(maxsize=4096)
def _bits(some: Class) -> int:
    return _union(_BIT[character] for character in some)


def _word() -> int:
    return _bits(characters(sre.CATEGORY, sre.CATEGORY_WORD, 0))


def _union(some: Iterable[int]) -> int:
    bits = 0
    for one in some:
        bits |= one
    return bits


def _sample(bits: int) -> str:
    return sample(frozenset(character for character, bit in _BIT.items() if bit & bits))
