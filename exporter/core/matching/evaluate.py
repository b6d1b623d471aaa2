"""Evaluation of lines by rules: which rules match, less those that yield to another match. Keeps nothing between lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from exporter.core.matching.match_result import LiteralSet, MatchResult, NeedsMoreLines, Result
from exporter.core.matching.rules import LEAD, PROCESS, Matcher, Outcome, Rule, RuleMatch, search
from exporter.core.model import SourceKind
from exporter.core.patterns.masks import SensitiveRuns
from exporter.core.patterns.required_literals import Needs, needed_after, needed_next

Searched = tuple[Outcome, str, RuleMatch | None]
Group = tuple[int, list[Rule]]  # rules that cover equally many lines, and how many


class RuleSet:
    """Some rules of a source. `lines` is how many adjacent lines they cover; 0 without a rule."""

    def __init__(
        self, rules: Sequence[Rule], matcher: Matcher, source: SourceKind, search: Callable[..., Searched] = search
    ) -> None:
        self.lines = max((rule.lines for rule in rules), default=0)
        self._source: SourceKind = source
        self._search = search
        self._quarantine = matcher.quarantine
        self._echo = matcher.echo if source == "job" else None
        self._echoes = matcher.echo_expressions if source == "job" else []
        self._order = {rule: number for number, rule in enumerate(rules)}
        # Rules that yield, and that no rule yields to, are tried last, and skipped when they would yield.
        outranking = frozenset(winner for rule in rules for winner in rule.yields_to)
        self._skippable = frozenset(rule for rule in rules if rule.yields_to and rule.id not in outranking)
        self._named = self._groups(rule for rule in rules if rule.kind != "shape")
        self._shapes = self._groups(rule for rule in rules if rule.kind == "shape")
        self.guesses: dict[tuple[str, int], SensitiveRuns] = {}  # of `digit_sensitivity`
        self._mid_message = False  # a rule matched inside a kernel message, where user text may be
        # What is searched in the first line only, and what in the block of all lines.
        patterns = [(rule.lines == 1 or one.needs.one_line, one) for rule in rules for one in rule.patterns]
        patterns += [(rule.lines == 1, one) for rule in rules for one in rule.unless]
        self._line_patterns = [one for in_line, one in patterns if in_line]
        self._block_patterns = [one for in_line, one in patterns if not in_line]
        self._block_rules = [rule for rule in rules if rule.lines > 1]

    def _groups(self, rules: Iterable[Rule]) -> list[Group]:
        ordered = sorted(rules, key=lambda rule: (rule.lines, rule in self._skippable))
        return [(lines, [r for r in ordered if r.lines == lines]) for lines in sorted({r.lines for r in ordered})]

    def evaluate(
        self, lines: Sequence[str], *, more: bool = False, sensitive: SensitiveRuns | None = None
    ) -> tuple[Result, bool]:
        """What lines match, and whether every rule was tried within its time.

        `more`: unknown lines follow, and the result is NeedsMoreLines if they decide. `sensitive`: the sensitive runs, to
        tell more exactly which patterns may read on, which takes some ms.
        """
        before = self._quarantine.unsure
        result: Result | None = None
        if not more or len(lines) == 1:
            given = () if more else lines
            self._mid_message = False
            matches = self._matches(self._named, lines[0], given)
            shapes: tuple[RuleMatch, ...] | None = ()
            if matches is not None and not any(match.rule.kind == "signature" for match in matches):
                shapes = self._matches(self._shapes, lines[0], given)
            if matches is not None and shapes is not None:
                result = self._result(matches, shapes, lines[0], "\n".join(given) or None)
        if result is None:
            result = self._pending(lines, sensitive)
        return result, before == self._quarantine.unsure

    def _matches(self, groups: Iterable[Group], line: str, lines: Sequence[str]) -> tuple[RuleMatch, ...] | None:
        """The matches of rules of single lines, then of blocks. Without `lines`: None if the following lines decide."""
        matches: tuple[RuleMatch, ...] = ()
        for span, rules in groups:
            alone = span > 1 and not lines
            text, first = ("\n".join(lines[:span]), len(line)) if span > 1 and lines else (line, None)
            ids = {match.rule.id for match in matches}
            new = []
            for rule in rules:
                if rule in self._skippable and not rule.yields_to.isdisjoint(ids):
                    continue
                outcome, _, match = self._search(rule, text, self._source, self._quarantine, first, alone=alone)
                if outcome == "needs lines":
                    return None
                if outcome == "mid-message" and rule.lines == 1 and rule.kind != "shape":
                    self._mid_message = True  # the other lines of a block are evaluated by themselves
                if match is not None:
                    new.append(match)
                    ids.add(rule.id)
            matches += tuple(sorted(new, key=lambda match: self._order[match.rule]))
            if span == 1:
                matches = _unyielding(matches)
        return _unyielding(matches)

    def _result(
        self, matches: tuple[RuleMatch, ...], shapes: Sequence[RuleMatch], line: str, block: str | None
    ) -> MatchResult:
        is_signature = any(match.rule.kind == "signature" for match in matches)
        crash = min(shapes, key=_shape_order, default=None)
        if not is_signature and crash is None:
            return MatchResult(matches, self._mid_message, None, block)
        if self._echo and self._echo(line.partition("\n")[0]):
            return MatchResult(tuple(match for match in matches if match.rule.kind == "fact"), True, None, block)
        return MatchResult(matches, False, crash, block)

    def _pending(self, lines: Sequence[str], sensitive: SensitiveRuns | None) -> NeedsMoreLines:
        """What lines match if the following lines change nothing, and which literals these need to change it."""
        before = self._quarantine.unsure
        alone, _ = self.evaluate([*lines, ""])  # so that they end in a newline
        if before != self._quarantine.unsure or not isinstance(alone, MatchResult):
            return NeedsMoreLines()
        literals = self._deciding_literals(lines, sensitive, alone)
        return NeedsMoreLines(alone._replace(block=None), *literals) if literals else NeedsMoreLines()

    def _deciding_literals(
        self, lines: Sequence[str], sensitive: SensitiveRuns | None, alone: MatchResult
    ) -> tuple[LiteralSet, LiteralSet] | None:
        """The literals of which the next line, or any following line, must have one to change the result; None if unknown."""
        from exporter.core.patterns.digit_sensitivity import may_read_on

        in_next, in_any = set[tuple[str, bool]](), set[tuple[str, bool]]()
        text = "\n".join(lines)
        newlines = len(lines) if text.count("\n") < len(lines) else -1  # a kernel message may contain some itself
        matched = frozenset(match.rule.id for match in alone.matches)
        has_signature = any(match.rule.kind == "signature" for match in alone.matches)
        for rule in self._block_rules:
            if has_signature and rule.kind == "shape":
                continue  # a line with a signature is asked for no shape, whatever follows
            if rule in self._skippable and rule.yields_to & matched:
                continue
            begun = [one for one in rule.patterns if one.may_begin_in(lines[0])] if rule.lines > len(lines) else []
            further = [one for one in begun if not one.needs.one_line]
            excuses = rule.unless if begun else ()
            if sensitive is not None:
                further = [one for one in further if may_read_on(one.pattern, text + "\n", sensitive, len(lines[0]))]
                outcome, by, _ = search(rule, text + "\n", self._source, self._quarantine, len(lines[0]))
                if outcome == "unless" and any(one.pattern == by and one.needs.one_line for one in excuses):
                    continue
                if outcome == "no pattern" and not further:
                    excuses = ()
            for one in further:
                needed, target = needed_next(one.pattern, newlines) if newlines > 0 else None, in_next
                if needed is None:
                    needed, target = needed_after(one.pattern), in_any
                if needed is None:
                    return None
                target.update((literal, one.needs.ignore_case) for literal in needed)
            for one in excuses:
                missing = _missing_literals(one.needs, text)
                if not missing:
                    return None
                in_any.update((literal, one.needs.ignore_case) for literal in missing)
        return _by_case(in_next), _by_case(in_any)

    def sensitive_runs(
        self, lines: Sequence[str], result: Result, sensitive: SensitiveRuns, *, more: bool
    ) -> tuple[SensitiveRuns, Result]:
        """The runs of lines to which rules are sensitive, with those that are `sensitive` already, and a sharper result."""
        from exporter.core.patterns import digit_sensitivity as runs  # 3 ms that only a flood needs

        text = "\n".join([*lines, ""] if more else lines)
        sensitive = runs.searched(self._line_patterns, lines[0], sensitive, guesses=self.guesses)
        if len(lines) > 1 or isinstance(result, NeedsMoreLines):
            sensitive = runs.searched(self._block_patterns, text, sensitive, whole=False, guesses=self.guesses)
        if more:
            sensitive = runs.contained(self._block_literals(), text, sensitive)
            sensitive = runs.referred_to(self._block_patterns, text, sensitive, len(lines[0]))
        sensitive = runs.searched(self._echoes, lines[0], sensitive)
        if self._source == "kernel":
            sensitive = runs.read_from_start(LEAD.pattern, text, sensitive)
            sensitive = runs.searched_at_start(PROCESS.pattern, text, sensitive)
        if isinstance(result, NeedsMoreLines):
            sharper, in_time = self.evaluate(lines, more=True, sensitive=sensitive)
            result = sharper if in_time else NeedsMoreLines()
        return sensitive, result

    def _block_literals(self) -> Iterator[tuple[str, bool]]:
        """The literals that decide whether following lines matter, and whether they ignore case."""
        for one in self._block_patterns:
            for literal in (literal for literals in (*one.needs.first, *one.needs.sets) for literal in literals):
                yield from ((piece, one.needs.ignore_case) for piece in literal.split("\n") if piece)


def _unyielding(matches: tuple[RuleMatch, ...]) -> tuple[RuleMatch, ...]:
    if len(matches) < 2:
        return matches
    ids = {match.rule.id for match in matches}
    return tuple(match for match in matches if not match.rule.yields_to & ids)


def _shape_order(shape: RuleMatch) -> tuple[bool, bool, bool, bool, str]:
    """A sort key: of several crash shapes of one line, the most specific comes first."""
    rule = shape.rule
    return (not rule.ends_process, rule.needs_report, not rule.crash, rule.in_traceback, rule.id)


def _by_case(literals: Iterable[tuple[str, bool]]) -> LiteralSet:
    ordered = sorted(literals)
    return LiteralSet(
        tuple(text.encode() for text, any_case in ordered if not any_case),
        tuple(text.encode() for text, any_case in ordered if any_case),
    )


def _missing_literals(needs: Needs, text: str) -> list[str]:
    """Literals of which the following lines must have one, so that the whole can have all needed ones; empty if unknown."""
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
