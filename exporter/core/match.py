"""Which signatures, log facts and crash shapes a decoded text shows. Compiled from a catalogue; knows no blocks or files.

Every regex call has a time budget; a pattern that runs out of it again and again is switched off and said so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import regex

from exporter.core.catalogue import Catalogue
from exporter.core.facts.pci import normalise_pci
from exporter.core.gates import Gate
from exporter.core.model import SourceKind
from exporter.core.signatures import FLAGS, LogFact, Patterned, Signature

TIMEOUT_SECONDS = 0.05  # a hundred times what the slowest built-in pattern takes on a text of MAX_TEXT characters
MAX_TIMEOUTS = 3  # then the pattern is off: 0.15 s of a block's time is the most that a bad one may cost
MAX_TEXT = 16384  # characters of a line that a regex sees; longer lines are seen around their gate
MAX_CAPTURE = 512  # characters of a capture: an API call with its arguments fits, a tensor dump does not

Kind = Literal["signature", "fact", "shape"]
Outcome = Literal["matched", "no pattern", "unless", "echo", "yields", "timeout", "off"]
_TEMPLATE = re.compile(r"\{(\w+)(?:\|(minor|lower))?\}")


@dataclass(frozen=True, slots=True)
class Found:
    """A rule that a text shows: which, with what captures, and where in the text it starts."""

    rule: Rule
    captures: Mapping[str, str]
    start: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says to one text, for `explain`: the outcome, and the pattern or echo or signature behind it."""

    rule: Rule
    outcome: Outcome
    by: str = ""
    found: Found | None = None


@dataclass(slots=True, eq=False)
class Rule:
    """A compiled signature, log fact or crash shape. `timeouts` is its only state."""

    id: str
    kind: Kind
    sources: frozenset[SourceKind]
    lines: int
    patterns: tuple[str, ...]
    unless: tuple[str, ...]
    of_gpu_driver: bool = False
    forgeable: bool = False  # also where a user wrote the line into the kernel log
    yields_to: frozenset[str] = frozenset()
    set: Mapping[str, str] = field(default_factory=dict)
    timeouts: int = 0
    _compiled: tuple[list[regex.Pattern[str]], list[regex.Pattern[str]]] | None = None

    def compiled(self) -> tuple[list[regex.Pattern[str]], list[regex.Pattern[str]]]:
        """The patterns and the excuses, compiled when a line first needs them: all at once would take seconds."""
        if self._compiled is None:
            self._compiled = (
                [regex.compile(p, FLAGS) for p in self.patterns],
                [regex.compile(p, FLAGS) for p in self.unless],
            )
        return self._compiled

    @property
    def off(self) -> bool:
        return self.timeouts >= MAX_TIMEOUTS


class Matcher:
    """All rules of a catalogue, and the gates under which each is to be tried."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.rules: tuple[Rule, ...] = (
            *(_rule(s, "signature", catalogue) for s in catalogue.signatures.values()),
            *(_rule(f, "fact", catalogue) for f in catalogue.log_facts),
            *(_rule(s, "shape", catalogue) for s in catalogue.crash_shapes),
        )
        self._echoes = tuple((e.id, tuple(e.patterns)) for e in catalogue.echoes)
        self._compiled_echoes: list[tuple[str, list[regex.Pattern[str]]]] | None = None
        under: dict[SourceKind, defaultdict[Gate, list[Rule]]] = {"job": defaultdict(list), "kernel": defaultdict(list)}
        for rule in self.rules:
            for gate in {gate for pattern in rule.patterns for gate in catalogue.gates[pattern]}:
                for source in rule.sources:
                    under[source][gate].append(rule)
        self.gates: dict[SourceKind, tuple[Gate, ...]] = {s: tuple(sorted(rules)) for s, rules in under.items()}
        self._under = {s: tuple(tuple(under[s][gate]) for gate in found) for s, found in self.gates.items()}

    def tried_under(self, hit: Iterable[int], source: SourceKind) -> list[Rule]:
        """The rules of a source to try on a line that holds these gates, each once, in the catalogue's order."""
        rules = {id(rule): rule for gate in hit for rule in self._under[source][gate]}
        return list(rules.values())

    def judge(self, text: str, rules: Iterable[Rule], source: SourceKind) -> list[Verdict]:
        """What each of `rules` says to `text`."""
        verdicts = [_verdict(rule, text) for rule in rules]
        shown = {v.rule.id for v in verdicts if v.outcome == "matched"}
        if shown and source == "job" and (echo := self.echo(text.partition("\n")[0])):  # a block is what it begins with
            return [
                Verdict(v.rule, "echo", echo, v.found) if v.outcome == "matched" and v.rule.kind != "fact" else v
                for v in verdicts
            ]
        return [_yielded(v, shown) if v.outcome == "matched" and v.rule.yields_to & shown else v for v in verdicts]

    def compiled_echoes(self) -> list[tuple[str, list[regex.Pattern[str]]]]:
        """The echoes, compiled when they are first needed; a daemon asks for them before it has to be quick."""
        if self._compiled_echoes is None:
            self._compiled_echoes = [(name, [regex.compile(p, FLAGS) for p in ps]) for name, ps in self._echoes]
        return self._compiled_echoes

    def echo(self, text: str) -> str:
        """The echo that a line is, or ""."""
        for name, patterns in self.compiled_echoes():
            for pattern in patterns:
                try:
                    if pattern.search(text, timeout=TIMEOUT_SECONDS):
                        return name
                except TimeoutError:
                    continue
        return ""


