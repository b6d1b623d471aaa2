"""Charts over time: stacked bars, lanes of events, and the small charts in a cell of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.svg import (
    CHARACTER,
    RIGHT,
    chart,
    colour,
    day,
    element,
    empty,
    label,
    moment,
    number,
    ticks,
    time_ticks,
    words,
)

HEIGHT = 240.0
LEFT_ROOM, BOTTOM_ROOM, MARK_ROW = 44.0, 24.0, 15.0
MAX_MARKS = 3
LABEL_PIXELS = 80.0  # of one label of the time axis
LANE = 38.0
MAX_EVENTS = 200  # drawn in a lane; the table has all


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a time, such as a rollout."""

    time: float
    what: str


def stacked_bars(
    title: str, edges: Sequence[float], series: Sequence[tuple[str, Sequence[int]]], *, unit: str,
    marks: Sequence[Mark] = (), width: float = 1080.0,
) -> str:  # fmt: skip
    """Bars between `edges` (Unix seconds, one more than bars); series: verdict and its counts, from the bottom up."""
    totals = [sum(counts[i] for _, counts in series) for i in range(len(edges) - 1)]
    if not any(totals):
        return empty("over-time", width, title, f"{unit}: none")
    shown = sorted((m for m in marks if edges[0] <= m.time <= edges[-1]), key=lambda m: m.time)[:MAX_MARKS]
    top = 24 + MARK_ROW * len(shown)
    bottom, right = top + HEIGHT - 60, width - 8
    scale = ticks(max(totals))
    pixels = (bottom - top) / scale[-1]

    def x(time: float) -> float:
        return LEFT_ROOM + (time - edges[0]) / (edges[-1] - edges[0]) * (right - LEFT_ROOM)

    inside = [label(4, 11, unit, room=width / 2)]
    for tick in scale:
        y = bottom - tick * pixels
        inside += [
            element("line", x1=LEFT_ROOM, x2=right, y1=y, y2=y, class_="grid"),
            label(LEFT_ROOM - 6, y + 4, number(tick), room=LEFT_ROOM, anchor=RIGHT),
        ]
    for i, total in enumerate(totals):
        left, gap = x(edges[i]), min(2.0, (x(edges[i + 1]) - x(edges[i])) * 0.15)
        y, columns = bottom, []
        for verdict, counts in series:
            if counts[i]:
                y -= counts[i] * pixels
                columns.append(
                    element(
                        "rect", x=left + gap / 2, y=y, width=x(edges[i + 1]) - left - gap, height=counts[i] * pixels,
                        class_=colour(verdict),
                    )
                )  # fmt: skip
        if total:
            counted = ", ".join(f"{counts[i]:,} {verdict}" for verdict, counts in series if counts[i])
            inside.append(element("g", element("title", words(f"{day(edges[i])}: {counted}")), *columns))
    for row, mark in enumerate(shown):
        inside += _mark(mark, x(mark.time), 20 + MARK_ROW * row + 9, bottom, right)
    for time in time_ticks(edges[0], edges[-1], max(int((right - LEFT_ROOM) / LABEL_PIXELS), 2)):
        if x(time) < right - 20:
            inside.append(label(x(time), bottom + 17, moment(time, edges[-1] - edges[0]), room=LABEL_PIXELS))
    peak = max(range(len(totals)), key=lambda i: totals[i])
    description = (
        f"{sum(totals):,} in all, {day(edges[0])} to {day(edges[-1])}; most, {totals[peak]:,}, from {day(edges[peak])}"
    )
    return chart("over-time", width, bottom + BOTTOM_ROOM, title, f"{unit}: {description}", *inside)


def _mark(mark: Mark, x: float, y: float, bottom: float, right: float) -> list[str]:
    line = element("line", x1=x, x2=x, y1=y + 4, y2=bottom, class_="mark")
    room_right, room_left = right - x - 6, x - LEFT_ROOM - 6
    if len(mark.what) * CHARACTER <= room_right or room_right >= room_left:
        return [line, label(x + 4, y, mark.what, room=room_right, class_="strong")]
    return [line, label(x - 4, y, mark.what, room=room_left, anchor=RIGHT, class_="strong")]


