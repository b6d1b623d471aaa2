"""Measures what each pattern of a catalogue costs, for `signatures check --profile`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import regex

from exporter.core.catalogue.loader import Catalogue
from exporter.core.catalogue.pack_types import Patterned
from exporter.core.matching.rules import Matcher
from exporter.core.patterns.expression import TIMEOUT_SECONDS, search_in_time
from exporter.core.patterns.prefilter import build
from exporter.core.patterns.required_literals import Gate
from exporter.core.patterns.syntax import FLAGS

SLOW = 20.0  # times the median; of the built-in patterns the slowest takes 12 times as long to try as the median
COMMON = 0.2  # of other items' lines that a pattern's literals lead it to; of a built-in one's, 0.13
ENOUGH_TEXTS = 20  # fewer do not tell what is common
LITERAL_BYTES = 1 << 22  # read to see what the literals cost
YARDSTICKS = 60  # patterns to compare with: their median lies within a tenth of that of all


@dataclass(frozen=True, slots=True)
class PatternCost:
    """The cost of one pattern: mean seconds to try it on a text with its literals (an echo: on any text), and to compile it.

    gates: its required literals; empty for an echo or an excuse. led: the share of the other items' texts that contain one
    of them, so that the pattern is tried in vain.
    """

    id: str
    pattern: str
    try_seconds: float
    compile_seconds: float
    gates: tuple[str, ...]
    led: float = 0.0


@dataclass(frozen=True, slots=True)
class Usual:
    """Median costs of patterns that are not slow."""

    try_seconds: float
    compile_seconds: float

    @classmethod
    def of(cls, measured: Sequence[PatternCost]) -> Usual:
        return cls(
            statistics.median(cost.try_seconds for cost in measured) if measured else 0.0,
            statistics.median(cost.compile_seconds for cost in measured) if measured else 0.0,
        )


def costs(catalogue: Catalogue, clock: Callable[[], float], ids: Collection[str] | None = None) -> list[PatternCost]:
    """The cost of all patterns, or of those of some ids, the most expensive first.

    catalogue: loaded with its examples, which are the texts to try.
    """
    items = _items(catalogue)
    searched = [(item, pattern) for item, pattern in _patterns(items) if ids is None or item.id in ids]
    return _measured(catalogue, items, searched, clock)


def usual(catalogue: Catalogue, besides: Collection[str], clock: Callable[[], float]) -> Usual:
    """The usual cost of a catalogue's patterns, from a sample without those of some ids."""
    items = _items(catalogue)
    others = [(item, pattern) for item, pattern in _patterns(items) if item.id not in besides]
    step = max(1, len(others) // YARDSTICKS)
    return Usual.of(_measured(catalogue, items, others[::step], clock))


def slow(measured: Sequence[PatternCost], than: Usual) -> list[tuple[PatternCost, str]]:
    """The patterns that cost many times the usual, and what to do about each."""
    findings = []
    for cost in measured:
        if cost.try_seconds > SLOW * than.try_seconds:
            times = cost.try_seconds / than.try_seconds if than.try_seconds else math.inf
            how = f"takes {cost.try_seconds * 1e6:,.0f} µs to try on a line, {times:,.0f} times what others take"
            findings.append((cost, f"{how}; begin the pattern with ^ or a word, and bound or merge its repetitions"))
        elif cost.led > COMMON:
            held = ", ".join(map(repr, cost.gates))
            how = f"is tried on {cost.led:.0%} of other signatures' lines, for they hold one of {held}"
            findings.append((cost, f"{how}; write more of the line into the pattern, as a literal"))
    return findings


def literals(catalogue: Catalogue, clock: Callable[[], float]) -> str:
    """The cost of the database with the required literals of all signatures."""
    matcher = Matcher(catalogue)
    started = clock()
    engines = {source: build(gates) for source, gates in matcher.gates.items()}
    built = clock() - started
    text = "\n".join(example.text for item in _items(catalogue) for example in item.near_misses)
    block = (text.encode() * (1 + LITERAL_BYTES // max(1, len(text))))[:LITERAL_BYTES]
    started = clock()
    hits = len(engines["job"].scan(block).ends)
    seconds = max(clock() - started, 1e-9)
    return (
        f"{sum(map(len, matcher.gates.values()))} literals takes {built * 1e3:.0f} ms to build, and"
        f" {seconds * 1e9 / LITERAL_BYTES:.1f} ns a byte of near misses, with {hits * 1000 / LITERAL_BYTES:.1f} hits a kB"
    )


def _items(catalogue: Catalogue) -> list[Patterned]:
    return [*catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes, *catalogue.echoes]


def _measured(
    catalogue: Catalogue,
    items: Sequence[Patterned],
    searched: Sequence[tuple[Patterned, str]],
    clock: Callable[[], float],
) -> list[PatternCost]:
    texts = [example.text for item in items for example in item.examples]
    texts += [near_miss.text for item in items for near_miss in item.near_misses]
    measured = [
        PatternCost(
            item.id,
            pattern,
            _tried(pattern, _held(catalogue.gates.get(pattern, ()), texts) or texts, clock),
            _compiled(pattern, clock),
            tuple(sorted(gate.literal.decode() for gate in catalogue.gates.get(pattern, ()))),
            _led(item, catalogue.gates.get(pattern, ()), items),
        )
        for item, pattern in searched
    ]
    return sorted(measured, key=lambda cost: -cost.try_seconds)


def _patterns(items: Sequence[Patterned]) -> Iterator[tuple[Patterned, str]]:
    for item in items:
        for pattern in (*item.patterns, *item.unless):
            yield item, pattern


def _tried(pattern: str, texts: Sequence[str], clock: Callable[[], float]) -> float:
    compiled = regex.compile(pattern, FLAGS)
    started = clock()
    for text in texts:
        try:
            search_in_time(compiled, text)
        except TimeoutError:
            return TIMEOUT_SECONDS  # worse than any mean: it would be switched off
    return (clock() - started) / max(1, len(texts))


def _compiled(pattern: str, clock: Callable[[], float]) -> float:
    started = clock()
    regex.compile(pattern, FLAGS, cache_pattern=False)
    return clock() - started


def _led(item: Patterned, gates: Collection[Gate], items: Sequence[Patterned]) -> float:
    texts = [example.text for other in items if other is not item for example in other.examples]
    return len(_held(gates, texts)) / len(texts) if len(texts) >= ENOUGH_TEXTS else 0.0


def _held(gates: Collection[Gate], texts: Sequence[str]) -> list[str]:
    """The texts that contain one of these literals."""
    held = []
    for text in texts:
        raw = text.encode()
        if any(gate.literal in (raw.lower() if gate.ignore_case else raw) for gate in gates):
            held.append(text)
    return held
