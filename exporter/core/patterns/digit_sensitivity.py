"""Digit sensitivity: the runs of digits that affect what patterns find in a text. Other runs may differ.

A flood of page faults has another pid and another `0x7f3a5c000000` in each line, of any length. What a pattern tests of
them depends on the text: `Xid .*: 79, ` tests one number of a line with an Xid, and none of any other line. All runs are
open at first. Where a path that has tested an open run reaches the pattern's end, the run's length is fixed, then its
characters, until the pattern's end is certain or out of reach. Picture and example: docs/internals/matching.md.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from exporter.core.patterns.expression import Expression
from exporter.core.patterns.masks import NONE_SENSITIVE, SensitiveRuns
from exporter.core.patterns.open_text import Frontier, OpenText, Unclear
from exporter.core.patterns.pattern_walk import MAX_STEPS, REFERS, PatternWalk, parsed, walk
from exporter.core.patterns.required_literals import Needs
from exporter.core.patterns.syntax import Unreadable

Guesses = dict[tuple[str, int], SensitiveRuns]  # by pattern and number of runs: what was sensitive in a text before


def searched(
    expressions: Iterable[Expression],
    text: str,
    sensitive: SensitiveRuns = NONE_SENSITIVE,
    *,
    whole: bool = True,
    guesses: Guesses | None = None,
) -> SensitiveRuns:
    """The runs of an ASCII text that affect a search for some patterns, with those that are `sensitive` already.

    A pattern finds the same in all texts of the mask that agree in them. Not `whole`: also in a part of the text. With
    `guesses`, texts that are alike take less time; they are updated.
    """
    guesses = {} if guesses is None else guesses
    text_now, lower = OpenText(text, sensitive), OpenText(text, sensitive, lower=True)
    for one in expressions:
        if not _may_have_needed(lower if one.needs.ignore_case else text_now, one.needs):
            continue
        match_start = _match_start(one, text) if whole else None
        if walk(one.pattern, text_now, _starts(one.pattern, text_now, match_start))[0].possible:
            key = one.pattern, text_now.runs
            guess = guesses.get(key, NONE_SENSITIVE)
            sensitive = guesses[key] = _refined(one.pattern, text, sensitive, guess, match_start)
            text_now, lower = OpenText(text, sensitive), OpenText(text, sensitive, lower=True)
    return sensitive


def searched_at_start(pattern: str, text: str, sensitive: SensitiveRuns) -> SensitiveRuns:
    """The same for a pattern that is only searched for at a text's beginning."""
    return _refined(pattern, text, sensitive, NONE_SENSITIVE, -1)


def _match_start(one: Expression, text: str) -> int | None:
    try:
        match = one.find(text)
    except TimeoutError:
        return None
    return match.start() if match else None


def _starts(pattern: str, text: OpenText, match_start: int | None) -> Frontier:
    """Where a match may begin: not after one that is certain. `match_start` -1: at the beginning only."""
    if match_start == -1:
        return Frontier(1)
    if match_start is not None and (state := text.state(match_start)) >= 0:
        after, _ = walk(pattern, text, Frontier(1 << state))
        if after.certain and not after.possible:
            return text.all_starts(match_start)
    return text.all_starts()


def _refined(pattern: str, text: str, initial: SensitiveRuns, guess: SensitiveRuns, start: int | None) -> SensitiveRuns:
    """The sensitive runs with those without which it is unclear what the pattern finds; `guess`: those to try first."""

    def after(sensitive: SensitiveRuns) -> tuple[OpenText, Frontier, PatternWalk]:
        open_text = OpenText(text, sensitive)
        return open_text, *walk(pattern, open_text, _starts(pattern, open_text, start))

    sensitive, steps = initial | guess, 0
    while True:
        open_text, end, walker = after(sensitive)
        if not end.possible or not open_text.open:
            break
        sensitive = open_text.refine(sensitive, walker.referred or walker.tested)
        steps = max(steps, walker.steps)
    if steps * (len(sensitive.lengths) + len(sensitive.characters)) > MAX_STEPS:
        return sensitive
    for run in sorted((sensitive.lengths - initial.lengths) | (sensitive.characters - initial.characters)):
        less = SensitiveRuns(sensitive.lengths - {run}, sensitive.characters - {run}) | initial
        for fewer in (less, less.with_lengths([run]))[: 1 + (run in sensitive.characters)]:
            if not after(fewer)[1].possible:
                sensitive = fewer
                break
    return sensitive


def contained(
    literals: Iterable[tuple[str, bool]], text: str, sensitive: SensitiveRuns = NONE_SENSITIVE
) -> SensitiveRuns:
    """The same for literals, and whether they ignore case: the runs that affect whether the text contains them."""
    texts: dict[bool, OpenText] = {}
    for literal, ignore_case in literals:
        while True:
            if ignore_case not in texts:
                texts[ignore_case] = OpenText(text, sensitive, lower=ignore_case)
            end, tested = _after_literal(texts[ignore_case], literal)
            if end.certain or not end.possible:
                break
            sensitive = texts[ignore_case].refine(sensitive, tested)
            texts.clear()
    return sensitive


def may_read_on(pattern: str, text: str, sensitive: SensitiveRuns, stop: int) -> bool:
    """Whether a match that begins in the first `stop` characters of an ASCII text may read, or look at, what follows the
    text, whatever its open runs are.
    """
    open_text = OpenText(text, sensitive)
    walker = PatternWalk(open_text, pattern)
    try:
        tree = parsed(pattern)
        walker.sequence(list(tree), tree.state.flags, open_text.all_starts(stop))
    except (Unclear, Unreadable):
        return True
    return bool(walker.reached >> open_text.size)


def referred_to(expressions: Iterable[Expression], text: str, sensitive: SensitiveRuns, stop: int) -> SensitiveRuns:
    """The same for the groups that back references repeat, in matches that begin in the first `stop` characters."""
    for one in expressions:
        while REFERS.search(one.pattern):
            open_text = OpenText(text, sensitive)
            walker = walk(one.pattern, open_text, open_text.all_starts(stop))[1]
            if not walker.referred:
                break
            sensitive = open_text.refine(sensitive, walker.referred)
    return sensitive


def read_from_start(pattern: str, text: str, sensitive: SensitiveRuns = NONE_SENSITIVE) -> SensitiveRuns:
    """The same for a pattern that reads a text from its beginning, however far: all runs that it tests."""
    while True:
        open_text = OpenText(text, sensitive)
        end, walker = walk(pattern, open_text, Frontier(1))
        tested = walker.tested | end.certain >> 1 & open_text.starts
        if not tested:
            return sensitive
        sensitive = open_text.refine(sensitive, tested)


def _may_have_needed(text: OpenText, needs: Needs) -> bool:
    """Whether a text may contain a literal of each needed set, for some open runs."""
    return all(any(_may_have(text, literal) for literal in literals) for literals in needs.sets)


def _may_have(text: OpenText, literal: str) -> bool:
    if literal in text.text:
        return True
    if not all(piece in text.text for piece in _pieces_outside_runs(literal)):
        return False
    return bool(_after_literal(text, literal)[0])


def _after_literal(text: OpenText, literal: str) -> tuple[Frontier, int]:
    """The frontier after a literal, and the runs that it tests."""
    walker, frontier = PatternWalk(text), text.all_starts()
    for character in literal:
        if not frontier:
            break
        frontier = walker.character(frozenset(character), frontier)
    return frontier, walker.tested


@lru_cache(maxsize=4096)
def _pieces_outside_runs(literal: str) -> list[str]:
    return [piece for piece in re.split("[0-9a-f]+", literal) if piece]
