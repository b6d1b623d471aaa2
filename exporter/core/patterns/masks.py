"""Masks: a text without its runs of digits, so that all lines of a flood with different numbers have one mask.

Knows no patterns: `digit_sensitivity` finds the runs of a text that affect a search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import NamedTuple

SHORT_RUN, LONGEST_RUN = 7, 20  # characters: of most ids and figures; of a 64-bit number
# A number; a hexadecimal number behind 0x, with its x; or a word of hexadecimal digits with a letter, of six characters or
# more (`Ch 0000abcd`) or behind an underscore (NVIDIA's driver writes 0x7f3a_5c00abcd).
RUN = re.compile(
    rb"([x0-9a-f](?<![^\W\d_][a-f])"  # not a letter within a word: most of those that are read
    rb"(?:(?<=[0-9])[0-9]*+(?![xa-f])"
    rb"|(?:(?<!\w.)(?=[0-9a-f]{5})|(?<=[0-9a-f]_.))(?:(?<=[0-9])[0-9]*[a-f]|(?<=[a-f])[a-f]*[0-9])[0-9a-f]*\b"
    rb"|(?<=\b0x)[0-9a-f]+(?![^\W_])"
    rb"|(?<=[0-9])[0-9]*+(?!x[0-9a-f])))"
)


# By the length of a run: whether it is short, long, or too long.
_LENGTH_KINDS = bytes(0 if length <= SHORT_RUN else 1 if length <= LONGEST_RUN else 2 for length in range(256))
_TOO_LONG = b"\x02"

Mask = tuple[bytes, tuple[bool, ...], bytes]


class Masked(NamedTuple):
    """A text without its runs. Texts of one mask differ only in runs of the same kind: decimal or not, short or long."""

    mask: Mask
    runs: list[bytes]

    def with_line(self, line: Masked) -> Masked:
        """The mask and the runs of both texts, with a newline between them."""
        texts, decimal, lengths = self.mask
        mask = (texts + b"\n" + line.mask[0], decimal + line.mask[1], lengths + line.mask[2])
        return Masked(mask, self.runs + line.runs)


def masked(text: bytes) -> Masked | None:
    """The mask and the runs of an ASCII text; None if a run is too long."""
    parts = RUN.split(text)
    runs = parts[1::2]
    lengths = bytes(map(len, runs)).translate(_LENGTH_KINDS)
    if _TOO_LONG in lengths:
        return None
    return Masked((b"\xff".join(parts[::2]), tuple(map(bytes.isdigit, runs)), lengths), runs)


def run_spans(text: bytes) -> list[tuple[int, int]]:
    """The start and end of each run's digits."""
    return [(match.start() + match[0].startswith(b"x"), match.end()) for match in RUN.finditer(text)]


def run_ends(text: bytes) -> list[int]:
    return [stop for _, stop in run_spans(text)]


class SensitiveRuns(NamedTuple):
    """The runs of a text, by number, that affect a search: by their length, or by their characters."""

    lengths: frozenset[int] = frozenset()
    characters: frozenset[int] = frozenset()

    def __or__(self, other: SensitiveRuns) -> SensitiveRuns:
        characters = self.characters | other.characters
        return SensitiveRuns((self.lengths | other.lengths) - characters, characters)

    def with_lengths(self, runs: Iterable[int]) -> SensitiveRuns:
        """These, and the lengths of more runs."""
        return self | SensitiveRuns(frozenset(runs))

    def key_function(self) -> Callable[[list[bytes]], Hashable]:
        """A function of runs that gives the key of a text in a cache."""
        characters, lengths = sorted(self.characters), sorted(self.lengths)
        if not lengths:
            return itemgetter(*characters) if characters else lambda _runs: None
        return lambda runs: (*[runs[n] for n in characters], *[len(runs[n]) for n in lengths])


NONE_SENSITIVE = SensitiveRuns()
