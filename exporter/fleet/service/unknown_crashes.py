"""Crashes that no signature matches, and how to begin one for them."""

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
from exporter.fleet.review.review_contents import UnrecognisedCrash
from exporter.fleet.service.frame import Frame
from exporter.fleet.service.html import clip, count, multiline
from exporter.fleet.service.tables import Cell, PageTable, number, when


def unknowns_page(frame: Frame) -> Response:
    clusters: Sequence[UnrecognisedCrash] = ()
    if frame.view.store is not None:
        with frame.view.store.cursor() as db:
            clusters = unrecognised(db, Window(start=frame.start, end=frame.end))
    crashes, new = sum(cluster.count for cluster in clusters), sum(cluster.is_new for cluster in clusters)
    heading = (
        f"{count(crashes)} unrecognised crashes of {count(len(clusters))} kinds"
        if clusters
        else "No unrecognised crashes"
    )
    return frame.page(
        "sections.html", heading + (f", {new} new" if new else ""), tables=[unknowns_table(frame, clusters, full=True)],
        sub="No signature matches these lines. Similar lines are one row, those on most nodes first.",
    )  # fmt: skip


def unknowns_table(
    frame: Frame, clusters: Sequence[UnrecognisedCrash], width: str = "full", *, full: bool = False
) -> PageTable:
    """Clusters of unrecognised crashes; `full`: with an example and the command that begins a signature."""
    heads = ["Line", "Crashes", "Nodes", "Jobs", "First (UTC)"]
    heads += ["Last (UTC)", "Example", "Begin a signature"] if full else []
    more = Markup("") if full else Markup('<a href="{}">begin a signature</a>').format(frame.link("/unknowns"))
    return frame.table(
        "unknowns", "Clusters" if full else "Unrecognised crashes", heads, [_row(cluster, full=full) for cluster in clusters],
        note="New: not seen before this window" if full else "No signature matches them; similar lines are one row",
        empty="Every crash in this window matches a signature.", width=width, more=more,
    )  # fmt: skip


def _row(cluster: UnrecognisedCrash, *, full: bool) -> list[Any]:
    new = Markup(' <span class="tag worse">new</span>') if cluster.is_new else Markup("")
    cells: list[Any] = [
        Cell(shown=_code(cluster.template) + new, value=redact(cluster.template)), number(cluster.count), number(cluster.nodes),
        number(cluster.jobs), when(cluster.first),
    ]  # fmt: skip
    if full:
        location = f"{cluster.path}:{cluster.line}" if cluster.path else "log not recorded"
        example = _code(cluster.examples[0]) + Markup('<br><span class="id">{}</span>').format(_safe(location))
        examples = list(dict.fromkeys(map(_safe, cluster.examples)))
        command = f"gpufault signatures new {shlex.join(examples)}"
        pack = draft(examples, "job", ())
        begin = Markup(
            "<details><summary>draft</summary><p><code>{}</code> writes this:</p><pre>{}</pre></details>"
        ).format(command, multiline(pack))
        cells += [
            when(cluster.last),
            Cell(shown=example, value=redact(cluster.examples[0])),
            Cell(shown=begin, value=command),
        ]
    return cells


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(_safe(text))


def _safe(text: str) -> str:
    return printable(clip(redact(" ".join(text.split()))))
