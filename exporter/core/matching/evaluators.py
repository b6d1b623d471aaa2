"""The evaluators of lines: for each set of required literals the rules that these lead to, with a cache for floods.

`Evaluator.evaluate` serves the daemon and scans. `Evaluators.trace` runs the same evaluation without the cache for
`explain`, and reports the outcome of each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from exporter.core.matching.evaluate import RuleSet
from exporter.core.matching.match_result import MatchResult, NeedsMoreLines, Result
from exporter.core.matching.rules import Matcher, Outcome, Rule, RuleMatch, Verdict, search
from exporter.core.matching.verdict_cache import CachedResult, MaskCache
from exporter.core.model import SourceKind
from exporter.core.patterns.masks import Mask, Masked, masked
from exporter.core.values import replace

MAX_EVALUATORS = 512  # sets of gates that occur together in a line; a log of all built-in examples has 400
MAX_RECENT_KEYS = 2048  # orders in which the gates of a set occur
MAX_CACHED_CHARS = 4 << 20  # of all cached texts: 10,000 lines of an AMD runtime's abort
MAX_CACHED_TEXT = 1024
MASK_OVERHEAD_CHARS = 512  # what the cache of one more mask takes, in characters


class Evaluators:
    """The evaluators of a pipeline, one for each set of required literals, and the bound on what they cache."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._evaluators: dict[tuple[SourceKind, bool, frozenset[int]], Evaluator] = {}
        self._recent: dict[tuple[SourceKind, bool, tuple[int, ...]], Evaluator] = {}  # by the gates in their order
        self._cached_chars = 0

    def for_gates(self, gates: Sequence[int], source: SourceKind, *, trusted: bool = True) -> Evaluator:
        """The evaluator of a line with these required literals; not `trusted`: any user may write it to the kernel log."""
        key = (source, trusted, tuple(gates))
        try:
            return self._recent[key]
        except KeyError:
            if len(self._recent) >= MAX_RECENT_KEYS:
                self._recent.clear()
            evaluator = self._recent[key] = self._for_set(frozenset(gates), source, trusted=trusted)
            return evaluator

    def _for_set(self, gates: frozenset[int], source: SourceKind, *, trusted: bool) -> Evaluator:
        key = (source, trusted, gates)
        evaluator = self._evaluators.get(key)
        if evaluator is None:
            if len(self._evaluators) >= MAX_EVALUATORS:
                self._evaluators.clear()
                self._recent.clear()
                self._cached_chars = 0
            rules = self.matcher.under_gates(self._rules(gates, source, trusted=trusted), gates, source)
            evaluator = self._evaluators[key] = Evaluator(RuleSet(rules, self.matcher, source), self.count_cached)
        return evaluator

    def _rules(self, gates: Iterable[int], source: SourceKind, *, trusted: bool) -> list[Rule]:
        return [rule for rule in self.matcher.tried_under(gates, source) if trusted or rule.forgeable]

    def trace(
        self, gates: Iterable[int], lines: Sequence[str], source: SourceKind, *, trusted: bool = True
    ) -> list[Verdict]:
        """The outcome of each rule tried on a line, the first of `lines`, and of those that yielded untried."""
        tried: dict[str, Verdict] = {}

        def traced(rule: Rule, text: str, *args: Any, **flags: Any) -> tuple[Outcome, str, RuleMatch | None]:
            outcome, by, match = search(rule, text, *args, **flags)
            tried[rule.id] = Verdict(rule, outcome, by, match, text)
            return outcome, by, match

        rules = self._rules(gates, source, trusted=trusted)
        result, _ = RuleSet(rules, self.matcher, source, traced).evaluate(lines)
        assert isinstance(result, MatchResult), "all lines were given"
        matched = {verdict.rule.id for verdict in tried.values() if verdict.outcome == "matched"}
        final_ids = {match.rule.id for match in result.matches}
        echo = self.matcher.echo(lines[0]) if result.echo and matched - final_ids else ""

        def final(rule: Rule) -> Verdict | None:
            verdict = tried.get(rule.id)
            if verdict and (
                verdict.outcome != "matched" or rule.id in final_ids or (rule.kind == "shape" and not echo)
            ):
                return verdict
            if winners := rule.yields_to & matched:
                return Verdict(rule, "yields", min(winners))
            return replace(verdict, outcome="echo", by=echo) if verdict else None

        return [verdict for rule in rules if (verdict := final(rule))]

    def count_cached(self, characters: int) -> None:
        """So many more characters are cached. Clears all caches at the bound."""
        if self._cached_chars >= MAX_CACHED_CHARS:
            for evaluator in self._evaluators.values():
                evaluator.clear()
            self._cached_chars = 0
        self._cached_chars += characters


class Evaluator:
    """A rule set and its cache."""

    def __init__(self, rules: RuleSet, count_cached: Callable[[int], None] = lambda _characters: None) -> None:
        self.rules = rules
        self.lines = rules.lines
        self._count_cached = count_cached
        self._caches: dict[tuple[Mask, bool], MaskCache] = {}

    @property
    def has_cached(self) -> bool:
        return bool(self._caches)

    def evaluate(self, line: str, following: Callable[[], Sequence[str]]) -> MatchResult:
        """What a line matches. `following` gives the texts of the next lines; it is called only if they matter."""
        result, lines = self._get_or_evaluate((line,), more=self.lines > 1), [line]
        texts = tuple(following()) if isinstance(result, NeedsMoreLines) else ()
        while isinstance(result, NeedsMoreLines):
            rest = texts[len(lines) - 1 :]
            if rest and (alone := result.result_before(rest[0].encode(), "\n".join(rest).encode())):
                return alone._replace(block="\n".join(lines))
            lines += rest[:1]
            result = self._get_or_evaluate(lines, more=len(rest) > 1)
        return result

    def _get_or_evaluate(self, lines: Sequence[str], *, more: bool) -> Result:
        """The cached or new result of lines; `more` lines may follow them."""
        text = "\n".join(lines)
        masked_text = masked(text.encode()) if len(text) <= MAX_CACHED_TEXT and text.isascii() else None
        if masked_text is None:
            return self.rules.evaluate(lines, more=more)[0]
        mask, runs = masked_text
        cache = self._caches.get((mask, more))
        if cache is None:
            self._count_cached(len(text) + MASK_OVERHEAD_CHARS)
            cache = self._caches[mask, more] = MaskCache()
        try:
            result = cache.get(runs).with_runs(runs)
        except KeyError:
            evaluated, in_time = self.rules.evaluate(lines, more=more)
            result = evaluated
            if in_time:
                size, result = cache.add(
                    text.encode(), runs, evaluated,
                    lambda sensitive: self.rules.sensitive_runs(lines, evaluated, sensitive, more=more),
                )  # fmt: skip
                self._count_cached(size)
        return result._replace(block=text) if len(lines) > 1 and isinstance(result, MatchResult) else result

    def cached(self, text: Masked, *, more: bool) -> CachedResult | None:
        """The cached result of a masked text, if any; `more` lines follow it."""
        cache = self._caches.get((text.mask, more))
        try:
            return cache.get(text.runs) if cache else None
        except KeyError:
            return None

    def clear(self) -> None:
        self._caches.clear()
        self.rules.guesses.clear()
