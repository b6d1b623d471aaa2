"""The evaluator: which rules match a line, of those that its required literals lead to, with a cache for floods.

`Evaluator.shown` serves the daemon and scans. `Evaluators.trace` runs the same evaluation for `explain` and reports the
outcome of each rule. A crash may fill a log with a million alike lines, so results are cached by text, and a rule is
skipped if its match would yield to one found already. Invariant: the cache never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from exporter.core.matching.evaluate import RuleGroup, Searched, matches_in
from exporter.core.matching.match_result import (
    KnownResult,
    MatchResult,
    NeedsMoreLines,
    Signs,
    cuts_a_run,
    known_result,
)
from exporter.core.matching.rules import LEAD, PROCESS, Found, Matcher, Outcome, Rule, Verdict, search
from exporter.core.model import SourceKind
from exporter.core.patterns.masks import NOTHING, Looked, Mask, Masked, masked
from exporter.core.patterns.required_literals import Needs, needed_behind, needed_next
from exporter.core.values import replace

MAX_EVALUATORS = 512  # sets of gates that occur together in a line; a log of all built-in examples has 400
MAX_LATELY = 2048  # orders in which they come
MAX_REMEMBERED = 4 << 20  # characters of texts, by what they show: 10,000 lines of an AMD runtime's abort
MAX_REMEMBERED_TEXT = 1024
OF_A_MASK = 512  # characters that it takes besides to remember texts of one more
ANALYSE_AFTER = 8  # texts of one mask, which take as long to judge as to find out which runs patterns look at
MAX_OFTEN = 64  # times that this is found out for every so many texts of one mask, and then ever more seldom


class Evaluators:
    """The evaluators of a source, one for each set of required literals, and the bound on what they cache."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._evaluators: dict[tuple[SourceKind, bool, frozenset[int]], Evaluator] = {}
        self._lately: dict[tuple[SourceKind, bool, tuple[int, ...]], Evaluator] = {}  # by the gates as they came
        self._characters = 0

    def under(self, gates: Sequence[int], source: SourceKind, *, trusted: bool = True) -> Evaluator:
        """The evaluator of a line with these required literals; not `trusted`: any user may write it to the kernel log."""
        lately = (source, trusted, tuple(gates))
        try:
            return self._lately[lately]
        except KeyError:
            if len(self._lately) >= MAX_LATELY:
                self._lately.clear()
            evaluator = self._lately[lately] = self._under(frozenset(gates), source, trusted=trusted)
            return evaluator

    def _under(self, gates: frozenset[int], source: SourceKind, *, trusted: bool) -> Evaluator:
        key = (source, trusted, gates)
        evaluator = self._evaluators.get(key)
        if evaluator is None:
            if len(self._evaluators) >= MAX_EVALUATORS:
                self._evaluators.clear()
                self._lately.clear()
                self._characters = 0
            rules = self.matcher.tried_under(gates, source)
            evaluator = Evaluator([rule for rule in rules if trusted or rule.forgeable], self, source)
            self._evaluators[key] = evaluator
        return evaluator

    def trace(
        self, gates: Iterable[int], lines: Sequence[str], source: SourceKind, *, trusted: bool = True
    ) -> list[Verdict]:
        """The outcome of each rule tried on a line, the first of `lines`, and of those that yielded untried.

        The same evaluation as `Evaluator.shown`, without its cache.
        """
        tried: dict[str, Verdict] = {}

        def traced(rule: Rule, text: str, *args: Any, **flags: Any) -> tuple[Outcome, str, Found | None]:
            outcome, by, found = search(rule, text, *args, **flags)
            tried[rule.id] = Verdict(rule, outcome, by, found, text)
            return outcome, by, found

        rules = [rule for rule in self.matcher.tried_under(gates, source) if trusted or rule.forgeable]
        shown = Evaluator(rules, self, source, traced).evaluated(lines)
        matched = {verdict.rule.id for verdict in tried.values() if verdict.outcome == "matched"}
        cacheable = {found.rule.id for found in shown.found}
        echo = self.matcher.echo(lines[0]) if shown.echo and matched - cacheable else ""

        def final(rule: Rule) -> Verdict | None:
            verdict = tried.get(rule.id)
            if verdict and (
                verdict.outcome != "matched" or rule.id in cacheable or (rule.kind == "shape" and not echo)
            ):
                return verdict
            if winners := rule.yields_to & matched:
                return Verdict(rule, "yields", min(winners))
            return replace(verdict, outcome="echo", by=echo) if verdict else None

        return [verdict for rule in rules if (verdict := final(rule))]

    def remembers(self, size: int) -> None:
        """So many characters more are remembered."""
        if self._characters >= MAX_REMEMBERED:
            self._forget()
        self._characters += size

    def _forget(self) -> None:
        for evaluator in self._evaluators.values():
            evaluator.forget()
        self._characters = 0


