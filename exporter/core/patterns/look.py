"""A pattern on its way through a text with open runs: all its ways at once, and which runs they ask for."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from exporter.core.patterns.masks import LONGEST_RUN
from exporter.core.patterns.open_text import Accepted, OpenText, Unclear, Ways, places_of, range_of
from exporter.core.patterns.regex_safety import Class, characters
from exporter.core.patterns.syntax import REPEATS, Unreadable, parse, sre

MAX_STEPS = 20_000  # of a pattern through a text, a µs or two each; no built-in pattern takes a tenth
REFERS = re.compile(r"\(\?P=|\\[1-9]")
_MAX_SPELLINGS = 32  # of what a group holds that is asked for again
_ONE_CHARACTER = (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY)


def follow(pattern: str, text: OpenText, ways: Ways) -> tuple[Ways, Look]:
    """Where the ways of a pattern end; in doubt where that is unclear."""
    look = Look(text, pattern)
    try:
        tree = parsed(pattern)
        return look.sequence(list(tree), tree.state.flags, ways), look
    except (Unclear, Unreadable):
        look.asked = text.open
        return (ways.in_doubt() if text.open else ways), look


@lru_cache(maxsize=4096)
def parsed(pattern: str) -> Any:
    """The tree of a pattern. Raises Unreadable."""
    return parse(pattern)


class Look:
    """One pattern on its way through one text. `asked`: the places of runs of which some way asked more than their kind."""

    def __init__(self, text: OpenText, pattern: str = "") -> None:
        self.text = text
        self.refers = bool(REFERS.search(pattern))
        self._spellings: dict[int, set[str] | None] = {}  # of what groups hold that are asked for again
        self._unknown: dict[int, int] = {}
        self.unknown = 0  # the places of runs in what a group holds that is asked for again
        self.asked = 0
        self.reached = 0  # the places behind what any way has read
        self._steps = 0

    def count(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise Unclear

    @property
    def steps(self) -> int:
        return self._steps

    def sequence(self, nodes: Sequence[Any], flags: int, ways: Ways) -> Ways:
        for op, arg in nodes:
            if not ways:
                break
            ways = self._node(op, arg, flags, ways)
            if ways.later or ways.early:
                ways = self._followed(ways)
        return ways

    def _followed(self, ways: Ways) -> Ways:
        """The same; a way within a run is in doubt if the one that is tried first is no longer as far."""
        starts = self.text.starts
        later = ways.later & (ways.surely & starts) << 2
        ends = ways.surely >> 3 & starts
        early = ways.early & (ends << 1 | ends << 2)
        if doubtful := ways.later & ~later | ways.early & ~early:
            self.asked |= (doubtful >> 1 | doubtful >> 2) & starts
        return Ways(ways.surely, ways.perhaps | doubtful, later, early)

    def _node(self, op: Any, arg: Any, flags: int, ways: Ways) -> Ways:
        if op in _ONE_CHARACTER:
            return self.character(characters(op, arg, flags), ways)
        if op is sre.AT:
            return self._at(arg, ways)
        if op is sre.BRANCH:
            come = Ways(0)
            for branch in arg[1]:
                come |= self.sequence(list(branch), flags, ways)
            return come
        if op is sre.SUBPATTERN:
            group, add, remove, body = arg
            flags = (flags | add) & ~remove
            if group is None:
                return self.sequence(list(body), flags, ways)
            if self.refers:
                self._spell(group, list(body), flags, ways)
            return self._at_a_run_s_end(self.sequence(list(body), flags, self._at_a_run_s_end(ways)))
        if op is sre.ATOMIC_GROUP or op is sre.POSSESSIVE_REPEAT:
            return self._kept(op, arg, flags, ways)
        if op in REPEATS:
            return self._repeated(arg, flags, ways, lazy=op is sre.MIN_REPEAT)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._asserted(op, arg, flags, ways)
        if op is sre.GROUPREF and not flags & re.IGNORECASE:
            return self._spelt(arg, ways)
        raise Unclear

    def character(self, some: Class, ways: Ways) -> Ways:
        """One character."""
        self.count()
        accepted, text = self.text.accepted(some), self.text
        anyhow = ways.places
        surely = (ways.surely & (accepted.surely | accepted.full)) << 1
        doubtful = (ways.surely & (accepted.perhaps | accepted.partly)) << 1
        read = accepted.surely | accepted.full | accepted.perhaps | accepted.partly
        doubtful |= ((anyhow & ~ways.surely | ways.perhaps) & read) << 1
        self.asked |= anyhow & (accepted.perhaps | accepted.partly)
        if within := anyhow & text.within:
            runs = accepted.full | accepted.partly
            behind = accepted.surely | accepted.perhaps | runs
            further = within & runs << 2 | (within & runs << 1) << 1  # at the second place within
            ends = within & text.starts << 1 & behind >> 2  # of runs of one character
            self.asked |= further >> 2 | ends >> 1
            doubtful |= further | further << 1 | ends << 3
            surely &= ~(within << 1)
            doubtful &= ~((within & ~text.inside) << 1) | further
        self.reached |= surely | doubtful
        return Ways(surely, doubtful)

    def _at_a_run_s_end(self, ways: Ways) -> Ways:
        """The ways of which it is known how far within a run they are."""
        ones = (ways.surely | ways.perhaps) & self.text.starts << 1
        if not ones:
            return ways
        self.asked |= ones >> 1
        return ways._replace(surely=ways.surely & ~ones, perhaps=ways.perhaps & ~ones | ones << 1 | ones << 2)

    def _at(self, where: Any, ways: Ways) -> Ways:
        there, inside = self.text.at(where), ways.places & self.text.within
        if inside & self.text.starts << 1 or where is sre.AT_NON_BOUNDARY:
            self.asked |= (inside >> 1 | inside >> 2) & self.text.starts
            ones = inside & self.text.starts << 1
            inside |= ones << 1 | ones << 2
        else:
            inside = 0
        return Ways(ways.surely & there, ways.perhaps & there | inside)

    def _repeated(self, arg: Any, flags: int, ways: Ways, *, lazy: bool) -> Ways:
        least, most, body = int(arg[0]), arg[1], list(arg[2])
        if len(body) == 1 and body[0][0] in _ONE_CHARACTER:
            bound = None if most is sre.MAXREPEAT else int(most)
            return self._loop(_one_of(body, flags), least, bound, ways, lazy)
        for _ in range(least):
            if not ways:
                return ways
            ways = self.sequence(body, flags, ways)
        come, count = ways, least
        while ways and (most is sre.MAXREPEAT or count < most):
            further = self.sequence(body, flags, ways)
            ways = Ways(*(new & ~old for new, old in zip(further, come, strict=True)))
            come |= ways
            count += 1
        return come

    def _loop(self, some: Class, least: int, most: int | None, ways: Ways, lazy: bool) -> Ways:
        """One of some characters, again and again. An open run is read as a whole."""
        accepted = self.text.accepted(some)
        come = Ways(0)
        if least == 0:
            ones = 0 if lazy or (most is not None and most < LONGEST_RUN) else ways.surely & accepted.full << 1
            come = ways._replace(surely=ways.surely & ~ones, early=ways.early | ones)
        starts = ways.places
        if least <= 1 and most is None:
            starts &= ~self._covered(ways, accepted)
        for start in places_of(starts):
            self.count()
            come |= self._loop_from(start, accepted, least, most, ways, lazy)
        self.reached |= come.places
        return come

    def _covered(self, ways: Ways, accepted: Accepted) -> int:
        """The starts of a loop without a bound that come no further than one before them."""
        covered = 0
        for kind, others, ends in (
            (ways.surely, ways.perhaps, accepted.ends),
            (ways.perhaps, ways.surely, accepted.may_end),
        ):
            left = kind & ~others & ~self.text.within
            while left:
                first = left & -left
                behind = range_of(first.bit_length(), ends[first.bit_length() - 1] - 1)
                covered |= left & behind
                left &= ~(first | behind)
        return covered

    def _loop_from(self, start: int, accepted: Accepted, least: int, most: int | None, ways: Ways, lazy: bool) -> Ways:
        text, bit = self.text, 1 << start
        if bit & text.inside:
            run = bit >> 2
            if not run & (accepted.full | accepted.partly):
                return Ways(0)
            length = text.most[start + 1] - text.most[start - 2]
            is_read = least <= 1 and (most is None or most >= length)
            if bit & ways.later and run & ways.surely & accepted.full and is_read:
                return Ways(0)  # what begins at the run's start comes to the same, and is tried first
            self.asked |= run
            return Ways(0, bit | range_of(start + 1, accepted.may_end[start + 1]) & ~(text.starts << 1))
        end, may_end = accepted.ends[start], accepted.may_end[start]
        if bit & text.starts << 1 and not bit >> 1 & accepted.full:
            run = bit >> 1
            behind = bit << 2 & (accepted.surely | accepted.perhaps)
            if not run & accepted.partly and not behind:
                return Ways(0)
            self.asked |= run
            return Ways(0, range_of(start + 1, accepted.may_end[start + 2]) & ~(text.starts << 1))
        first = sure_first = start + 1
        last, sure_last = may_end, end
        if least > 1 or (least and bit & text.starts << 1):
            first = bisect_left(text.most, text.most[start] + least)
            sure_first = bisect_left(text.least, text.least[start] + least)
        if most is not None:
            last = min(last, bisect_right(text.least, text.least[start] + most) - 1)
            sure_last = min(sure_last, bisect_right(text.most, text.most[start] + most) - 1)
        self.asked |= range_of(end, min(last, may_end) - 1) & (accepted.perhaps | accepted.partly)
        possible = range_of(max(first, start + 1), last)
        sure = range_of(max(sure_first, start + 1), sure_last)
        if possible != sure:  # it is a matter of lengths, too
            self.asked |= range_of(start - 2 if start > 1 else 0, last) & text.starts & ~(bit >> 3)
        outside = ~text.within
        inside = possible & text.inside
        if not bit & ways.surely or bit & ways.perhaps:
            doubt = Ways(0, possible & outside | inside)
            if not bit & ways.surely:
                return doubt
        else:
            doubt = Ways(0)
        if lazy:
            firsts = (sure | bit if least == 0 else sure) & text.starts
            later, early = inside & firsts << 2, 0
        else:
            later, early = 0, inside & (sure >> 3 & text.starts) << 2
        doubtful = inside & ~later & ~early
        self.asked |= doubtful >> 2
        return doubt | Ways(sure & outside, possible & outside & ~sure | doubtful, later, early)

    def _kept(self, op: Any, arg: Any, flags: int, ways: Ways) -> Ways:
        """What is matched once and for all: a way that only perhaps comes through may take the place of one that does."""
        before, self.asked = self.asked, 0
        text = self.text
        if op is sre.POSSESSIVE_REPEAT:
            come = self._repeated(arg, flags, ways, lazy=False)
            if len(arg[2]) == 1 and arg[2][0][0] in _ONE_CHARACTER:  # it stops within no run that it reads
                read = self.text.accepted(_one_of(list(arg[2]), flags)).full << 2
                come = Ways(come.surely, come.perhaps & ~read, come.later & ~read, come.early & ~(read | read >> 1))
        else:
            come = self.sequence(list(arg), flags, ways)
        within = come.places & text.within
        self.asked |= within >> 2 & text.starts | within >> 1 & text.starts
        doubt, self.asked = self.asked, before | self.asked
        return come.in_doubt() if doubt else come

    def _asserted(self, op: Any, arg: Any, flags: int, ways: Ways) -> Ways:
        """A look ahead or behind lets every way through; one that it may stop is in doubt."""
        direction, body = arg
        nodes, text = list(body), self.text
        ways = self._at_a_run_s_end(ways)
        ones = ways.early & text.starts << 1
        within = (ways.places | ones << 1) & text.inside
        if len(nodes) == 1 and nodes[0][0] in _ONE_CHARACTER:
            return self._asserted_one(op, direction, text.accepted(_one_of(nodes, flags)), ways, within)
        self.asked |= within >> 2
        outside = (ways.surely | ways.perhaps) & ~text.within
        least, most = (0, 0) if direction > 0 else body.getwidth()
        doubtful = 0
        for place in places_of(outside) if self._asks(nodes, flags, outside, least, most) else ():
            if asked := self._asks(nodes, flags, 1 << place, least, most):
                doubtful |= 1 << place
                self.asked |= asked
        return Ways(ways.surely & ~doubtful, ways.perhaps | within | ones | doubtful)

    def _asserted_one(self, op: Any, direction: int, accepted: Accepted, ways: Ways, within: int) -> Ways:
        """A look at one character."""
        text = self.text
        passes, fails = accepted.full << 2, text.inside & ~((accepted.full | accepted.partly) << 2)
        unclear = within & accepted.partly << 2
        self.asked |= unclear >> 2
        ones = ways.early & text.starts << 1
        through = within & (passes if op is sre.ASSERT else fails)
        self.asked |= ones >> 1
        outside = (ways.surely | ways.perhaps) & ~text.within
        if direction < 0:
            sure = accepted.surely << 1 | accepted.full << 3
            perhaps = accepted.perhaps << 1 | accepted.partly << 3
            self.asked |= (outside & accepted.perhaps << 1) >> 1 | (outside & accepted.partly << 3) >> 3
        else:
            sure, perhaps = accepted.surely | accepted.full, accepted.perhaps | accepted.partly
            self.asked |= outside & perhaps
            self.reached |= outside << 1
        kept = sure if op is sre.ASSERT else ~(sure | perhaps)
        later, early = through & ways.later, through & ways.early
        others = ones | through & ~later & ~early | unclear
        return Ways(
            ways.surely & kept & outside,
            ways.perhaps & kept & outside | outside & perhaps | others | through & ways.perhaps,
            later,
            early,
        )

    def _asks(self, body: Sequence[Any], flags: int, places: int, least: int, most: int) -> int:
        """The runs that a look asks for. One behind is followed where there is no open run."""
        starts = asked = 0
        for distance in range(least, min(most, places.bit_length()) + 1):
            starts |= places >> distance
        if most:
            behind = 0
            for distance in range(1, min(most, places.bit_length()) + 1):
                behind |= places >> distance
            asked = behind & self.text.starts | (behind & self.text.within) >> 1 & self.text.starts
            asked |= (behind & self.text.within) >> 2 & self.text.starts
            starts &= ~self.text.within
        before, self.asked = self.asked, 0
        self.sequence(body, flags, Ways(starts))
        asked |= self.asked
        self.asked = before
        return asked

    def _spell(self, group: int, body: Sequence[Any], flags: int, ways: Ways) -> None:
        """Note what a group may hold; None where that is not known."""
        known = self._spellings.setdefault(group, set())
        for start in places_of(ways.places):
            for stop in places_of(self.sequence(body, flags, Ways(1 << start)).places):
                spelling = None if 1 << start & self.text.within else self.text.spelt(start, stop)
                if spelling is None:
                    self._unknown[group] = (
                        self._unknown.get(group, 0) | range_of(max(0, start - 2), stop - 1) & self.text.open
                    )
                    known = None
                elif known is not None:
                    known.add(spelling)
        self._spellings[group] = known if known is not None and len(known) <= _MAX_SPELLINGS else None

    def _spelt(self, group: int, ways: Ways) -> Ways:
        """What a group held comes again."""
        spellings = self._spellings.get(group, set())
        if spellings is None:
            unknown = self._unknown.get(group) or self.text.open
            self.asked |= unknown
            self.unknown |= unknown
            return Ways(0, range_of(0, self.text.size))
        come = Ways(0)
        for spelling in spellings:
            further = ways
            for character in spelling:
                further = self.character(frozenset(character), further)
            come |= further
        return come


def _one_of(nodes: Sequence[Any], flags: int) -> Class:
    ((op, arg),) = nodes
    return characters(op, arg, flags)
