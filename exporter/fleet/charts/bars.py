"""Horizontal bars, one for each thing counted; and a bar alone, for the cell of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.scales import number
from exporter.fleet.charts.svg import RIGHT, chart, colour, element, empty, label

ROW = 24.0
VALUE_ROOM = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One thing: its name, its value (0 or more), and whose fault it is."""

    name: str
    value: float
    verdict: str = "unclear"


def bars(title: str, found: Sequence[Bar], *, unit: str, width: float = 720.0) -> str:
    """Bars from the left, each with its number. `unit` says what is counted."""
    if not found:
        return empty("bars", width, title)
    names = min(width * 0.4, 320.0)
    begin, end = names + 8, width - VALUE_ROOM
    largest = max([1e-9, *(each.value for each in found)])
    inside = []
    for row, each in enumerate(found):
        y = row * ROW
        length = each.value / largest * (end - begin)
        inside += [
            label(names, y + 16, each.name, room=names, anchor=RIGHT, class_="strong"),
            element("rect", x=begin, y=y + 5, width=max(length, 1.0), height=14, rx=2, class_=colour(each.verdict)),
            label(begin + max(length, 1.0) + 6, y + 16, number(each.value), room=VALUE_ROOM),
        ]
    bottom = len(found) * ROW + 14
    inside.append(label(begin, bottom, unit, room=end - begin))
    what = "; ".join(f"{each.name[:60]}: {number(each.value)}" for each in found[:5])
    return chart("bars", width, bottom + 6, title, f"{unit}: {what}", *inside)


def small_bar(value: float, largest: float, verdict: str, *, width: float = 120.0) -> str:
    """A bar without text. The number stands beside it, so it is decoration only."""
    length = max(value / max(largest, 1e-9) * width, 1.0)
    bar = element("rect", x=0, y=0, width=length, height=8, rx=2, class_=colour(verdict))
    return element(
        "svg", bar, xmlns="http://www.w3.org/2000/svg", class_="chart small", viewBox=f"0 0 {width:g} 8", width=width,
        height=8, aria_hidden="true",
    )  # fmt: skip
