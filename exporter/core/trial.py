"""What a line shows of the rules that its gates lead to: the answers of `Matcher.judge` without their reasons, for floods.

A crash that fills a log shows itself a million times. So texts that come again are remembered, patterns that cannot be
there are ruled out, and no rule is tried whose match would yield to one that is there. None of it changes an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import regex

from exporter.core.digits import exchangeable
from exporter.core.match import Found, Matcher, Rule, search
from exporter.core.model import SourceKind
from exporter.core.prefilter import Prefilter

MAX_TRIALS = 512  # sets of gates that occur together in a line; a log of all built-in examples has 400
MAX_REMEMBERED = (
    2048  # texts of at most MAX_REMEMBERED_TEXT characters, by what they show and by whether they quote: 4 MiB
)
MAX_REMEMBERED_TEXT = 1024
WORTH_EXCHANGING = (
    256  # texts, from which on those that differ only in digits count as one; to find out takes 1 ms a pattern
)
MAX_NARROWED = 256  # sets of patterns that a prefilter leaves over, for one set of gates

_Narrowed = list[tuple["Rule", list[regex.Pattern[str]], list[regex.Pattern[str]]]]
_NONE: frozenset[str] = frozenset()


class Shown(NamedTuple):
    """What a line shows: signatures and facts in the catalogue's order; whether it only quotes an error; whether it looks
    like a crash that no signature knows.
    """

    found: tuple[Found, ...]
    echo: bool
    unknown_crash: bool


class _Alike:
    """Under what a text is remembered: one key for all that no pattern tells apart."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._table: bytes | None = None  # for bytes.translate, to which None changes nothing
        self._asked = 0

    def key(self, text: str) -> bytes | None:
        """None for a text that is not to be remembered."""
        if len(text) > MAX_REMEMBERED_TEXT or not text.isascii():
            return None
        self._asked += 1
        if self._asked == WORTH_EXCHANGING:
            self._table = exchangeable(self._patterns)
        return text.encode().translate(self._table)


class Trials:
    """The trial of each set of gates of a source."""

    def __init__(self, matcher: Matcher, *, prefilters: bool) -> None:
        self.remembered: dict[tuple[int, bytes, frozenset[str]], tuple[Found, ...]] = {}
        self.prefilters = prefilters
        self._matcher = matcher
        self._trials: dict[tuple[SourceKind, frozenset[int], bool], Trial] = {}
        self._alike = _Alike(matcher.echo_patterns)
        self._echoes: dict[bytes, bool] = {}

    def under(self, gates: frozenset[int], source: SourceKind, *, trusted: bool = True) -> Trial:
        """The trial of a line that holds these gates, and of one that any user may have written into the kernel's log."""
        key = (source, gates, trusted)
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= MAX_TRIALS:
                self._trials.clear()
                self.remembered.clear()
            rules = self._matcher.tried_under(gates, source)
            trial = Trial([rule for rule in rules if trusted or rule.forgeable], self, source)
            self._trials[key] = trial
        return trial

    def is_echo(self, text: str) -> bool:
        """Whether a line only quotes an error."""
        key, timeouts = self._alike.key(text), self._matcher.echo_timeouts
        if key is None:
            return bool(self._matcher.echo(text))
        known = self._echoes.get(key)
        if known is None:
            known = bool(self._matcher.echo(text))
            if timeouts == self._matcher.echo_timeouts:
                if len(self._echoes) >= MAX_REMEMBERED:
                    self._echoes.clear()
                self._echoes[key] = known
        return known


class Trial:
    """Some rules of a source. `lines` is how many adjoining lines they look at; 0 without a rule."""

    def __init__(self, rules: Sequence[Rule], trials: Trials, source: SourceKind) -> None:
        self.lines = max((rule.lines for rule in rules), default=0)
        self._is_echo = trials.is_echo if source == "job" else None
        outranking = frozenset(winner for rule in rules for winner in rule.yields_to)
        self._known, self._shapes = (
            [
                (
                    lines,
                    _Rules(
                        [r for r in rules if r.lines == lines and (r.kind == "shape") == shapes], outranking, trials
                    ),
                )
                for lines in sorted({r.lines for r in rules if (r.kind == "shape") == shapes})
            ]
            for shapes in (False, True)
        )

    def shown(self, text: str, behind: Callable[[], Sequence[str]]) -> Shown:
        """What a line shows, given the texts of the lines behind it, which are asked for only if they matter."""
        found = _tried(self._known, text, behind)
        a_signature = False
        for one in found:
            a_signature = a_signature or one.rule.kind == "signature"
        unknown = not a_signature and bool(_tried(self._shapes, text, behind))
        if (a_signature or unknown) and self._is_echo and self._is_echo(text.partition("\n")[0]):
            return Shown(tuple(one for one in found if one.rule.kind == "fact"), echo=True, unknown_crash=False)
        return Shown(found, echo=False, unknown_crash=unknown)


