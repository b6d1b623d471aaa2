"""Places as columns of cells, darker the more happened there: nodes by rack, for example."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.charts.svg import CHARACTER, chart, colour, element, empty, label, words

HEAD = 16.0
WIDEST, NARROWEST = 34.0, 8.0  # pixels of a column
TALLEST, LOWEST, BLOCK = 10.0, 3.0, 128.0  # pixels of a cell, and of a column where its cells may be lower
STEPS = 6  # of darkness, as classes: a strict policy forbids colours as styles, an attribute is allowed
MAX_GROUPS, MAX_CELLS = 64, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A rack, or another place: its name, and the name and count of each node in it."""

    name: str
    cells: tuple[tuple[str, int], ...]


def heat_map(
    title: str, groups: Sequence[NodeGroup], *, unit: str, verdict: str = "infrastructure", width: float = 720.0
) -> str:
    """Columns of cells, wrapped to the width. Groups and cells beyond the limits are counted in the description."""
    if not any(group.cells for group in groups):
        return empty("heat-map", width, title)
    shown = groups[:MAX_GROUPS]
    largest = max(count for group in shown for _, count in group.cells)
    column = min(max(width / len(shown), NARROWEST), WIDEST)
    across = max(int(width / column + 1e-6), 1)
    tallest = min(max(len(group.cells) for group in shown), MAX_CELLS)
    row = min(max(BLOCK / tallest, LOWEST), TALLEST)
    gap = 1.0 if row < 2 * LOWEST else 2.0
    longest = max(len(group.name) for group in shown)
    every = max(int((min(longest, 12) * CHARACTER + 6) / column + 0.999), 1)  # a name for every so many columns
    block = HEAD + tallest * row + 12
    inside = []
    for i, group in enumerate(shown):
        x, top = i % across * column, i // across * block
        if i % across % every == 0 and x + column * every <= width + 1:
            inside.append(label(x, top + 11, group.name, room=column * every - 4))
        cells = group.cells[:MAX_CELLS]
        for j, (name, count) in enumerate(cells):
            if count:
                tooltip = f"{words(group.name[:100])}, {words(name[:100])}: {count:,}"
                step = max(round(count / largest * STEPS), 1)
                inside.append(_cell(tooltip, x, top + HEAD + j * row, column - gap, row - gap, colour(verdict), step))
        calm = [j for j, (_, count) in enumerate(cells) if not count]
        if calm and calm[-1] - calm[0] == len(calm) - 1:  # the usual order: one rectangle instead of hundreds
            tooltip = f"{words(group.name[:100])}: {len(calm):,} without"
            inside.append(_cell(tooltip, x, top + HEAD + calm[0] * row, column - gap, len(calm) * row - gap, "empty"))
        else:
            inside += [
                _cell(words(cells[j][0][:100]), x, top + HEAD + j * row, column - gap, row - gap, "empty") for j in calm
            ]
    rest = f"; {len(groups) - MAX_GROUPS} more groups not shown" if len(groups) > MAX_GROUPS else ""
    worst = max(shown, key=lambda group: sum(count for _, count in group.cells))
    description = f"{unit}, darker is more, at most {largest:,}; most in {worst.name[:60]}{rest}"
    return chart("heat-map", width, ((len(shown) - 1) // across + 1) * block, title, description, *inside)


def _cell(tooltip: str, x: float, y: float, width: float, height: float, class_: str, step: int | None = None) -> str:
    opacity = None if step is None else f"{step / STEPS:.2f}"
    return element(
        "rect", element("title", tooltip), x=x, y=y, width=width, height=height, class_=class_, fill_opacity=opacity
    )
