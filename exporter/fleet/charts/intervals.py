"""Rate ratios with their intervals on a log axis: the forest plot, and the event study around a change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.svg import (
    CHARACTER,
    RIGHT,
    chart,
    colour,
    decades,
    element,
    empty,
    label,
    on_log,
    times,
    words,
)
from exporter.fleet.results.labels import interval as interval_of
from exporter.fleet.results.labels import ratio as written
from exporter.fleet.statistics.ratio import Ratio

ROW = 26.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A named rate ratio with its 95% interval."""

    name: str
    ratio: Ratio
    verdict: str = "unclear"


def forest(title: str, intervals: Sequence[Interval], *, width: float = 720.0) -> str:
    """One row each: the interval as a line, the ratio as a dot, its number at the right. An arrow ends what is cut."""
    if not intervals:
        return empty("forest", width, title, "no findings")
    names = min(width * 0.42, 340.0, max(len(interval.name) for interval in intervals) * CHARACTER + 8)
    begin, end = names + 12, width - 60
    bounds = _bounds(intervals, least=0.0, unbounded=1e3)
    bottom = len(intervals) * ROW + 6
    inside = _axis(bounds, begin, end, bottom)
    for row, interval in enumerate(intervals):
        y = row * ROW + 15
        low, high = (on_log(edge, bounds, begin, end) for edge in (interval.ratio.low, interval.ratio.high))
        inside += [
            label(names, y + 4, interval.name, room=names, anchor=RIGHT, class_="strong"),
            element("line", x1=low, x2=high, y1=y, y2=y, class_=f"interval {colour(interval.verdict)}"),
            *_arrow(interval, bounds, high, y),
        ]
        if interval.ratio.value < math.inf:
            at = on_log(interval.ratio.value, bounds, begin, end)
            inside.append(element("circle", cx=at, cy=y, r=4.5, class_=colour(interval.verdict)))
        number = f"{written(interval.ratio.value)}×"
        inside.append(label(width - 4, y + 4, number, room=56, anchor=RIGHT, class_="strong"))
    description = "; ".join(f"{interval.name[:60]}: {described(interval)}" for interval in intervals[:5])
    return chart("forest", width, bottom + 22, title, description, *inside)


def described(interval: Interval) -> str:
    """`6.2× (4.1 to 9.5)`."""
    return f"{written(interval.ratio.value)}× ({interval_of(interval.ratio)})"


def event_study(title: str, intervals: Sequence[Interval], *, changed_at: int, width: float = 720.0) -> str:
    """Rate ratios by time around a change: `found` in order of time, the change before the one numbered `changed_at`."""
    if not intervals:
        return empty("event-study", width, title)
    left, right, top, bottom = 48.0, width - 8, 22.0, 220.0
    bounds = _bounds(intervals, least=0.1, unbounded=1e2)
    inside = []
    for tick in bounds:
        y = on_log(tick, bounds, bottom, top)
        line = "axis" if tick == 1 else "grid"
        inside += [
            element("line", x1=left, x2=right, y1=y, y2=y, class_=line),
            label(left - 6, y + 4, times(tick), room=left, anchor=RIGHT),
        ]
    step = (right - left) / len(intervals)
    every = max(int(52 / step) + 1, 1)
    for i, interval in enumerate(intervals):
        x = left + (i + 0.5) * step
        low, high = (on_log(edge, bounds, bottom, top) for edge in (interval.ratio.low, interval.ratio.high))
        group = [element("line", x1=x, x2=x, y1=low, y2=high, class_=f"interval {colour(interval.verdict)}")]
        if 0 < interval.ratio.value < math.inf:
            y = on_log(interval.ratio.value, bounds, bottom, top)
            group.append(element("circle", cx=x, cy=y, r=4.5, class_=colour(interval.verdict)))
        inside.append(element("g", element("title", words(f"{interval.name[:100]}: {described(interval)}")), *group))
        if i % every == 0:
            inside.append(label(x, bottom + 18, interval.name, room=52, anchor="middle"))
    at = left + changed_at * step
    inside += [
        element("line", x1=at, x2=at, y1=top - 6, y2=bottom, class_="mark"),
        label(at + 5, top - 8, "the change", room=80, class_="strong"),
    ]
    before, after = intervals[:changed_at], intervals[changed_at:]
    description = (
        f"before the change {', '.join(map(described, before[-3:]))}; after it {', '.join(map(described, after[:3]))}"
    )
    return chart("event-study", width, bottom + 26, title, description, *inside)


def _bounds(intervals: Sequence[Interval], *, least: float, unbounded: float) -> list[float]:
    highs = (interval.ratio.high for interval in intervals)
    return decades(
        max(min(interval.ratio.low for interval in intervals), least),
        max(high if high < math.inf else unbounded for high in highs),
    )


def _axis(bounds: Sequence[float], begin: float, end: float, bottom: float) -> list[str]:
    out = []
    for tick in bounds:
        x = on_log(tick, bounds, begin, end)
        out += [
            element("line", x1=x, x2=x, y1=0.0, y2=bottom, class_="axis" if tick == 1 else "grid"),
            label(x, bottom + 15, times(tick), room=60, anchor="middle"),
        ]
    return out


def _arrow(interval: Interval, bounds: Sequence[float], x: float, y: float) -> list[str]:
    if interval.ratio.high <= bounds[-1]:
        return []
    return [element("path", d=f"M{x:.1f} {y - 4:.1f}l6 4l-6 4z", class_=colour(interval.verdict))]