def sparkline(title: str, counts: Sequence[int | None], *, verdict: str = "unclear", width: float = 90.0) -> str:
    """A line over equal spans of time, the newest with a dot; None where nothing was recorded yet."""
    recorded = [(i, count) for i, count in enumerate(counts) if count is not None]
    if not recorded:
        return empty("sparkline", width, title, "no data")
    largest, step = max([1, *(count for _, count in recorded)]), (width - 8) / max(len(counts) - 1, 1)
    points = [(4 + i * step, 20 - count / largest * 16) for i, count in recorded]
    line = element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="spark")
    dot = element("circle", cx=points[-1][0], cy=points[-1][1], r=2.5, class_=colour(verdict))
    return chart("sparkline", width, 24.0, title, ", ".join(str(count) for _, count in recorded), line, dot)


def small_bar(value: float, largest: float, verdict: str, *, width: float = 120.0) -> str:
    """A bar without text. The number stands beside it, so it is decoration only."""
    length = max(value / max(largest, 1e-9) * width, 1.0)
    bar = element("rect", x=0, y=0, width=length, height=8, rx=2, class_=colour(verdict))
    return element(
        "svg", bar, xmlns="http://www.w3.org/2000/svg", class_="chart small", viewBox=f"0 0 {width:g} 8", width=width,
        height=8, aria_hidden="true",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """A point in time (`end` None) or a span. `verdict` colours it; `change` is a fact that changed, or a reboot."""

    time: float
    what: str
    end: float | None = None
    verdict: str = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row, such as kernel, jobs or facts."""

    name: str
    events: tuple[TimelineEvent, ...]


def timeline(title: str, lanes: Sequence[Lane], start: float, end: float, *, width: float = 1080.0) -> str:
    """Lanes from `start` to `end` (Unix seconds). A label that would meet the next event is left out: the tooltip has it."""
    if not any(lane.events for lane in lanes) or end <= start:
        return empty("timeline", width, title)
    left, right = min(width * 0.2, 120.0), width - 8
    bottom = len(lanes) * LANE + 8

    def x(time: float) -> float:
        return left + (min(max(time, start), end) - start) / (end - start) * (right - left)

    inside = []
    for time in time_ticks(start, end, max(int((right - left) / 80), 2)):
        inside += [
            element("line", x1=x(time), x2=x(time), y1=0.0, y2=bottom, class_="grid"),
            *([label(x(time), bottom + 16, moment(time, end - start), room=80)] if x(time) < right - 30 else []),
        ]
    for row, lane in enumerate(lanes):
        y = row * LANE + 24
        inside += [
            element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"),
            label(0, y + 4, lane.name, room=left - 8, class_="strong"),
        ]
        events = sorted(lane.events, key=lambda event: event.time)[:MAX_EVENTS]
        free = left
        for i, event in enumerate(events):
            until = x(events[i + 1].time) if i + 1 < len(events) else right
            inside.append(_drawn(event, x(event.time), x(event.end) if event.end is not None else None, y))
            at = x(event.time) + 6
            if at >= free and min(until - at, len(event.what) * CHARACTER) >= 5 * CHARACTER:
                room = until - at - 4
                inside.append(label(at, y - 8, event.what, room=room))
                free = at + min(len(event.what) * CHARACTER, room)
    count = sum(len(lane.events) for lane in lanes)
    return chart("timeline", width, bottom + 24, title, f"{count:,} events in {len(lanes)} rows", *inside)


def _drawn(event: TimelineEvent, x: float, end: float | None, y: float) -> str:
    title = element("title", words(event.what[:300]))
    if end is not None:
        kind = f"span {colour(event.verdict)}"
        return element("rect", title, x=x, y=y - 6, width=max(end - x, 2.0), height=12, rx=2, class_=kind)
    kind = "change" if event.verdict == "change" else colour(event.verdict)
    return element("circle", title, cx=x, cy=y, r=5, class_=kind)
