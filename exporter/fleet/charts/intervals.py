"""Rate ratios with their intervals on a log axis: the forest plot, and the event study around a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.scales import decades, on_log, times
from exporter.fleet.charts.svg import CHARACTER, RIGHT, chart, colour, element, empty, label, words
from exporter.fleet.results.labels import ratio as written

ROW = 26.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A rate ratio and its 95% interval; None is without bound (nobody else crashed)."""

    name: str
    value: float | None
    low: float
    high: float | None
    verdict: str = "unclear"


def forest(title: str, found: Sequence[Interval], *, width: float = 720.0) -> str:
    """One row each: the interval as a line, the ratio as a dot, its number at the right. An arrow ends what is cut."""
    if not found:
        return empty("forest", width, title, "no findings")
    names = min(width * 0.42, 340.0, max(len(each.name) for each in found) * CHARACTER + 8)
    begin, end = names + 12, width - 60
    bounds = decades(min(each.low for each in found), max((each.high or 1e3) for each in found))
    bottom = len(found) * ROW + 6
    inside = _axis(bounds, begin, end, bottom)
    for row, each in enumerate(found):
        y = row * ROW + 15
        low, high = on_log(each.low, bounds, begin, end), on_log(each.high or bounds[-1], bounds, begin, end)
        inside += [
            label(names, y + 4, each.name, room=names, anchor=RIGHT, class_="strong"),
            element("line", x1=low, x2=high, y1=y, y2=y, class_=f"interval {colour(each.verdict)}"),
            *_arrow(each, bounds, high, y),
        ]
        if each.value is not None:
            at = on_log(each.value, bounds, begin, end)
            inside.append(element("circle", cx=at, cy=y, r=4.5, class_=colour(each.verdict)))
        inside.append(label(width - 4, y + 4, f"{written(each.value)}×", room=56, anchor=RIGHT, class_="strong"))
    what = "; ".join(f"{each.name[:60]}: {described(each)}" for each in found[:5])
    return chart("forest", width, bottom + 22, title, what, *inside)


def described(each: Interval) -> str:
    """`6.2× (4.1 to 9.5)`."""
    return f"{written(each.value)}× ({written(each.low)} to {written(each.high)})"


def event_study(title: str, found: Sequence[Interval], *, changed_at: int, width: float = 720.0) -> str:
    """Rate ratios by time around a change: `found` in order of time, the change before the one numbered `changed_at`."""
    if not found:
        return empty("event-study", width, title)
    left, right, top, bottom = 48.0, width - 8, 22.0, 220.0
    bounds = decades(max(min(each.low for each in found), 0.1), max((each.high or 1e2) for each in found))
    inside = []
    for tick in bounds:
        y = on_log(tick, bounds, bottom, top)
        line = "axis" if tick == 1 else "grid"
        inside += [
            element("line", x1=left, x2=right, y1=y, y2=y, class_=line),
            label(left - 6, y + 4, times(tick), room=left, anchor=RIGHT),
        ]
    step = (right - left) / len(found)
    every = max(int(52 / step) + 1, 1)
    for i, each in enumerate(found):
        x = left + (i + 0.5) * step
        low, high = on_log(each.low, bounds, bottom, top), on_log(each.high or bounds[-1], bounds, bottom, top)
        group = [element("line", x1=x, x2=x, y1=low, y2=high, class_=f"interval {colour(each.verdict)}")]
        if each.value is not None:
            y = on_log(each.value, bounds, bottom, top)
            group.append(element("circle", cx=x, cy=y, r=4.5, class_=colour(each.verdict)))
        inside.append(element("g", element("title", words(f"{each.name[:100]}: {described(each)}")), *group))
        if i % every == 0:
            inside.append(label(x, bottom + 18, each.name, room=52, anchor="middle"))
    at = left + changed_at * step
    inside += [
        element("line", x1=at, x2=at, y1=top - 6, y2=bottom, class_="mark"),
        label(at + 5, top - 8, "the change", room=80, class_="strong"),
    ]
    before, after = found[:changed_at], found[changed_at:]
    what = (
        f"before the change {', '.join(map(described, before[-3:]))}; after it {', '.join(map(described, after[:3]))}"
    )
    return chart("event-study", width, bottom + 26, title, what, *inside)


def _axis(bounds: Sequence[float], begin: float, end: float, bottom: float) -> list[str]:
    out = []
    for tick in bounds:
        x = on_log(tick, bounds, begin, end)
        out += [
            element("line", x1=x, x2=x, y1=0.0, y2=bottom, class_="axis" if tick == 1 else "grid"),
            label(x, bottom + 15, times(tick), room=60, anchor="middle"),
        ]
    return out


def _arrow(each: Interval, bounds: Sequence[float], x: float, y: float) -> list[str]:
    if each.high is not None and each.high <= bounds[-1]:
        return []
    return [element("path", d=f"M{x:.1f} {y - 4:.1f}l6 4l-6 4z", class_=colour(each.verdict))]