class CachedResults:
    """ASCII texts of one mask, and what they show.

    Until it is known at which of their runs patterns look, each is remembered as it is.
    """

    __slots__ = ("_kept", "_look", "_looked", "_misses", "_next", "_times")

    def __init__(self) -> None:
        self._looked: Looked | None = None
        self._look: Callable[[list[bytes]], Hashable] = tuple
        self._kept: dict[Hashable, KnownResult] = {}  # by what is looked at
        self._misses, self._next, self._times = 0, ANALYSE_AFTER, 0

    def of(self, runs: list[bytes]) -> KnownResult:
        """Raises KeyError where it is not known."""
        return self._kept[self._look(runs)]

    def add(
        self,
        text: bytes,
        runs: list[bytes],
        shown: MatchResult | NeedsMoreLines,
        look: Callable[[Looked], tuple[Looked, MatchResult | NeedsMoreLines]],
    ) -> tuple[int, MatchResult | NeedsMoreLines]:
        """Remember what one more text shows; how many characters are remembered for it, and the best that is known of it.

        `look` tells which runs of it are looked at, given those known to be, and better what lines behind it decide. It is
        asked now and then: it takes as long as ANALYSE_AFTER texts.
        """
        self._misses += 1
        if self._misses >= self._next:
            self._times += 1
            self._next = self._misses + ANALYSE_AFTER if self._times < MAX_OFTEN else 2 * self._misses
            looked, shown = look(self._looked or NOTHING)
            self._widen(looked)
        elif self._looked is not None:
            return 0, shown
        self._kept[self._look(runs)] = known_result(shown, text, runs)
        return len(text), shown

    def _widen(self, looked: Looked) -> None:
        if self._looked is None:
            self._kept.clear()  # of these nobody knows which runs matter
        elif self._looked | looked == self._looked:
            return
        self._looked = looked | (self._looked or NOTHING)
        self._look = self._looked.reader()
        known = [one for one in self._kept.values() if isinstance(one.shown, MatchResult)]
        self._kept = {self._look(one.runs): one for one in known}  # of the others more is to be learnt


