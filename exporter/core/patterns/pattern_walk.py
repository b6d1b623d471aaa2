"""The simulation of one pattern on an open text: all paths of a search at once, and the runs that they test.

A finite-state simulation as Thompson's: for each node of the pattern, the frontier of states before it becomes the frontier
after it. A path that needs to know more of a run than its kind tests the run, and is only possible from there on.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from exporter.core.patterns.masks import LONGEST_RUN
from exporter.core.patterns.open_text import Accepted, Frontier, OpenText, Unclear, range_of, states_in
from exporter.core.patterns.regex_safety import Class, characters
from exporter.core.patterns.syntax import REPEATS, Unreadable, parse, sre

MAX_STEPS = 20_000  # of a pattern on a text, a µs or two each; no built-in pattern takes a tenth
REFERS = re.compile(r"\(\?P=|\\[1-9]")
_MAX_GROUP_TEXTS = 32  # of a group that a back reference names
_ONE_CHARACTER = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)


def walk(pattern: str, text: OpenText, frontier: Frontier) -> tuple[Frontier, PatternWalk]:
    """The frontier after a pattern, and the walk. A pattern that cannot be followed tests all runs, and may end anywhere."""
    walker = PatternWalk(text, pattern)
    try:
        tree = parsed(pattern)
        return walker.sequence(list(tree), tree.state.flags, frontier), walker
    except (Unclear, Unreadable):
        walker.tested = text.open
        return (frontier.as_possible() if text.open else frontier), walker


@lru_cache(maxsize=4096)
def parsed(pattern: str) -> Any:
    """The tree of a pattern. Raises Unreadable."""
    return parse(pattern)


class PatternWalk:
    """One pattern on one text.

    `tested`: the states of runs of which a path needs to know more than their kind. `referred`: of those, the runs in a group
    that a back reference repeats. `reached`: the states that a path has read up to, or looked at.

    An open run that starts in the state s, a bit, takes four, so shifts go from one to the next:

        s        s << 1               s << 2           s << 3
        start    after one character  further inside   end
    """

    def __init__(self, text: OpenText, pattern: str = "") -> None:
        self.text = text
        self.refers = bool(REFERS.search(pattern))
        self._group_texts: dict[int, set[str] | None] = {}  # of groups that a back reference names
        self._unspelt: dict[int, int] = {}
        self.referred = 0
        self.tested = 0
        self.reached = 0
        self._steps = 0

    def count(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise Unclear

    @property
    def steps(self) -> int:
        return self._steps

    def sequence(self, nodes: Sequence[Any], flags: int, frontier: Frontier) -> Frontier:
        for op, arg in nodes:
            if not frontier:
                break
            frontier = self._node(op, arg, flags, frontier)
            if frontier.after_start or frontier.before_end:
                frontier = self._checked_order(frontier)
        return frontier

    def _checked_order(self, frontier: Frontier) -> Frontier:
        """A path inside a run becomes merely possible when the path that is tried before it has not come as far."""
        starts = self.text.starts
        after_start = frontier.after_start & (frontier.certain & starts) << 2
        ends = frontier.certain >> 3 & starts
        before_end = frontier.before_end & (ends << 1 | ends << 2)
        if doubtful := frontier.after_start & ~after_start | frontier.before_end & ~before_end:
            self.tested |= (doubtful >> 1 | doubtful >> 2) & starts
        return Frontier(frontier.certain, frontier.possible | doubtful, after_start, before_end)

    def _node(self, op: Any, arg: Any, flags: int, frontier: Frontier) -> Frontier:
        if op in _ONE_CHARACTER:
            return self.character(characters(op, arg, flags), frontier)
        if op is sre.AT:
            return self._anchor(arg, frontier)
        if op is sre.BRANCH:
            after = Frontier(0)
            for branch in arg[1]:
                after |= self.sequence(list(branch), flags, frontier)
            return after
        if op is sre.SUBPATTERN:
            group, add, remove, body = arg
            flags = (flags | add) & ~remove
            if group is None:
                return self.sequence(list(body), flags, frontier)
            if self.refers:
                self._note_group_texts(group, list(body), flags, frontier)
            return self._spread_in_runs(self.sequence(list(body), flags, self._spread_in_runs(frontier)))
        if op is sre.ATOMIC_GROUP or op is sre.POSSESSIVE_REPEAT:
            return self._atomic(op, arg, flags, frontier)
        if op in REPEATS:
            return self._repeated(arg, flags, frontier, lazy=op is sre.MIN_REPEAT)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._assertion(op, arg, flags, frontier)
        if op is sre.GROUPREF and not flags & re.IGNORECASE:
            return self._back_reference(arg, frontier)
        raise Unclear

    def character(self, characters_read: Class, frontier: Frontier) -> Frontier:
        """The frontier after one character."""
        self.count()
        accepted, text = self.text.accepted(characters_read), self.text
        all_states = frontier.states
        certain = (frontier.certain & (accepted.certain | accepted.full)) << 1
        doubtful = (frontier.certain & (accepted.possible | accepted.partial)) << 1
        read = accepted.certain | accepted.full | accepted.possible | accepted.partial
        doubtful |= ((all_states & ~frontier.certain | frontier.possible) & read) << 1
        self.tested |= all_states & (accepted.possible | accepted.partial)
        if within := all_states & text.within:
            runs = accepted.full | accepted.partial
            following = accepted.certain | accepted.possible | runs
            further = within & runs << 2 | (within & runs << 1) << 1  # further inside
            ends = within & text.starts << 1 & following >> 2  # of runs of one character
            self.tested |= further >> 2 | ends >> 1
            doubtful |= further | further << 1 | ends << 3
            certain &= ~(within << 1)
            doubtful &= ~((within & ~text.inside) << 1) | further
        self.reached |= certain | doubtful
        return Frontier(certain, doubtful)

    def _spread_in_runs(self, frontier: Frontier) -> Frontier:
        """Paths after the first character of a run become possible at each later state of it."""
        ones = (frontier.certain | frontier.possible) & self.text.starts << 1
        if not ones:
            return frontier
        self.tested |= ones >> 1
        return frontier._replace(
            certain=frontier.certain & ~ones, possible=frontier.possible & ~ones | ones << 1 | ones << 2
        )

    def _anchor(self, anchor: Any, frontier: Frontier) -> Frontier:
        there, inside = self.text.anchor_states(anchor), frontier.states & self.text.within
        if inside & self.text.starts << 1 or anchor is sre.AT_NON_BOUNDARY:
            self.tested |= (inside >> 1 | inside >> 2) & self.text.starts
            ones = inside & self.text.starts << 1
            inside |= ones << 1 | ones << 2
        else:
            inside = 0
        return Frontier(frontier.certain & there, frontier.possible & there | inside)

    def _repeated(self, arg: Any, flags: int, frontier: Frontier, *, lazy: bool) -> Frontier:
        least, most, body = int(arg[0]), arg[1], list(arg[2])
        if len(body) == 1 and body[0][0] in _ONE_CHARACTER:
            bound = None if most is sre.MAXREPEAT else int(most)
            return self._loop(_class_of(body, flags), least, bound, frontier, lazy)
        for _ in range(least):
            if not frontier:
                return frontier
            frontier = self.sequence(body, flags, frontier)
        after, count = frontier, least
        while frontier and (most is sre.MAXREPEAT or count < most):
            further = self.sequence(body, flags, frontier)
            frontier = Frontier(*(new & ~old for new, old in zip(further, after, strict=True)))
            after |= frontier
            count += 1
        return after

    def _loop(self, characters_read: Class, least: int, most: int | None, frontier: Frontier, lazy: bool) -> Frontier:
        """The frontier after a loop over one class of characters. It reads an open run as a whole."""
        accepted = self.text.accepted(characters_read)
        after = Frontier(0)
        if least == 0:
            ones = 0 if lazy or (most is not None and most < LONGEST_RUN) else frontier.certain & accepted.full << 1
            after = frontier._replace(certain=frontier.certain & ~ones, before_end=frontier.before_end | ones)
        starts = frontier.states
        if least <= 1 and most is None:
            starts &= ~self._covered(frontier, accepted)
        for start in states_in(starts):
            self.count()
            after |= self._loop_from(start, accepted, least, most, frontier, lazy)
        self.reached |= after.states
        return after

    def _covered(self, frontier: Frontier, accepted: Accepted) -> int:
        """The states from which an unbounded loop reads no further than from a state before them."""
        covered = 0
        for kind, others, ends in (
            (frontier.certain, frontier.possible, accepted.ends),
            (frontier.possible, frontier.certain, accepted.possible_ends),
        ):
            left = kind & ~others & ~self.text.within
            while left:
                first = left & -left
                following = range_of(first.bit_length(), ends[first.bit_length() - 1] - 1)
                covered |= left & following
                left &= ~(first | following)
        return covered

    def _loop_from(
        self, start: int, accepted: Accepted, least: int, most: int | None, frontier: Frontier, lazy: bool
    ) -> Frontier:
        text, bit = self.text, 1 << start
        if bit & text.inside:
            run = bit >> 2
            if not run & (accepted.full | accepted.partial):
                return Frontier(0)
            length = text.most[start + 1] - text.most[start - 2]
            is_read = least <= 1 and (most is None or most >= length)
            if bit & frontier.after_start and run & frontier.certain & accepted.full and is_read:
                return Frontier(0)  # the path from the run's start reads the same, and is tried before
            self.tested |= run
            return Frontier(0, bit | range_of(start + 1, accepted.possible_ends[start + 1]) & ~(text.starts << 1))
        end, possible_ends = accepted.ends[start], accepted.possible_ends[start]
        if bit & text.starts << 1 and not bit >> 1 & accepted.full:
            run = bit >> 1
            following = bit << 2 & (accepted.certain | accepted.possible)
            if not run & accepted.partial and not following:
                return Frontier(0)
            self.tested |= run
            return Frontier(0, range_of(start + 1, accepted.possible_ends[start + 2]) & ~(text.starts << 1))
        first = sure_first = start + 1
        last, sure_last = possible_ends, end
        if least > 1 or (least and bit & text.starts << 1):
            first = bisect_left(text.most, text.most[start] + least)
            sure_first = bisect_left(text.least, text.least[start] + least)
        if most is not None:
            last = min(last, bisect_right(text.least, text.least[start] + most) - 1)
            sure_last = min(sure_last, bisect_right(text.most, text.most[start] + most) - 1)
        self.tested |= range_of(end, min(last, possible_ends) - 1) & (accepted.possible | accepted.partial)
        possible = range_of(max(first, start + 1), last)
        sure = range_of(max(sure_first, start + 1), sure_last)
        if possible != sure:  # lengths decide, too
            self.tested |= range_of(start - 2 if start > 1 else 0, last) & text.starts & ~(bit >> 3)
        outside = ~text.within
        inside = possible & text.inside
        if not bit & frontier.certain or bit & frontier.possible:
            doubt = Frontier(0, possible & outside | inside)
            if not bit & frontier.certain:
                return doubt
        else:
            doubt = Frontier(0)
        if lazy:
            firsts = (sure | bit if least == 0 else sure) & text.starts
            after_start, before_end = inside & firsts << 2, 0
        else:
            after_start, before_end = 0, inside & (sure >> 3 & text.starts) << 2
        doubtful = inside & ~after_start & ~before_end
        self.tested |= doubtful >> 2
        return doubt | Frontier(sure & outside, possible & outside & ~sure | doubtful, after_start, before_end)

    def _atomic(self, op: Any, arg: Any, flags: int, frontier: Frontier) -> Frontier:
        """An atomic group or possessive loop keeps its first path, so a possible path may displace a certain one."""
        before, self.tested = self.tested, 0
        text = self.text
        if op is sre.POSSESSIVE_REPEAT:
            after = self._repeated(arg, flags, frontier, lazy=False)
            if len(arg[2]) == 1 and arg[2][0][0] in _ONE_CHARACTER:  # it never stops inside a run that it reads
                read = self.text.accepted(_class_of(list(arg[2]), flags)).full << 2
                after = Frontier(
                    after.certain,
                    after.possible & ~read,
                    after.after_start & ~read,
                    after.before_end & ~(read | read >> 1),
                )
        else:
            after = self.sequence(list(arg), flags, frontier)
        within = after.states & text.within
        self.tested |= within >> 2 & text.starts | within >> 1 & text.starts
        doubt, self.tested = self.tested, before | self.tested
        return after.as_possible() if doubt else after

    def _assertion(self, op: Any, arg: Any, flags: int, frontier: Frontier) -> Frontier:
        """The frontier after a look-around; a path that it may stop is merely possible."""
        direction, body = arg
        nodes, text = list(body), self.text
        frontier = self._spread_in_runs(frontier)
        ones = frontier.before_end & text.starts << 1
        within = (frontier.states | ones << 1) & text.inside
        if len(nodes) == 1 and nodes[0][0] in _ONE_CHARACTER:
            return self._assertion_of_one(op, direction, text.accepted(_class_of(nodes, flags)), frontier, within)
        self.tested |= within >> 2
        outside = (frontier.certain | frontier.possible) & ~text.within
        least, most = (0, 0) if direction > 0 else body.getwidth()
        doubtful = 0
        for state in states_in(outside) if self._tested_by(nodes, flags, outside, least, most) else ():
            if tested := self._tested_by(nodes, flags, 1 << state, least, most):
                doubtful |= 1 << state
                self.tested |= tested
        return Frontier(frontier.certain & ~doubtful, frontier.possible | within | ones | doubtful)

    def _assertion_of_one(
        self, op: Any, direction: int, accepted: Accepted, frontier: Frontier, within: int
    ) -> Frontier:
        """The frontier after a look-around of one character."""
        text = self.text
        passes, fails = accepted.full << 2, text.inside & ~((accepted.full | accepted.partial) << 2)
        unclear = within & accepted.partial << 2
        self.tested |= unclear >> 2
        ones = frontier.before_end & text.starts << 1
        through = within & (passes if op is sre.ASSERT else fails)
        self.tested |= ones >> 1
        outside = (frontier.certain | frontier.possible) & ~text.within
        if direction < 0:
            sure = accepted.certain << 1 | accepted.full << 3
            possible = accepted.possible << 1 | accepted.partial << 3
            self.tested |= (outside & accepted.possible << 1) >> 1 | (outside & accepted.partial << 3) >> 3
        else:
            sure, possible = accepted.certain | accepted.full, accepted.possible | accepted.partial
            self.tested |= outside & possible
            self.reached |= outside << 1
        passing = sure if op is sre.ASSERT else ~(sure | possible)
        after_start, before_end = through & frontier.after_start, through & frontier.before_end
        others = ones | through & ~after_start & ~before_end | unclear
        return Frontier(
            frontier.certain & passing & outside,
            frontier.possible & passing & outside | outside & possible | others | through & frontier.possible,
            after_start,
            before_end,
        )

    def _tested_by(self, body: Sequence[Any], flags: int, states: int, least: int, most: int) -> int:
        """The runs that a look-around tests. A look-behind starts only outside open runs."""
        starts = tested = 0
        for distance in range(least, min(most, states.bit_length()) + 1):
            starts |= states >> distance
        if most:
            preceding = 0
            for distance in range(1, min(most, states.bit_length()) + 1):
                preceding |= states >> distance
            tested = preceding & self.text.starts | (preceding & self.text.within) >> 1 & self.text.starts
            tested |= (preceding & self.text.within) >> 2 & self.text.starts
            starts &= ~self.text.within
        before, self.tested = self.tested, 0
        self.sequence(body, flags, Frontier(starts))
        tested |= self.tested
        self.tested = before
        return tested

    def _note_group_texts(self, group: int, body: Sequence[Any], flags: int, frontier: Frontier) -> None:
        """Note the texts that a group may match; None if unknown."""
        texts = self._group_texts.setdefault(group, set())
        for start in states_in(frontier.states):
            for stop in states_in(self.sequence(body, flags, Frontier(1 << start)).states):
                spelling = None if 1 << start & self.text.within else self.text.literal_between(start, stop)
                if spelling is None:
                    self._unspelt[group] = (
                        self._unspelt.get(group, 0) | range_of(max(0, start - 2), stop - 1) & self.text.open
                    )
                    texts = None
                elif texts is not None:
                    texts.add(spelling)
        self._group_texts[group] = texts if texts is not None and len(texts) <= _MAX_GROUP_TEXTS else None

    def _back_reference(self, group: int, frontier: Frontier) -> Frontier:
        """The frontier after a back reference."""
        texts = self._group_texts.get(group, set())
        if texts is None:
            referred = self._unspelt.get(group) or self.text.open
            self.tested |= referred
            self.referred |= referred
            return Frontier(0, range_of(0, self.text.size))
        after = Frontier(0)
        for spelling in texts:
            further = frontier
            for character in spelling:
                further = self.character(frozenset(character), further)
            after |= further
        return after


def _class_of(nodes: Sequence[Any], flags: int) -> Class:
    ((op, arg),) = nodes
    return characters(op, arg, flags)
