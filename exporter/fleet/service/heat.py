"""The heat map of nodes by rack, or by any other place that they state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from exporter.fleet.charts.heat_map import MAX_CELLS, MAX_GROUPS, Group, heat_map
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import clip, count
from exporter.fleet.service.pictures import both
from exporter.fleet.service.tables import Cell, Table, number

PLACES = (
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
MAX_PLACE_FACTS = 12
LEAST_GROUPS = 2
_ROOTS = "role = 'root' AND root_cause != 'peer_failure'"


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
    places = places_of(frame)
    if not places:
        return None
    by = frame.request.query_params.get("by", "")
    by = by if by in places else places[0]
    rows = store.rows(
        f"""SELECT place, list({{'node': node, 'n': coalesce(n, 0)}} ORDER BY coalesce(n, 0) DESC, node) AS nodes,
        sum(coalesce(n, 0)) AS total FROM (SELECT node, json_extract_string(max_by(facts, time), $by) AS place
            FROM facts WHERE time < $end GROUP BY node)
        LEFT JOIN (SELECT node, count(*) AS n FROM incidents WHERE time >= $start AND time < $end AND {_ROOTS} GROUP BY node)
        USING (node) WHERE place IS NOT NULL GROUP BY place ORDER BY total DESC, place LIMIT {MAX_GROUPS + 1}""",
        {**frame.span, "by": f"/{by}"},
    )
    if len(rows) < LEAST_GROUPS:
        return None
    first = rows[0]
    shown = sorted(rows[:MAX_GROUPS], key=lambda row: natural(row["place"]))  # neighbours side by side
    groups = [
        Group(name=clip(row["place"]), cells=tuple((each["node"], each["n"]) for each in row["nodes"][:MAX_CELLS]))
        for row in shown
    ]  # fmt: skip
    most = f", the {MAX_GROUPS} with the most" if len(rows) > MAX_GROUPS else ""
    note = (
        f"A column is a {by}, a cell a node{most}; darker is more root incidents. "
        f"Most: {clip(first['place'])}, {count(first['total'])} on {len(first['nodes'])} nodes."
    )
    return Heat(
        by=by, others=tuple(each for each in places if each != by), note=note,
        rows=tuple((row["place"], len(row["nodes"]), int(row["total"])) for row in rows),
        chart=both(
            lambda width: heat_map(f"Root incidents of nodes by {by}", groups, unit="root incidents", width=width), wide
        ),
    )  # fmt: skip


def natural(text: str) -> list[tuple[int, str]]:
    """A key that orders r2 before r10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", text[:100], re.ASCII)
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]


def places_table(frame: Frame, heat: Heat) -> Table:
    """The numbers of a heat map."""
    return frame.table(
        "places", f"By {heat.by}", (heat.by.capitalize(), "Nodes", "Root incidents", "A node"),
        (
            (Cell(shown=Markup('<a href="{}">{}</a>').format(frame.link("/nodes", **{f"fact.{heat.by}": place}), clip(place)),
                  value=place),
             number(nodes), number(incidents), number(incidents / nodes, f"{incidents / nodes:.2f}"))
            for place, nodes, incidents in heat.rows
        ),
    )  # fmt: skip


def places_of(frame: Frame) -> list[str]:
    """The facts of nodes that name a place, in the order of PLACES."""
    store = frame.view.store
    if store is None:
        return []
    rows: list[dict[str, Any]] = store.rows(
        "SELECT DISTINCT unnest(json_keys(facts)) AS name FROM (SELECT facts FROM facts WHERE time < $end"
        " ORDER BY time DESC LIMIT 2000)",
        {"end": frame.end},
    )
    found = {row["name"] for row in rows}
    return [name for name in PLACES if name in found][:MAX_PLACE_FACTS]
