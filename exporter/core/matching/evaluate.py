"""Evaluation of one line by groups of rules: what matches, less what yields to another match. Keeps nothing between lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from exporter.core.matching.quarantine import Quarantine
from exporter.core.matching.rules import Found, Outcome, Rule
from exporter.core.model import SourceKind

Searched = tuple[Outcome, str, Found | None]
_NONE: frozenset[str] = frozenset()


def matches_in(spans: Iterable[tuple[int, RuleGroup]], text: str, lines: Sequence[str]) -> tuple[Found, ...] | None:
    """What matches, less what yields: first among the rules of single lines, then among all; None if later lines decide."""
    found: tuple[Found, ...] = ()
    for span, rules in spans:
        if span == 1:
            found = _unyielding(rules.found_in(text, _NONE))
            continue
        there = frozenset(one.rule.id for one in found) if found else _NONE
        if rules.all_yield(there):
            continue
        if lines:
            found += rules.found_in("\n".join(lines[:span]), there, len(text))
            continue
        alone = rules.found_alone(text, there)
        if alone is None:
            return None
        found += alone
    return _unyielding(found)


def _unyielding(found: tuple[Found, ...]) -> tuple[Found, ...]:
    if len(found) < 2:
        return found
    there = {one.rule.id for one in found}
    return tuple(one for one in found if not one.rule.yields_to & there)


class RuleGroup:
    """Rules that look at equally many lines."""

    def __init__(
        self,
        rules: Sequence[Rule],
        outranking: frozenset[str],
        source: SourceKind,
        quarantine: Quarantine,
        search: Callable[..., Searched],
    ) -> None:
        self._search = search
        self.amid = 0  # matches inside kernel messages, where user text may be
        self._source = source
        self._quarantine = quarantine
        self._position = {rule: number for number, rule in enumerate(rules)}
        # Rules that yield, and that no rule yields to, are tried last, and skipped when they would yield.
        self._last = frozenset(rule for rule in rules if rule.yields_to and rule.id not in outranking)
        self._rules = sorted(rules, key=lambda rule: rule in self._last)

    def all_yield(self, there: frozenset[str]) -> bool:
        """Whether all these rules yield to the signatures found."""
        return all(rule in self._last and rule.yields_to & there for rule in self._rules)

    def found_alone(self, line: str, there: frozenset[str]) -> tuple[Found, ...] | None:
        """What matches a line whatever follows it, less what would yield; None if the lines behind decide."""
        return self._found(line, there, None, alone=True)

    def found_in(self, text: str, there: frozenset[str], first: int | None = None) -> tuple[Found, ...]:
        """What matches in the first characters of a text, less what would yield to signatures found already."""
        return self._found(text, there, first, alone=False) or ()

    def _found(self, text: str, there: frozenset[str], first: int | None, *, alone: bool) -> tuple[Found, ...] | None:
        found: list[Found] = []
        for rule in self._rules:
            if rule in self._last and rule.yields_to & there:
                continue
            outcome, _, one = self._search(rule, text, self._source, self._quarantine, first, alone=alone)
            if outcome == "behind":
                return None
            self.amid += outcome == "amid" and rule.lines == 1  # the other lines of a block are looked at by themselves
            if one is not None:
                found.append(one)
                there = there | {rule.id}
        if len(found) > 1:
            found.sort(key=lambda one: self._position[one.rule])
        return tuple(found)