class Evaluator:
    """Some rules of a source. `lines` is how many adjoining lines they look at; 0 without a rule."""

    def __init__(
        self,
        rules: Sequence[Rule],
        evaluators: Evaluators,
        source: SourceKind,
        search: Callable[..., Searched] = search,
    ) -> None:
        self.lines = max((rule.lines for rule in rules), default=0)
        self._evaluators = evaluators
        self._source: SourceKind = source
        self._echo = evaluators.matcher.echo if source == "job" else None
        self._quarantine = evaluators.matcher.quarantine
        self._outranking = frozenset(winner for rule in rules for winner in rule.yields_to)
        self._known, self._shapes = (
            [
                (
                    lines,
                    RuleGroup(
                        [r for r in of_kind if r.lines == lines], self._outranking, source, self._quarantine, search
                    ),
                )
                for lines in sorted({r.lines for r in of_kind})
            ]
            for of_kind in ([r for r in rules if r.kind != "shape"], [r for r in rules if r.kind == "shape"])
        )
        self._echoes = evaluators.matcher.echo_expressions if source == "job" else []
        searched = [(rule.lines == 1 or one.needs.one_line, one) for rule in rules for one in rule.patterns]
        searched += [(rule.lines == 1, one) for rule in rules for one in rule.unless]
        self._of_line = [one for of_line, one in searched if of_line]
        self._of_block = [one for of_line, one in searched if not of_line]
        self._of_blocks = [rule for rule in rules if rule.lines > 1]
        self._seen: dict[tuple[Mask, bool], CachedResults] = {}

    def evaluated(self, lines: Sequence[str]) -> MatchResult:
        """What a line shows, the first of `lines`, without the cache; all lines behind it that matter are given."""
        return self._judged(lines)[0]

    def shown(self, text: str, behind: Callable[[], Sequence[str]]) -> MatchResult:
        """What a line shows, given the texts of the lines behind it, which are asked for only if they matter."""
        shown, lines = self._of((text,), more=self.lines > 1), [text]
        texts = tuple(behind()) if isinstance(shown, NeedsMoreLines) else ()
        while isinstance(shown, NeedsMoreLines):
            rest = texts[len(lines) - 1 :]
            if rest and (without := shown.shown_with(rest[0].encode(), "\n".join(rest).encode())):
                return without._replace(block="\n".join(lines))
            lines += rest[:1]
            shown = self._of(lines, more=len(rest) > 1)
        return shown

    def _of(self, lines: Sequence[str], *, more: bool) -> MatchResult | NeedsMoreLines:
        """What lines show; `more` may stand behind them."""
        text = "\n".join(lines)
        if len(text) > MAX_REMEMBERED_TEXT or not text.isascii():
            return self._judged_so_far(lines, None)[0] if more else self._judged(lines)[0]
        raw = text.encode()
        seen = masked(raw)
        if seen is None:
            return self._judged_so_far(lines, None)[0] if more else self._judged(lines)[0]
        texts = self._seen.get((seen.mask, more))
        if texts is None:
            self._evaluators.remembers(len(raw) + OF_A_MASK)
            texts = self._seen[seen.mask, more] = CachedResults()
        try:
            known = texts.of(seen.runs).moved(seen.runs)
        except KeyError:
            known, in_time = self._judged_so_far(lines, None) if more else self._judged(lines)
            if in_time:
                size, known = texts.add(raw, seen.runs, known, lambda at: self._looked(lines, known, at, more=more))
                self._evaluators.remembers(size)
        return known._replace(block=text) if len(lines) > 1 and isinstance(known, MatchResult) else known

    def _looked(
        self, lines: Sequence[str], known: MatchResult | NeedsMoreLines, at: Looked, *, more: bool
    ) -> tuple[Looked, MatchResult | NeedsMoreLines]:
        """The runs that patterns look at in lines, with those `at` which they are known to look, and what the lines show."""
        from exporter.core.patterns.digit_sensitivity import (  # 3 ms that only a flood needs
            held,
            looked_at,
            looked_at_start,
            read_from_start,
            referred,
        )

        text = "\n".join([*lines, ""] if more else lines)
        at = looked_at(self._of_line, lines[0], at)
        if len(lines) > 1 or isinstance(known, NeedsMoreLines):
            at = looked_at(self._of_block, text, at, whole=False)
        if more:
            at = referred(self._of_block, text, held(self._asked_for(), text, at), len(lines[0]))
        at = looked_at(self._echoes, lines[0], at)
        if self._source == "kernel":
            at = looked_at_start(PROCESS.pattern, text, read_from_start(LEAD.pattern, text, at))
        if isinstance(known, NeedsMoreLines):
            better, in_time = self._judged_so_far(lines, at)
            known = better if in_time else NeedsMoreLines()
        shown = known if isinstance(known, MatchResult) else known.without
        return at.sizing(cuts_a_run(shown, text.encode()) if shown else ()), known

    def _judged_so_far(self, lines: Sequence[str], known: Looked | None) -> tuple[MatchResult | NeedsMoreLines, bool]:
        """What lines show that others stand behind, and whether all rules had a say and their time.

        `known`: the runs that are looked at, to find out better which patterns may go on, which takes some ms.
        """
        if len(lines) == 1:
            before = self._quarantine.unsure
            shown = self._shown(lines[0], (), None)
            if shown is not None:
                return shown, before == self._quarantine.unsure
        without, in_time = self._judged([*lines, ""])  # so that they end in a newline
        signs = self._signs(lines, known, without) if in_time else None
        if signs is None:
            return NeedsMoreLines(), in_time
        return NeedsMoreLines(without, *signs), True

    def _signs(self, lines: Sequence[str], known: Looked | None, without: MatchResult) -> tuple[Signs, Signs] | None:
        """The literals of which the next line, or any line behind, must hold one to change what these show; None if lines
        may hold anything. `without` is what they show without any behind.
        """
        from exporter.core.patterns.digit_sensitivity import goes_on

        in_next, in_any = set[tuple[str, bool]](), set[tuple[str, bool]]()
        text = "\n".join(lines)
        newlines = len(lines) if text.count("\n") < len(lines) else -1  # a line of the kernel may hold some itself
        shown = frozenset(one.rule.id for one in without.found)
        for rule in self._of_blocks:
            if rule.yields_to & shown and rule.id not in self._outranking:
                continue
            begun = [one for one in rule.patterns if one.may_begin_in(lines[0])] if rule.lines > len(lines) else []
            further = [one for one in begun if not one.needs.one_line]
            excuses = rule.unless if begun else ()
            if known is not None:
                further = [one for one in further if goes_on(one.pattern, text + "\n", known, len(lines[0]))]
                outcome, by, _ = search(rule, text + "\n", self._source, self._quarantine, len(lines[0]))
                if outcome == "unless" and any(one.pattern == by and one.needs.one_line for one in excuses):
                    continue
                if outcome == "no pattern" and not further:
                    excuses = ()
            for one in further:
                needed, signs = needed_next(one.pattern, newlines) if newlines > 0 else None, in_next
                if needed is None:
                    needed, signs = needed_behind(one.pattern), in_any
                if needed is None:
                    return None
                signs.update((sign, one.needs.ignore_case) for sign in needed)
            for one in excuses:
                of_one = _sign(one.needs, text)
                if not of_one:
                    return None
                in_any.update((sign, one.needs.ignore_case) for sign in of_one)
        return _by_case(in_next), _by_case(in_any)

    def _asked_for(self) -> Iterator[tuple[str, bool]]:
        """The literals that lines are asked for to know whether those behind them matter."""
        for one in self._of_block:
            for literal in (literal for literals in (*one.needs.first, *one.needs.sets) for literal in literals):
                yield from ((piece, one.needs.ignore_case) for piece in literal.split("\n") if piece)

    @property
    def has_seen(self) -> bool:
        """Whether anything is known of any text."""
        return bool(self._seen)

    def known(self, seen: Masked, *, more: bool) -> KnownResult | None:
        """What is known of a text with this mask and these runs; `more` lines stand behind it."""
        texts = self._seen.get((seen.mask, more))
        try:
            return texts.of(seen.runs) if texts else None
        except KeyError:
            return None

    def forget(self) -> None:
        """Remember nothing."""
        self._seen.clear()

    def _judged(self, lines: Sequence[str]) -> tuple[MatchResult, bool]:
        """What the last lines of a log show, and whether every rule was tried within its time."""
        before = self._quarantine.unsure
        shown = self._shown(lines[0], lines, "\n".join(lines))
        assert shown is not None, "all of it was given"
        return shown, before == self._quarantine.unsure

    def _shown(self, text: str, lines: Sequence[str], block: str | None) -> MatchResult | None:
        before = self._amid()
        found = matches_in(self._known, text, lines)
        if found is None:
            return None
        crash = None
        if not any(one.rule.kind == "signature" for one in found):
            shapes = matches_in(self._shapes, text, lines)
            if shapes is None:
                return None
            crash = min(shapes, key=_doubt, default=None)
            if crash is None:
                return MatchResult(found, self._amid() > before, None, block)
        if self._echo and self._echo(text.partition("\n")[0]):
            return MatchResult(tuple(one for one in found if one.rule.kind == "fact"), True, None, block)
        return MatchResult(found, False, crash, block)

    def _amid(self) -> int:
        return sum(rules.amid for _, rules in self._known)


def _doubt(shape: Found) -> tuple[bool, bool, bool, bool, str]:
    """A sort key: of several crash shapes of one line, that which says most comes first."""
    rule = shape.rule
    return (not rule.ends_process, rule.needs_report, not rule.crash, rule.in_traceback, rule.id)


def _by_case(signs: Iterable[tuple[str, bool]]) -> Signs:
    return Signs(*(tuple(text.encode() for text, blind in sorted(signs) if blind is which) for which in (False, True)))


def _sign(needs: Needs, text: str) -> list[str]:
    """Literals of which the lines behind a text must hold one so that all of it may hold what is needed; none if nobody
    knows any.
    """
    if needs.ignore_case:
        if not text.isascii():  # letters beyond ASCII equal ASCII ones
            return []
        text = text.lower()
    best: list[str] = []
    for literals in needs.sets:
        # None crosses a line: what stands in front of the next one is not in its text.
        pieces = [max((p for p in literal.split("\n") if p not in text), key=len, default="") for literal in literals]
        if min(map(len, pieces)) > min(map(len, best), default=0):
            best = pieces
    return best
