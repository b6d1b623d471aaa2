"""Charts of the pages, each for wide and for narrow screens, and the heat map of nodes by rack or another place."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from exporter.fleet.charts.heat_map import MAX_CELLS, MAX_GROUPS, NodeGroup, heat_map
from exporter.fleet.charts.over_time import Mark, stacked_bars
from exporter.fleet.history.schema import IS_ROOT
from exporter.fleet.results.labels import changed_fact
from exporter.fleet.review.review_contents import NOT_CORRELATED
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import clip, count
from exporter.fleet.service.tables import Cell, PageTable, number
from exporter.fleet.statistics.findings import Correlation

VERDICTS = ("infrastructure", "workload", "unclear")
MAX_BARS = 45
NARROW = 330.0


def trend(frame: Frame, condition: str = "true", marks: tuple[Mark, ...] = (), **parameters: Any) -> Markup:
    """Root incidents over the window by verdict, for wide and for narrow screens."""
    store = frame.view.store
    if store is None:
        return Markup("")
    days = (frame.end - frame.start) / 86400
    step = next((s for s in (3600.0, 21600.0, 86400.0, 604800.0) if days * 86400 / s <= MAX_BARS), 2419200.0)
    first = frame.start // step * step
    bars = int((frame.end - first) // step) + 1
    edges = [first + i * step for i in range(bars + 1)]
    rows = store.rows(
        f"""SELECT verdict, floor((time - $first) / $step) AS bar, count(*) AS n FROM incidents
        WHERE time >= $start AND time < $end AND {IS_ROOT} AND {condition} GROUP BY ALL""",
        {"first": first, "step": step, **frame.span, **parameters},
    )
    counts = {name: [0] * bars for name in VERDICTS}
    for row in rows:
        counts[row["verdict"] if row["verdict"] in counts else "unclear"][int(row["bar"])] += row["n"]
    series = [(name, counts[name]) for name in VERDICTS]
    unit = {3600.0: "an hour", 21600.0: "in six hours", 86400.0: "a day"}.get(step, "a week")
    return both(
        lambda width: stacked_bars(
            f"Root incidents {unit}", edges, series, unit=f"root incidents {unit}", marks=marks, width=width
        )
    )


def both(draw: Callable[[float], str], wide: float = 1080.0) -> Markup:
    """A chart for wide and one for narrow screens. `draw` takes the width; the charts escape what they are given."""
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(
        Markup(draw(wide)), Markup(draw(NARROW))  # noqa: S704 - the charts escape every text
    )  # fmt: skip


def rollout_marks(result: Correlation | None, since: float) -> tuple[Mark, ...]:
    """When rollouts began, for charts over time that begin at `since`."""
    marks = (
        Mark(
            time=rollout.first,
            what=f"{changed_fact(rollout.facts, rollout.before)} on {rollout.nodes:,} nodes",
        )
        for rollout in (result or NOT_CORRELATED).rollouts
        if not rollout.verdict and rollout.first >= since
    )
    return tuple(marks)


LOCATION_FACTS = (
    "rack",
    "row",
    "pod",
    "chassis",
    "cage",
    "enclosure",
    "switch",
    "leaf",
    "cluster",
    "partition",
    "zone",
    "datacenter",
)
MAX_LOCATION_FACTS = 12
LEAST_GROUPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A heat map, the fact that it is by, and the other place facts to choose from."""

    by: str
    chart: Markup
    others: tuple[str, ...]
    note: str
    rows: tuple[tuple[str, int, int], ...]  # place, nodes, root incidents


def heat_of(frame: Frame, wide: float = 1080.0) -> Heat | None:
    """Nodes by place, those with the most incidents first; None where nodes state no place."""
    store = frame.view.store
    if store is None:
        return None
    facts = location_facts(frame)
    if not facts:
        return None
    by = frame.request.query_params.get("by", "")
    by = by if by in facts else facts[0]
    rows = store.rows(
        f"""SELECT place, list({{'node': node, 'n': coalesce(n, 0)}} ORDER BY coalesce(n, 0) DESC, node) AS nodes,
        sum(coalesce(n, 0)) AS total FROM (SELECT node, json_extract_string(max_by(facts, time), $by) AS place
            FROM facts WHERE time < $end GROUP BY node)
        LEFT JOIN (SELECT node, count(*) AS n FROM incidents WHERE time >= $start AND time < $end AND {IS_ROOT} GROUP BY node)
        USING (node) WHERE place IS NOT NULL GROUP BY place ORDER BY total DESC, place LIMIT {MAX_GROUPS + 1}""",
        {**frame.span, "by": f"/{by}"},
    )
    if len(rows) < LEAST_GROUPS:
        return None
    first = rows[0]
    shown = sorted(rows[:MAX_GROUPS], key=lambda row: natural(row["place"]))  # neighbours side by side
    groups = [
        NodeGroup(name=clip(row["place"]), cells=tuple((cell["node"], cell["n"]) for cell in row["nodes"][:MAX_CELLS]))
        for row in shown
    ]  # fmt: skip
    most = f", the {MAX_GROUPS} with the most" if len(rows) > MAX_GROUPS else ""
    note = (
        f"A column is a {by}, a cell a node{most}; darker is more root incidents. "
        f"Most: {clip(first['place'])}, {count(first['total'])} on {len(first['nodes'])} nodes."
    )
    return Heat(
        by=by, others=tuple(cell for cell in facts if cell != by), note=note,
        rows=tuple((row["place"], len(row["nodes"]), int(row["total"])) for row in rows),
        chart=both(
            lambda width: heat_map(f"Root incidents of nodes by {by}", groups, unit="root incidents", width=width), wide
        ),
    )  # fmt: skip


def natural(text: str) -> list[tuple[int, str]]:
    """A key that orders r2 before r10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", text[:100], re.ASCII)
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]


def locations_table(frame: Frame, heat: Heat) -> PageTable:
    return frame.table(
        "places", f"By {heat.by}", (heat.by.capitalize(), "Nodes", "Root incidents", "A node"),
        (
            (Cell(shown=Markup('<a href="{}">{}</a>').format(frame.link("/nodes", **{f"fact.{heat.by}": name}), clip(name)),
                  value=name),
             number(nodes), number(incidents), number(incidents / nodes, f"{incidents / nodes:.2f}"))
            for name, nodes, incidents in heat.rows
        ),
    )  # fmt: skip


def location_facts(frame: Frame) -> list[str]:
    """The facts of nodes that name a place, in the order of LOCATION_FACTS."""
    store = frame.view.store
    if store is None:
        return []
    rows: list[dict[str, Any]] = store.rows(
        "SELECT DISTINCT unnest(json_keys(facts)) AS name FROM (SELECT facts FROM facts WHERE time < $end"
        " ORDER BY time DESC LIMIT 2000)",
        {"end": frame.end},
    )
    names = {row["name"] for row in rows}
    return [name for name in LOCATION_FACTS if name in names][:MAX_LOCATION_FACTS]
