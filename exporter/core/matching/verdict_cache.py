"""Cached results of the texts of one mask. A crash may fill a log with a million lines that differ only in numbers.

Texts of one mask share a result if they agree in the sensitive runs. Invariant: the cache never changes a result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from exporter.core.matching.match_result import MatchResult, Result
from exporter.core.matching.rules import MAX_CAPTURE, Rule, RuleMatch
from exporter.core.patterns.masks import NONE_SENSITIVE, SensitiveRuns, run_ends, run_spans

ANALYSE_AFTER = 8  # texts of one mask, which take as long to evaluate as one analysis of which runs are sensitive
MAX_EARLY_ANALYSES = 64  # of one mask, one for every ANALYSE_AFTER texts; later ones are ever more seldom

Analyse = Callable[[SensitiveRuns], tuple[SensitiveRuns, Result]]


class Position(NamedTuple):
    """A position in all texts of a mask: after so many runs, and so many other characters."""

    characters: int
    runs: int

    def within(self, runs: Sequence[bytes]) -> int:
        """The position in a text with these runs."""
        return self.characters + sum(map(len, runs[: self.runs]))


class Span(NamedTuple):
    """A part of all texts of a mask."""

    start: Position
    stop: Position

    def of(self, text: bytes, runs: Sequence[bytes]) -> str:
        return text[self.start.within(runs) : self.stop.within(runs)][:MAX_CAPTURE].decode()


class CountedSignature(NamedTuple):
    """A signature of a line that may be counted without a match of its own, with the captures that counting needs."""

    signature: str
    rank: Span | None
    gpu: Span | None
    pid: Span | None
    rule: Rule


class CachedResult(NamedTuple):
    """The result of a text. It holds for all texts of the mask with equal sensitive runs.

    `counted`: the signatures of the result, if it has nothing but signatures that may be counted; else empty. Where the
    following lines decide, these and `is_empty` are of the result without any.
    """

    result: Result
    counted: tuple[CountedSignature, ...]
    is_empty: bool
    ends: list[int]  # of the text's runs
    runs: list[bytes]

    @classmethod
    def of(cls, result: Result, text: bytes, runs: list[bytes]) -> CachedResult:
        ends = run_ends(text)
        result = result._replace(block=None) if isinstance(result, MatchResult) else result
        alone = _alone(result)
        return cls(result, _counted(alone, ends, runs) if alone else (), bool(alone and alone.is_empty), ends, runs)

    def with_runs(self, runs: Sequence[bytes]) -> Result:
        """The result of a text with these runs: the same matches, at the positions there."""
        if runs == self.runs:
            return self.result
        if isinstance(self.result, MatchResult):
            return self._moved(self.result, runs)
        return self.result._replace(alone=self.result.alone and self._moved(self.result.alone, runs))

    def _moved(self, result: MatchResult, runs: Sequence[bytes]) -> MatchResult:
        offsets = [0]
        for old, new in zip(self.runs, runs, strict=True):
            offsets.append(offsets[-1] + len(new) - len(old))

        def at(position: int) -> int:
            return position + offsets[bisect_right(self.ends, position)]

        def moved(match: RuleMatch) -> RuleMatch:
            return match._replace(
                start=at(match.start),
                groups=tuple((name, constant, at(start), at(stop)) for name, constant, start, stop in match.groups),
            )

        return result._replace(matches=tuple(map(moved, result.matches)), crash=result.crash and moved(result.crash))


class MaskCache:
    """The cached results of the texts of one mask. Until the sensitive runs are known, each text is its own key."""

    __slots__ = ("_analyses", "_by_key", "_key_of", "_misses", "_next", "_sensitive")

    def __init__(self) -> None:
        self._sensitive: SensitiveRuns | None = None
        self._key_of: Callable[[list[bytes]], Hashable] = tuple
        self._by_key: dict[Hashable, CachedResult] = {}
        self._misses, self._next, self._analyses = 0, ANALYSE_AFTER, 0

    def get(self, runs: list[bytes]) -> CachedResult:
        """The result for a text with these runs. Raises KeyError if it is not cached."""
        return self._by_key[self._key_of(runs)]

    def add(self, text: bytes, runs: list[bytes], result: Result, analyse: Analyse) -> tuple[int, Result]:
        """Cache the result of one more text; how many characters that takes, and the sharpest result.

        `analyse` gives the sensitive runs of the text, with those known so far, and a result that needs fewer lines. It is
        called now and then: it takes as long as ANALYSE_AFTER evaluations.
        """
        self._misses += 1
        if self._misses >= self._next:
            self._analyses += 1
            self._next = self._misses + ANALYSE_AFTER if self._analyses < MAX_EARLY_ANALYSES else 2 * self._misses
            sensitive, result = analyse(self._sensitive or NONE_SENSITIVE)
            self._widen(sensitive.with_lengths(_runs_cut(result, text)))
        elif self._sensitive is not None or _alone(result) is None:
            return 0, result  # the analysis of a text whose like is not kept may make it sharper
        self._by_key[self._key_of(runs)] = CachedResult.of(result, text, runs)
        return len(text), result

    def _widen(self, sensitive: SensitiveRuns) -> None:
        if self._sensitive is None:
            self._by_key.clear()  # the sensitive runs of these texts are unknown
        elif self._sensitive | sensitive == self._sensitive:
            return
        self._sensitive = sensitive | (self._sensitive or NONE_SENSITIVE)
        self._key_of = self._sensitive.key_function()
        final = [cached for cached in self._by_key.values() if isinstance(cached.result, MatchResult)]
        self._by_key = {self._key_of(cached.runs): cached for cached in final}  # the others may become sharper


def _alone(result: Result) -> MatchResult | None:
    return result if isinstance(result, MatchResult) else result.alone


def _runs_cut(result: Result, text: bytes) -> set[int]:
    """The numbers of the runs within which a match or a capture begins or ends."""
    alone = _alone(result)
    matches = (*alone.matches, *filter(None, [alone.crash])) if alone else ()
    positions = {at for match in matches for _, _, *span in match.groups for at in (match.start, *span)}
    return {n for n, (start, stop) in enumerate(run_spans(text)) if any(start < at < stop for at in positions)}


def _counted(result: MatchResult, ends: list[int], runs: list[bytes]) -> tuple[CountedSignature, ...]:
    """The signatures of a result that may be counted; empty if one may not."""
    signatures = [_counted_signature(match, ends, runs) for match in result.matches]
    return tuple(one for one in signatures if one) if all(signatures) else ()


def _counted_signature(match: RuleMatch, ends: list[int], runs: list[bytes]) -> CountedSignature | None:
    rule = match.rule
    if rule.kind != "signature" or rule.is_context or rule.ends_job or rule.shows_waiting:
        return None

    def position(at: int) -> Position:
        before = bisect_right(ends, at)
        return Position(at - sum(map(len, runs[:before])), before)

    spans = {
        name: None if constant else Span(position(start), position(stop))
        for name, constant, start, stop in reversed(match.groups)
    }
    if not all(spans.get(name, True) for name in ("rank", "gpu", "pid")):
        return None  # the name of its group is the value
    return CountedSignature(rule.id, spans.get("rank"), spans.get("gpu"), spans.get("pid"), rule)
