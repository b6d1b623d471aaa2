"""What each pattern of a catalogue costs: measured, for those who write signatures. `signatures check --profile` prints it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import regex

from exporter.core.catalogue import Catalogue
from exporter.core.expression import TIMEOUT_SECONDS
from exporter.core.knowledge import FLAGS, Patterned

SLOW = 20.0  # times the median; of the built-in patterns the slowest takes 4.4 times as long as the median


@dataclass(frozen=True, slots=True)
class Cost:
    """One pattern: seconds to try it on a text, of all examples the mean, and to compile it when one first needs it.

    `gates` are the literals that lead to it, none for an echo or an excuse.
    """

    id: str
    pattern: str
    try_seconds: float
    compile_seconds: float
    gates: tuple[str, ...]


def costs(catalogue: Catalogue, clock: Callable[[], float] = time.perf_counter) -> list[Cost]:
    """The cost of every pattern, the dearest to try first. `catalogue` is whole: its examples are what is tried."""
    items: list[Patterned] = [
        *catalogue.signatures.values(), *catalogue.log_facts, *catalogue.crash_shapes, *catalogue.echoes,
    ]  # fmt: skip
    texts = [example.text for item in items for example in item.examples]
    texts += [near_miss.text for item in items for near_miss in item.near_misses]
    measured = [
        Cost(
            item.id,
            pattern,
            _tried(pattern, texts, clock),
            _compiled(pattern, clock),
            tuple(sorted(gate.literal.decode() for gate in catalogue.gates.get(pattern, ()))),
        )
        for item, pattern in _patterns(items)
    ]
    return sorted(measured, key=lambda cost: -cost.try_seconds)


def slow(measured: list[Cost]) -> list[Cost]:
    """Those that cost many times what the others do: to be anchored, or bounded."""
    median = statistics.median(cost.try_seconds for cost in measured) if measured else 0.0
    return [cost for cost in measured if cost.try_seconds > SLOW * median]


def _patterns(items: list[Patterned]) -> Iterator[tuple[Patterned, str]]:
    for item in items:
        for pattern in (*item.patterns, *item.unless):
            yield item, pattern


def _tried(pattern: str, texts: list[str], clock: Callable[[], float]) -> float:
    compiled = regex.compile(pattern, FLAGS)
    started = clock()
    for text in texts:
        try:
            compiled.search(text, timeout=TIMEOUT_SECONDS)
        except TimeoutError:
            return TIMEOUT_SECONDS  # worse than any mean: it would be switched off
    return (clock() - started) / max(1, len(texts))


def _compiled(pattern: str, clock: Callable[[], float]) -> float:
    started = clock()
    regex.compile(pattern, FLAGS, cache_pattern=False)
    return clock() - started