def slots(template: str) -> set[str]:
    """The captures that a log fact's template asks for."""
    return {slot[1] for slot in _TEMPLATE.finditer(template)}


def facts_of(found: Found) -> dict[str, str]:
    """The facts that a matched log fact tells, by its templates. A template whose capture is empty tells nothing."""
    facts = {}
    for name_template, value_template in found.rule.set.items():
        name, value = _fill(name_template, found.captures), _fill(value_template, found.captures)
        if name and value:
            facts[name] = value
    return facts


def gpu_of(found: Found, device: str | None) -> str | None:
    """The PCI address that a match names in its `gpu` capture, else, for a GPU's own driver, the record's device.

    The device of a port's, a NIC's or a disk's record is no GPU.
    """
    named = normalise_pci(found.captures.get("gpu", ""))
    return named or (normalise_pci(device) if device and found.rule.of_gpu_driver else None)


def _rule(item: Patterned, kind: Kind, catalogue: Catalogue) -> Rule:
    return Rule(
        id=item.id,
        kind=kind,
        sources=frozenset(item.sources),
        lines=item.lines,
        patterns=tuple(item.patterns),
        unless=tuple(item.unless),
        of_gpu_driver=isinstance(item, Signature) and item.vendor != "any" and item.layer == "kernel",
        forgeable=isinstance(item, Signature) and item.trust == "anyone",
        yields_to=catalogue.matching(item.yields_to) - {item.id} if isinstance(item, Signature) else frozenset(),
        set=item.set if isinstance(item, LogFact) else {},
    )


def _verdict(rule: Rule, text: str) -> Verdict:
    if rule.off:
        return Verdict(rule, "off")
    try:
        patterns, unless = rule.compiled()
        for pattern in patterns:
            found = pattern.search(text, timeout=TIMEOUT_SECONDS)
            if not found:
                continue
            for excuse in unless:
                if excuse.search(text, timeout=TIMEOUT_SECONDS):
                    return Verdict(rule, "unless", excuse.pattern)
            captures = dict(_named(name, value) for name, value in found.groupdict().items() if value)
            return Verdict(rule, "matched", pattern.pattern, Found(rule, captures, found.start()))
    except TimeoutError:
        rule.timeouts += 1
        return Verdict(rule, "timeout")
    return Verdict(rule, "no pattern")


def _named(name: str, value: str) -> tuple[str, str]:
    """A capture. A group named `emitter__torch` says by its name alone what it stands for: emitter = torch."""
    what, _, constant = name.partition("__")
    return (what, constant) if constant else (name, value[:MAX_CAPTURE])


def _yielded(verdict: Verdict, shown: Iterable[str]) -> Verdict:
    winner = min(verdict.rule.yields_to & frozenset(shown))
    return Verdict(verdict.rule, "yields", winner, verdict.found)


def _fill(template: str, captures: Mapping[str, str]) -> str:
    missing = False

    def value(slot: re.Match[str]) -> str:
        nonlocal missing
        text = captures.get(slot[1], "")
        missing = missing or not text
        if slot[2] == "minor":
            return ".".join(text.split(".")[:2])
        return text.lower() if slot[2] == "lower" else text

    filled = _TEMPLATE.sub(value, template)
    return "" if missing else filled.strip()
