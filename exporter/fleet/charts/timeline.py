"""Lanes over time: events as points, states as spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.scales import moment, time_ticks
from exporter.fleet.charts.svg import CHARACTER, chart, colour, element, empty, label, words

LANE = 38.0
MAX_EVENTS = 200  # drawn in a lane; the table has all


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A point in time (`end` None) or a span. `verdict` colours it; `change` is a fact that changed, or a reboot."""

    time: float
    what: str
    end: float | None = None
    verdict: str = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row, such as kernel, jobs or facts."""

    name: str
    events: tuple[Event, ...]


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


def _drawn(event: Event, x: float, end: float | None, y: float) -> str:
    title = element("title", words(event.what[:300]))
    if end is not None:
        kind = f"span {colour(event.verdict)}"
        return element("rect", title, x=x, y=y - 6, width=max(end - x, 2.0), height=12, rx=2, class_=kind)
    kind = "change" if event.verdict == "change" else colour(event.verdict)
    return element("circle", title, cx=x, cy=y, r=5, class_=kind)
