"""Facts that are numbers, such as temperature, power or age: which facts they are, and the thresholds at which they are cut.

Hardly two nodes share a temperature, so each value by itself tells nothing. A number is tested as "at least" and "less than"
its quantiles, which finds any monotone trend; one with few levels also value by value.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exporter.fleet.observations import Bools, Floats

MIN_LEVELS = 6  # numbers; of fewer, a trend is as clear value by value
MIN_DISTINCT = 10  # numbers; of a fact with more, one value by itself tells nothing
MOSTLY = 0.95  # of the values must be numbers
QUANTILES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)  # of the exposure
DIGITS = 3  # significant ones of a threshold, so that it hardly moves from one window to the next
AT_LEAST, LESS_THAN = "≥ ", "< "
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s?[%A-Za-z°/]{0,6}")
_NAMES = re.compile(
    r"version|release|driver|firmware|bios|image|build|date|hash|checksum|(?:^|_)id$|port", re.IGNORECASE
)


def numbers(name: str, texts: Sequence[str], used: Bools) -> Floats | None:
    """The numbers that a fact's texts stand for, NaN for others; None if they are not numbers, or too few.

    used: which of the texts occur.
    """
    if np.count_nonzero(used) < MIN_LEVELS or _NAMES.search(name):
        return None
    values = np.full(len(texts), np.nan)
    for i in np.flatnonzero(used).tolist():
        if match := _NUMBER.fullmatch(texts[i].strip()):
            values[i] = float(match[1])
    finite = np.isfinite(values)
    if np.count_nonzero(finite) < MOSTLY * np.count_nonzero(used) or len(np.unique(values[finite])) < MIN_LEVELS:
        return None
    return values


def is_continuous(name: str, texts: Sequence[str]) -> bool:
    """Whether a fact is continuous, if all of its texts occur: a number of many values."""
    of_text = numbers(name, texts, np.ones(len(texts), dtype=bool))
    return of_text is not None and len(np.unique(of_text[np.isfinite(of_text)])) > MIN_DISTINCT


def thresholds(values: Floats, weight: Floats) -> list[float]:
    """Rounded quantiles of some numbers, by weight, in order; NaN is left out."""
    finite = np.isfinite(values)
    values, weight = values[finite], weight[finite]
    if not len(values) or weight.sum() <= 0:
        return []
    order = np.argsort(values)
    upto = np.cumsum(weight[order]) / weight.sum()
    at = [float(values[order][min(int(np.searchsorted(upto, q)), len(order) - 1)]) for q in QUANTILES]
    return sorted({float(f"{value:.{DIGITS}g}") for value in at})


def shown(threshold: float, *, at_least: bool) -> str:
    """A threshold as findings name it, such as "≥ 71.5"."""
    digits = f"{threshold:.{DIGITS}g}" if abs(threshold) < 1e4 else f"{threshold:.0f}"
    return f"{AT_LEAST if at_least else LESS_THAN}{digits}"


def is_threshold(value: str) -> bool:
    """Whether a finding's value is one of `shown`."""
    return value.startswith((AT_LEAST, LESS_THAN))


def decoded(of_code: Floats, codes: NDArray[np.int32]) -> Floats:
    """The number of each state, given the number that each code stands for; NaN where it is unknown."""
    return np.where(codes >= 0, of_code[np.maximum(codes, 0)], np.nan)


def meets(value: str, of_code: Floats, codes: NDArray[np.int32]) -> Bools:
    """Which states are on a threshold's side: codes of the states, and the number that each code stands for."""
    number = decoded(of_code, codes)
    limit = float(value.removeprefix(AT_LEAST).removeprefix(LESS_THAN))
    return np.asarray(number >= limit if value.startswith(AT_LEAST) else number < limit)