def _tried(spans: Iterable[tuple[int, _Rules]], text: str, behind: Callable[[], Sequence[str]]) -> tuple[Found, ...]:
    """What is found, less what yields: first among the rules of single lines, then among all."""
    found: tuple[Found, ...] = ()
    for lines, rules in spans:
        if lines == 1:
            found = _unyielding(rules.found_in(text, _NONE))
            continue
        there = frozenset(one.rule.id for one in found) if found else _NONE
        if not rules.all_yield(there):
            block = "\n".join([text, *behind()[: lines - 1]])
            found += tuple(one for one in rules.found_in(block, there) if one.start <= len(text))
    return _unyielding(found)


def _unyielding(found: tuple[Found, ...]) -> tuple[Found, ...]:
    if len(found) < 2:
        return found
    there = {one.rule.id for one in found}
    return tuple(one for one in found if not one.rule.yields_to & there)


class _Rules:
    """Rules that look at equally many lines."""

    def __init__(self, rules: Sequence[Rule], outranking: frozenset[str], trials: Trials) -> None:
        self._position = {rule: number for number, rule in enumerate(rules)}
        # Those that no rule yields to are left out where they would yield themselves, so they come last.
        self._last = frozenset(rule for rule in rules if rule.yields_to and rule.id not in outranking)
        self._rules = sorted(rules, key=lambda rule: rule in self._last)
        self._places = [
            (rule, place, excuses)
            for rule in self._rules
            for excuses, patterns in ((False, rule.patterns), (True, rule.unless))
            for place in range(len(patterns))
        ]
        self._patterns = [pattern for rule in self._rules for pattern in (*rule.patterns, *rule.unless)]
        self._prefilter = Prefilter(self._patterns, wanted=trials.prefilters)
        self._alike = _Alike(self._patterns)
        self._narrowed: dict[tuple[int, ...], _Narrowed] = {}
        self._remembered = trials.remembered

    def all_yield(self, there: frozenset[str]) -> bool:
        """Whether nothing of these is to be told of beside signatures that are there."""
        return all(rule in self._last and rule.yields_to & there for rule in self._rules)

    def found_in(self, text: str, there: frozenset[str]) -> tuple[Found, ...]:
        """What a text shows, less what would yield to signatures that are there."""
        alike = self._alike.key(text)
        if alike is None:
            return self._search(text, there)[0]
        key = (id(self), alike, there)
        known = self._remembered.get(key)
        if known is None:
            found, in_time = self._search(text, there)
            if in_time:
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = found
            return found
        return tuple(Found(one.rule, text, one.start, one.groups) for one in known) if known else known

    def _search(self, text: str, there: frozenset[str]) -> tuple[tuple[Found, ...], bool]:
        found: list[Found] = []
        in_time = True
        for rule, patterns, excuses in self._left_over(text):
            if rule in self._last and rule.yields_to & there:
                continue
            outcome, _, one = search(rule, patterns, excuses, text)
            if one is not None:
                found.append(one)
                there = there | {rule.id}
            in_time = in_time and outcome != "timeout"
        if len(found) > 1:
            found.sort(key=lambda one: self._position[one.rule])
        return tuple(found), in_time

    def _left_over(self, text: str) -> _Narrowed:
        """The rules that the text may show, each with the patterns that may be in it."""
        possible = self._prefilter.possible(text)
        key = tuple(range(len(self._patterns)) if possible is None else possible)
        narrowed = self._narrowed.get(key)
        if narrowed is None:
            if len(self._narrowed) >= MAX_NARROWED:
                self._narrowed.clear()
            narrowed = self._narrowed[key] = self._of(key)
        return narrowed

    def _of(self, chosen: Sequence[int]) -> _Narrowed:
        narrowed: _Narrowed = []
        for rule, parts in itertools.groupby((self._places[index] for index in chosen), key=itemgetter(0)):
            found: tuple[list[regex.Pattern[str]], list[regex.Pattern[str]]] = ([], [])
            for _, place, excuses in parts:
                found[excuses].append(rule.compiled()[excuses][place])
            narrowed.append((rule, *found))
        return [(rule, patterns, excuses) for rule, patterns, excuses in narrowed if patterns]
