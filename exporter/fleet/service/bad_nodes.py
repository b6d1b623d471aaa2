"""Unusually bad nodes and GPUs, far worse than those like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from exporter.fleet.results.labels import ratio, sure
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.tables import Cell, Table, link, number, several

NAMED = 3


def bad_nodes(frame: Frame, result: Mapping[str, Any], width: str = "full") -> Table:
    """The table of the correlator's outlier nodes."""
    rows = [
        (
            _name(frame, each), number(each["expected"], ratio(each["expected"])),
            number(each["incidents"], f"{each['incidents']} in {each['jobs']} jobs, {each['days']} days"),
            number(each["probability"], sure(each["probability"])),
            several([_title(frame, one) for one in each["signatures"][:NAMED]], len(each["signatures"]) - NAMED),
        )
        for each in result.get("lemons", ())
    ]  # fmt: skip
    return frame.table(
        "bad_nodes", "Unusually bad nodes", ("Node or GPU", "Expected", "Incidents", "How sure", "Crashes"), rows,
        note="Far worse than nodes of the same configuration: drain and test them", width=width,
        empty="No node is worse than chance explains." if result else "Not computed yet.",
    )  # fmt: skip


def _name(frame: Frame, each: Mapping[str, Any]) -> Cell:
    """A bad node, or the node that a bad GPU was last seen in."""
    node = link(frame.to, "nodes", each["node"])
    if each["kind"] == "node":
        return node
    return Cell(shown=Markup("GPU {}, last in {}").format(each["name"][:80], node), value=each["name"])


def _title(frame: Frame, name: str) -> Cell:
    return link(frame.to, "causes", name, frame.view.titles.title(name))
