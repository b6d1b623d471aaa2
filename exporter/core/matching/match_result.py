"""What a line shows, by itself or with those behind it: what a trial finds and floods are counted by."""

from __future__ import annotations

from typing import NamedTuple

from exporter.core.matching.rules import Found


class MatchResult(NamedTuple):
    """What matches a line: signatures and facts in the catalogue's order; whether it only quotes an error; whether it looks
    like a crash but matches no signature. `block` is the line with those behind it, where they had to be looked at.
    """

    found: tuple[Found, ...]
    echo: bool
    unknown_crash: bool
    block: str | None = None
    ones: tuple[One, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.found or self.echo or self.unknown_crash)


class Behind(NamedTuple):
    """The lines behind some decide what they show. What they show `without` any they also show with those that hold none
    of the `signs`, nor of the `blind` ones in either case; None if that is not known.
    """

    without: MatchResult | None = None
    signs: tuple[bytes, ...] = ()
    blind: tuple[bytes, ...] = ()

    def shown_with(self, lines: bytes) -> MatchResult | None:
        """What is shown with these lines behind, as far as that can be told so; they are texts, or whole lines that are not
        rewritten.
        """
        if self.without is None or any(sign in lines for sign in self.signs):
            return None
        if self.blind:
            lower = lines.lower()
            if not lines.isascii() or any(sign in lower for sign in self.blind):
                return None
        return self.without


class One(NamedTuple):
    """A signature of a line that shows nothing but such: all that counts it. Its captures lie there in the text."""

    signature: str
    rank: slice | None
    gpu: slice | None


def kept(shown: MatchResult) -> MatchResult:
    """What is remembered of it for other texts."""
    return shown._replace(block=None, ones=_ones(shown))


def to_keep(known: MatchResult | Behind) -> MatchResult | Behind:
    """The same, where lines behind may decide."""
    return kept(known) if isinstance(known, MatchResult) else known


def _ones(shown: MatchResult) -> tuple[One, ...]:
    ones = [_one(found) for found in shown.found]
    return tuple(one for one in ones if one) if all(ones) else ()


def _one(found: Found) -> One | None:
    if found.rule.kind != "signature" or found.rule.is_context:
        return None
    lies = {name: None if constant else slice(start, stop) for name, constant, start, stop in reversed(found.groups)}
    if not all(lies.get(name, True) for name in ("rank", "gpu")):
        return None  # it says so by its name alone
    return One(found.rule.id, lies.get("rank"), lies.get("gpu"))
