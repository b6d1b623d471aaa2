"""Logs made of the built-in examples, their numbers exchanged, show the same whether their lines are folded and remembered,
or each is judged by itself.
"""

from __future__ import annotations

import random
import re
from unittest.mock import patch

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.incidents import condense
from exporter.core.matching import verdict_cache
from exporter.core.matching.flood_fast_path import FloodFastPath
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.verdict_cache import MaskCache
from exporter.core.model import Match, SourceKind
from tests.support.matches import Tail

WINDOW = 30.0
LOGS = 12  # of a seed
HEXADECIMAL = re.compile(r"(?<=0x)[0-9a-f]+|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{6,}\b")
ORDINARY = [
    "[rank{a}]: 2026-11-21 01:02:03 INFO train.py:412 step {n} loss 0.{n}",
    '  File "/usr/lib/python3.11/x.py", line {n}, in f',
    "",
    "usb 1-1: new device {a}",
    "    at 0x7f{a}a12b in f()",
    "GPU {a} ok: hipError none, Search for nothing",
]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return packs.load(whole=True)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("source", ["job", "kernel"])
def test_logs_of_built_in_examples_show_the_same(catalogue: Catalogue, source: SourceKind, seed: int) -> None:
    dice = random.Random(seed)
    kinds = (catalogue.signatures.values(), catalogue.log_facts, catalogue.crash_shapes)
    items = [item for kind in kinds for item in kind if source in item.sources]
    examples = [example.text for item in items for example in (*item.examples, *item.near_misses)]
    examples += [example.text for echo in catalogue.echoes for example in echo.examples]
    for _ in range(LOGS):
        log = _log(source, [dice.choice(examples) for _ in range(dice.randint(1, 3))], dice)
        with patch.object(verdict_cache, "ANALYSE_AFTER", 2):
            folded = _read(catalogue, log, source)
        with (
            patch.object(FloodFastPath, "takes", lambda _folding, _candidate: False),
            patch.object(MaskCache, "add", lambda _texts, _text, _runs, shown, _look: (0, shown)),
        ):
            whole = _read(catalogue, log, source)
        assert folded[1:] == whole[1:], log.decode()
        assert sum(match.lines for match in folded[0]) == sum(match.lines for match in whole[0]), log.decode()
        assert condense(folded[0], WINDOW) == condense(whole[0], WINDOW), log.decode()


def _log(source: SourceKind, examples: list[str], dice: random.Random) -> bytes:
    lines: list[str] = []
    for _ in range(dice.randint(20, 80)):
        if dice.random() < 0.4:
            lines.append(dice.choice(ORDINARY).format(a=dice.randrange(10), n=dice.randrange(1000)))
            continue
        block = _other(dice.choice(examples), dice).split("\n")
        prefix = "" if block[0].startswith("[") else f"[  12.{dice.randrange(10**6):06}] "
        if source == "job":
            prefix = dice.choice(["", "[rank3]: "])
        lines += [prefix + line for line in block[: dice.randint(1, len(block))]]
    return "".join(f"{line}\n" for line in lines).encode()


def _other(text: str, dice: random.Random) -> str:
    """The text with other digits, and with numbers of other lengths."""
    share = dice.choice([0.0, 0.02, 0.1, 0.5])
    lengths = dice.random() < 0.5

    def other(found: re.Match[str]) -> str:
        digits = "0123456789" if found[0].isdigit() else "0123456789abcdef"
        if lengths and dice.random() < share:
            return "".join(dice.choice(digits) for _ in range(dice.choice([1, 2, 3, 6, 8, 12])))
        changed = share if found[0].isdigit() else 1.0
        return "".join(dice.choice(digits) if dice.random() < changed else character for character in found[0])

    return re.sub(rf"{HEXADECIMAL.pattern}|[0-9]+", other, text)


def _read(catalogue: Catalogue, log: bytes, source: SourceKind) -> tuple[list[Match], int, int]:
    tail = Tail(Pipeline(catalogue, window=WINDOW), source=source)
    done = tail.offer(log, "final")
    return tail.matches, done.echoes, done.unmatched
