"""Where values lie on an axis, and where its ticks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

DAY = 86400.0


def ticks(largest: float, most: int = 4) -> list[float]:
    """Round numbers from 0 to at least `largest`, at most `most` steps: whole ones if it is a count."""
    if largest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / most))
    step = next(power * m for m in (1, 2, 2.5, 5, 10, 20) if power * m * most >= largest * (1 - 1e-9))
    if largest >= 1:
        step = max(math.ceil(step), 1.0)
    return [step * i for i in range(math.ceil(largest / step - 1e-9) + 1)]


def number(value: float) -> str:
    """A number as an axis shows it."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def decades(low: float, high: float) -> list[float]:
    """Powers of ten around two ratios, at least 0.1 to 10."""
    first = min(math.floor(math.log10(max(low, 1e-3))), -1)
    last = max(math.ceil(math.log10(min(high, 1e4))), 1)
    return [10.0**power for power in range(first, last + 1)]


def on_log(value: float, bounds: Sequence[float], begin: float, end: float) -> float:
    """The pixel of a ratio between two pixels; beyond the bounds, the nearer end."""
    low, high = math.log10(bounds[0]), math.log10(bounds[-1])
    at = math.log10(min(max(value, bounds[0]), bounds[-1]))
    return begin + (at - low) / (high - low) * (end - begin)


def times(value: float) -> str:
    """A ratio on an axis: 0.1×, 1×, 10×."""
    return f"{value:g}×"


def day(time: float) -> str:
    """A day as a label: 9 Nov."""
    found = datetime.fromtimestamp(time, UTC)
    return f"{found.day} {found:%b}"


def time_ticks(start: float, end: float, most: int) -> list[float]:
    """Midnights (or hours and minutes of a shorter span), at most `most`."""
    span = max(end - start, 1.0)
    steps = (
        [60.0 * m for m in (1, 2, 5, 15, 30)]
        + [3600.0 * h for h in (1, 3, 6, 12)]
        + [DAY * d for d in (1, 2, 7, 14, 28, 91, 365)]
    )
    step = next((s for s in steps if span / s <= most), math.ceil(span / DAY / most) * DAY)
    first = math.ceil(start / min(step, DAY)) * min(step, DAY)
    return [first + i * step for i in range(int((end - first) / step) + 1) if first + i * step <= end]


def moment(time: float, span: float) -> str:
    """A time as a label: the hour within two days, else the day."""
    return f"{datetime.fromtimestamp(time, UTC):%H:%M}" if span <= 2 * DAY else day(time)
