"""What a line matches, by itself or with the lines that follow it: the result of an evaluation."""

from typing import NamedTuple

from exporter.core.matching.rules import RuleMatch


class MatchResult(NamedTuple):
    """The matches of a line, signatures and facts, in the catalogue's order.

    `echo`: the line only quotes an error. `crash`: the crash shape of a line that matches no signature. `block`: the line
    and the following lines that were part of the evaluation, if any.
    """

    matches: tuple[RuleMatch, ...]
    echo: bool
    crash: RuleMatch | None
    block: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.matches or self.echo or self.crash)


class LiteralSet(NamedTuple):
    """Literals to look for in lines; those of `any_case` in upper or lower case."""

    exact: tuple[bytes, ...] = ()
    any_case: tuple[bytes, ...] = ()

    def may_be_in(self, lines: bytes) -> bool:
        """Whether lines may contain one. The lines are texts, or whole lines that no container format rewrites."""
        for literal in self.exact:  # an `any` of a generator takes twice as long, for each line of a flood
            if literal in lines:
                return True
        if not self.any_case:
            return False
        lower = lines.lower()
        return not lines.isascii() or any(literal in lower for literal in self.any_case)


class NeedsMoreLines(NamedTuple):
    """The following lines decide what some lines match.

    `alone` is the result without any following line. It also holds if the next line has none of the literals `in_next`, and
    no following line has one of `in_any`. None if no such literals are known.
    """

    alone: MatchResult | None = None
    in_next: LiteralSet = LiteralSet()
    in_any: LiteralSet = LiteralSet()

    def result_before(self, line: bytes, lines: bytes) -> MatchResult | None:
        """The result if the following lines, of which `line` is the first, change nothing; None if they may."""
        if self.alone is None or self.in_next.may_be_in(line) or self.in_any.may_be_in(lines):
            return None
        return self.alone


Result = MatchResult | NeedsMoreLines
