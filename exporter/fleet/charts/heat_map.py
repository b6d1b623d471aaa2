"""Places as cells, darker the more happened there: nodes by rack, for example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.svg import chart, colour, element, empty, label, words

CELL, GAP, HEAD = 16.0, 2.0, 16.0
STEPS = 6  # of darkness, as classes: a strict policy forbids colours as styles, an attribute is allowed
MAX_GROUPS, MAX_CELLS = 64, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A rack, or another place: its name, and the name and count of each node in it."""

    name: str
    cells: tuple[tuple[str, int], ...]


def heat_map(
    title: str, groups: Sequence[Group], *, unit: str, verdict: str = "infrastructure", width: float = 720.0
) -> str:
    """Columns of cells, wrapped to the width. Groups and cells beyond the limits are counted in the description."""
    if not any(group.cells for group in groups):
        return empty("heat-map", width, title)
    shown = groups[:MAX_GROUPS]
    largest = max(count for group in shown for _, count in group.cells)
    across = max(int(width / (CELL * 2)), 1)
    tallest = min(max(len(group.cells) for group in shown), MAX_CELLS)
    block = HEAD + tallest * (CELL / 2 + GAP) + 10
    inside = []
    for i, group in enumerate(shown):
        x, top = i % across * CELL * 2, i // across * block
        inside.append(label(x, top + 11, group.name, room=CELL * 2 - 2))
        for j, (name, count) in enumerate(group.cells[:MAX_CELLS]):
            step = 0 if not count else max(round(count / max(largest, 1) * STEPS), 1)
            inside.append(
                element(
                    "rect", element("title", f"{words(name[:100])}: {count:,}"), x=x, y=top + HEAD + j * (CELL / 2 + GAP),
                    width=CELL * 2 - GAP, height=CELL / 2, rx=1, class_=colour(verdict) if count else "empty",
                    fill_opacity=f"{step / STEPS:.2f}" if count else None,
                )
            )  # fmt: skip
    rest = f"; {len(groups) - MAX_GROUPS} more groups not shown" if len(groups) > MAX_GROUPS else ""
    worst = max(shown, key=lambda group: sum(count for _, count in group.cells))
    what = f"{unit}, darker is more, at most {largest:,}; most in {worst.name[:60]}{rest}"
    return chart("heat-map", width, ((len(shown) - 1) // across + 1) * block, title, what, *inside)
