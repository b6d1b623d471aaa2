"""Digit sensitivity: which runs of digits of a text patterns look at. Texts that differ only in other runs share a verdict.

A flood of page faults has another pid and another `0x7f3a5c000000` in each line, of any length. What a pattern asks of
them depends on how far it comes: `Xid .*: 79, ` looks at one number of a line with an Xid, and at none of any other. So a
pattern is followed through the text with all its ways at once, as sets of places in the bits of integers. A run is open
at first: one or more characters of its kind. A way that asks more of it is in doubt from there on. Where such a way
comes to the pattern's end, the length of the run is taken as known, then its characters, until nothing is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from exporter.core.patterns.expression import Expression
from exporter.core.patterns.look import MAX_STEPS, REFERS, Look, follow, parsed
from exporter.core.patterns.masks import NOTHING, Looked
from exporter.core.patterns.open_text import OpenText, Unclear, Ways
from exporter.core.patterns.required_literals import Needs
from exporter.core.patterns.syntax import Unreadable


def looked_at(expressions: Iterable[Expression], text: str, known: Looked = NOTHING, *, whole: bool = True) -> Looked:
    """What some pattern looks at in an ASCII text, with what is known to be looked at.

    A pattern finds the same in all texts of this mask in which this is the same. Not `whole`: it is searched for in a part
    of the text, too.
    """
    seen, lower = OpenText(text, known), OpenText(text, known, lower=True)
    for one in expressions:
        if not _may_hold(lower if one.needs.ignore_case else seen, one.needs):
            continue
        found = _found_at(one, text) if whole else None
        if follow(one.pattern, seen, _starts(one.pattern, seen, found))[0].perhaps:
            known = _looked_at(one.pattern, text, known, found)
            seen, lower = OpenText(text, known), OpenText(text, known, lower=True)
    return known


def looked_at_start(pattern: str, text: str, known: Looked) -> Looked:
    """The same of a pattern that is only found at a text's beginning."""
    return _looked_at(pattern, text, known, -1)


def _found_at(one: Expression, text: str) -> int | None:
    try:
        found = one.find(text)
    except TimeoutError:
        return None
    return found.start() if found else None


def _starts(pattern: str, text: OpenText, found: int | None) -> Ways:
    """Where a match may begin: where it is surely `found`, none further behind is. -1: at the beginning only."""
    if found == -1:
        return Ways(1)
    if found is not None and (place := text.place(found)) >= 0:
        come, _ = follow(pattern, text, Ways(1 << place))
        if come.surely and not come.perhaps:
            return text.anywhere(found)
    return text.anywhere()


def _looked_at(pattern: str, text: str, known: Looked, found: int | None) -> Looked:
    """What is looked at, with the runs without which a pattern is in doubt."""

    def through(looked: Looked) -> tuple[OpenText, Ways, Look]:
        seen = OpenText(text, looked)
        return seen, *follow(pattern, seen, _starts(pattern, seen, found))

    looked, steps = known, 0
    while True:
        seen, come, look = through(looked)
        if not come.perhaps or not seen.open:
            break
        looked = seen.closer(looked, look.unknown or look.asked)
        steps = max(steps, look.steps)
    if steps * (len(looked.sized) + len(looked.kept)) > MAX_STEPS:
        return looked
    for run in sorted((looked.sized - known.sized) | (looked.kept - known.kept)):
        less = Looked(looked.sized - {run}, looked.kept - {run}) | known
        for fewer in (less, less.sizing([run]))[: 1 + (run in looked.kept)]:
            if not through(fewer)[1].perhaps:
                looked = fewer
                break
    return looked


def held(literals: Iterable[tuple[str, bool]], text: str, known: Looked = NOTHING) -> Looked:
    """The same of literals, and whether they ignore case: of which is only asked whether a text holds them."""
    texts: dict[bool, OpenText] = {}
    for literal, ignore_case in literals:
        while True:
            if ignore_case not in texts:
                texts[ignore_case] = OpenText(text, known, lower=ignore_case)
            come, asked = _spelling(texts[ignore_case], literal)
            if come.surely or not come.perhaps:
                break
            known = texts[ignore_case].closer(known, asked)
            texts.clear()
    return known


def goes_on(pattern: str, text: str, known: Looked, stop: int) -> bool:
    """Whether a match that begins in the first `stop` characters of an ASCII text may read, or look, on behind its end,
    whatever its open runs are.
    """
    seen = OpenText(text, known)
    look = Look(seen, pattern)
    try:
        tree = parsed(pattern)
        look.sequence(list(tree), tree.state.flags, seen.anywhere(stop))
    except (Unclear, Unreadable):
        return True
    return bool(look.reached >> seen.size)


def referred(expressions: Iterable[Expression], text: str, known: Looked, stop: int) -> Looked:
    """The same of what groups hold that is asked for again, in matches that begin in the first `stop` characters."""
    for one in expressions:
        while REFERS.search(one.pattern):
            seen = OpenText(text, known)
            look = follow(one.pattern, seen, seen.anywhere(stop))[1]
            if not look.unknown:
                break
            known = seen.closer(known, look.unknown)
    return known


def read_from_start(pattern: str, text: str, known: Looked = NOTHING) -> Looked:
    """The same of a pattern that reads a text from its beginning, whatever it comes to: all runs that it asks for."""
    while True:
        seen = OpenText(text, known)
        come, look = follow(pattern, seen, Ways(1))
        asked = look.asked | come.surely >> 1 & seen.starts
        if not asked:
            return known
        known = seen.closer(known, asked)


def _may_hold(text: OpenText, needs: Needs) -> bool:
    """Whether a text holds one literal of each set, were its open runs others."""
    return all(any(_may_hold_literal(text, literal) for literal in literals) for literals in needs.sets)


def _may_hold_literal(text: OpenText, literal: str) -> bool:
    if literal in text.text:
        return True
    if not all(piece in text.text for piece in _firm_pieces(literal)):
        return False
    come, _ = _spelling(text, literal)
    return bool(come)


def _spelling(text: OpenText, literal: str) -> tuple[Ways, int]:
    """Where a literal ends, and which runs it asks for."""
    look, ways = Look(text), text.anywhere()
    for character in literal:
        if not ways:
            break
        ways = look.character(frozenset(character), ways)
    return ways, look.asked


@lru_cache(maxsize=4096)
def _firm_pieces(literal: str) -> list[str]:
    return [piece for piece in re.split("[0-9a-f]+", literal) if piece]
