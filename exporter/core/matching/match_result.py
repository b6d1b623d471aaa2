"""What matches a line, by itself or with the lines behind it: the result of an evaluation."""

from __future__ import annotations

from typing import NamedTuple

from exporter.core.matching.rules import Found


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


class NeedsMoreLines(NamedTuple):
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


class CountedSignature(NamedTuple):
    """A signature of a line that shows nothing but such: all that counts it. Its captures lie there in the text."""

    signature: str
    rank: slice | None
    gpu: slice | None


def cacheable(shown: MatchResult) -> MatchResult:
    """What is remembered of it for other texts."""
    return shown._replace(block=None, counted=_counted(shown))


def to_cache(known: MatchResult | NeedsMoreLines) -> MatchResult | NeedsMoreLines:
    """The same, where lines behind may decide."""
    return cacheable(known) if isinstance(known, MatchResult) else known


def _counted(shown: MatchResult) -> tuple[CountedSignature, ...]:
    ones = [_one(found) for found in shown.found]
    return tuple(one for one in ones if one) if all(ones) else ()


def _one(found: Found) -> CountedSignature | None:
    if found.rule.kind != "signature" or found.rule.is_context:
        return None
    lies = {name: None if constant else slice(start, stop) for name, constant, start, stop in reversed(found.groups)}
    if not all(lies.get(name, True) for name in ("rank", "gpu")):
        return None  # it says so by its name alone
    return CountedSignature(found.rule.id, lies.get("rank"), lies.get("gpu"))
