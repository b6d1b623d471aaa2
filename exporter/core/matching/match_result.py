"""What matches a line, by itself or with the lines behind it: the result of an evaluation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.core.matching.rules import MAX_CAPTURE, Found, Rule
from exporter.core.patterns.masks import run_ends, run_spans


class MatchResult(NamedTuple):
    """What matches a line: signatures and facts in the catalogue's order; whether it only quotes an error; the crash
    shape that it has, if it matches no signature. `block` is the line with those behind it, where they had to be looked at.
    """

    found: tuple[Found, ...]
    echo: bool
    crash: Found | None
    block: str | None = None
    counted: tuple[CountedSignature, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.found or self.echo or self.crash)


class Signs(NamedTuple):
    """Literals that lines behind some may hold, the `blind` ones in either case."""

    exact: tuple[bytes, ...] = ()
    blind: tuple[bytes, ...] = ()

    def may_be_in(self, lines: bytes) -> bool:
        """Whether one may be in lines; they are texts, or whole lines that are not rewritten."""
        for sign in self.exact:  # an `any` of a generator takes twice as long, for each line of a flood
            if sign in lines:
                return True
        if not self.blind:
            return False
        lower = lines.lower()
        return not lines.isascii() or any(sign in lower for sign in self.blind)


class NeedsMoreLines(NamedTuple):
    """The lines behind some decide what they show. What they show `without` any they also show where the next line holds
    none of `in_next`, and no line behind holds one of `in_any`; None if that is not known.
    """

    without: MatchResult | None = None
    in_next: Signs = Signs()
    in_any: Signs = Signs()

    def shown_with(self, line: bytes, lines: bytes) -> MatchResult | None:
        """What is shown with a line behind, the first of `lines`, as far as that can be told so."""
        if self.without is None or self.in_next.may_be_in(line) or self.in_any.may_be_in(lines):
            return None
        return self.without


class Position(NamedTuple):
    """A position in all texts of a mask: behind so many runs, and so many other characters."""

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
    """A signature of a line that shows nothing but such: all that counts it, with its captures."""

    signature: str
    rank: Span | None
    gpu: Span | None
    pid: Span | None
    rule: Rule


class KnownResult(NamedTuple):
    """What a text shows, and with it all texts of its mask in which nothing differs that is looked at."""

    shown: MatchResult | NeedsMoreLines
    ends: list[int]  # of the text's runs
    runs: list[bytes]

    def moved(self, runs: Sequence[bytes]) -> MatchResult | NeedsMoreLines:
        """The same of a text with these runs."""
        if runs == self.runs:
            return self.shown
        if isinstance(self.shown, MatchResult):
            return self._moved(self.shown, runs)
        return self.shown._replace(without=self.shown.without and self._moved(self.shown.without, runs))

    def _moved(self, shown: MatchResult, runs: Sequence[bytes]) -> MatchResult:
        further = [0]
        for old, new in zip(self.runs, runs, strict=True):
            further.append(further[-1] + len(new) - len(old))

        def at(place: int) -> int:
            return place + further[bisect_right(self.ends, place)]

        return shown._replace(
            found=tuple(
                one._replace(
                    start=at(one.start),
                    groups=tuple((name, constant, at(start), at(stop)) for name, constant, start, stop in one.groups),
                )
                for one in shown.found
            )
        )


def known_result(shown: MatchResult | NeedsMoreLines, text: bytes, runs: list[bytes]) -> KnownResult:
    """What is remembered of it."""
    ends = run_ends(text)
    if isinstance(shown, MatchResult):
        shown = _counting(shown, ends, runs)
    elif shown.without:
        shown = shown._replace(without=_counting(shown.without, ends, runs))
    return KnownResult(shown, ends, runs)


def cuts_a_run(shown: MatchResult, text: bytes) -> set[int]:
    """The numbers of the runs within which something that was found begins or ends."""
    places = {place for one in shown.found for _, _, *span in one.groups for place in (one.start, *span)}
    return {n for n, (start, stop) in enumerate(run_spans(text)) if any(start < place < stop for place in places)}


def _counting(shown: MatchResult, ends: list[int], runs: list[bytes]) -> MatchResult:
    def position(place: int) -> Position:
        before = bisect_right(ends, place)
        return Position(place - sum(map(len, runs[:before])), before)

    ones = [_one(found, position) for found in shown.found]
    return shown._replace(block=None, counted=tuple(one for one in ones if one) if all(ones) else ())


def _one(found: Found, position: Callable[[int], Position]) -> CountedSignature | None:
    rule = found.rule
    if rule.kind != "signature" or rule.is_context or rule.ends_job or rule.tells_waiting:
        return None
    spans = {
        name: None if constant else Span(position(start), position(stop))
        for name, constant, start, stop in reversed(found.groups)
    }
    if not all(spans.get(name, True) for name in ("rank", "gpu", "pid")):
        return None  # it says so by its name alone
    return CountedSignature(found.rule.id, spans.get("rank"), spans.get("gpu"), spans.get("pid"), found.rule)
