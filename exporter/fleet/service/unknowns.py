"""Crashes that no signature matches, and how to begin one for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from exporter.core.authoring.draft import draft
from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.observations import Window
from exporter.fleet.review.queries import unrecognised
from exporter.fleet.review.values import UnrecognisedCrash
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import clip, count, multiline
from exporter.fleet.service.tables import Cell, Table, number, when


def unknowns_page(frame: Frame) -> Response:
    """The page of unrecognised crashes."""
    found: Sequence[UnrecognisedCrash] = ()
    if frame.view.store is not None:
        with frame.view.store.cursor() as db:
            found = unrecognised(db, Window(start=frame.start, end=frame.end))
    crashes, new = sum(each.count for each in found), sum(each.is_new for each in found)
    heading = (
        f"{count(crashes)} unrecognised crashes of {count(len(found))} kinds" if found else "No unrecognised crashes"
    )
    return frame.page(
        "sections.html", heading + (f", {new} new" if new else ""), tables=[unknowns_table(frame, found, full=True)],
        sub="No signature matches these lines. Similar lines are one row, those on most nodes first.",
    )  # fmt: skip


def unknowns_table(
    frame: Frame, found: Sequence[UnrecognisedCrash], width: str = "full", *, full: bool = False
) -> Table:
    """Clusters of unrecognised crashes; `full`: with an example and the command that begins a signature."""
    heads = ["Line", "Crashes", "Nodes", "Jobs", "First (UTC)"]
    heads += ["Last (UTC)", "Example", "Begin a signature"] if full else []
    more = Markup("") if full else Markup('<a href="{}">begin a signature</a>').format(frame.link("/unknowns"))
    return frame.table(
        "unknowns", "Clusters" if full else "Unrecognised crashes", heads, [_row(each, full=full) for each in found],
        note="New: not seen before this window" if full else "No signature matches them; similar lines are one row",
        empty="Every crash in this window matches a signature.", width=width, more=more,
    )  # fmt: skip


def _row(each: UnrecognisedCrash, *, full: bool) -> list[Any]:
    new = Markup(' <span class="tag worse">new</span>') if each.is_new else Markup("")
    cells: list[Any] = [
        Cell(shown=_code(each.template) + new, value=redact(each.template)), number(each.count), number(each.nodes),
        number(each.jobs), when(each.first),
    ]  # fmt: skip
    if full:
        place = f"{each.path}:{each.line}" if each.path else "log not recorded"
        example = _code(each.examples[0]) + Markup('<br><span class="id">{}</span>').format(_safe(place))
        examples = list(dict.fromkeys(map(_safe, each.examples)))
        command = f"gpufault signatures new {shlex.join(examples)}"
        pack = draft(examples, "job", ())
        begin = Markup(
            "<details><summary>draft</summary><p><code>{}</code> writes this:</p><pre>{}</pre></details>"
        ).format(command, multiline(pack))
        cells += [
            when(each.last),
            Cell(shown=example, value=redact(each.examples[0])),
            Cell(shown=begin, value=command),
        ]
    return cells


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(_safe(text))


def _safe(text: str) -> str:
    return printable(clip(redact(" ".join(text.split()))))
