"""What all pages share: the menu, the window, links that keep it, banners, and lists as HTML, JSON or CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from exporter import __version__
from exporter.core.diagnosis.records import line
from exporter.fleet.history.store import Store
from exporter.fleet.service import api
from exporter.fleet.service.html import POLICY, Titles, change, count, render, time_of
from exporter.fleet.service.lists import LISTS, rows_of
from exporter.fleet.service.requests import WINDOWS, BadRequest, address, asked, filters_in, path_of, window_of
from exporter.fleet.service.status import FleetStatus
from exporter.web.interface import ServiceView

MENU = (
    ("/", "Overview"), ("/causes", "Causes"), ("/findings", "Findings"), ("/nodes", "Nodes"), ("/jobs", "Jobs"),
    ("/incidents", "Incidents"), ("/unknowns", "Unrecognised"), ("/quality", "Data quality"),
)  # fmt: skip
NO_HISTORY = (
    "Incidents, nodes and jobs need the nodes' journals. This service reads {source}: gather the journals in a folder "
    "and give it as --journal DIR. Findings and counts are shown on the page Findings."
)


class FleetView(ServiceView, Protocol):
    """What the fleet service lets the web server see."""

    @property
    def standing(self) -> FleetStatus:
        """The last result, and how refreshes went."""

    @property
    def source(self) -> str:
        """What is read, for people."""

    @property
    def store(self) -> Store | None:
        """The history of journals; None with another source."""

    @property
    def titles(self) -> Titles:
        """Titles and explanations of the catalogue."""

    @property
    def window(self) -> float:
        """The usual window in seconds."""


class NotFound(Exception):
    """No such node, job, incident or cause: what to say of it."""


class Frame:
    """One request for a page: its window, and how the page is rendered."""

    def __init__(self, request: Request, view: FleetView, telemetry_path: str, current: str) -> None:
        """Raises BadRequest."""
        self.request, self.view, self._telemetry, self._current = request, view, telemetry_path, current
        self.newest = newest_of(view.store) if view.store else 0.0
        self.start, self.end = window_of(request, newest=self.newest or time.time(), usual=view.window)
        self.span = {"start": self.start, "end": self.end}

    def link(self, path: str, /, **changes: str | None) -> str:
        """Another page with this window."""
        return address(self.request, path, **changes)

    def page(self, template: str, heading: str, **values: Any) -> HTMLResponse:
        """The page as a response."""
        given = self.request.query_params
        span = given.get("window") or next((k for k in WINDOWS if int(k[:-1]) * 86400 == self.view.window), "")
        windows = dict(WINDOWS) if span in WINDOWS else {span: span or "usual", **WINDOWS}
        if given.get("start"):
            windows, span = {"": "as in the address", **WINDOWS}, ""
        body = render(
            template, heading=heading, menu=MENU, current=self._current, path=path_of(self.request), windows=windows,
            window=span, kept=filters_in(self.request), titles=self.view.titles, link=self.link, change=change,
            here=lambda **changes: address(self.request, **changes), banners=self.banners(), footer=self._footer(),
            telemetry_path=self._telemetry, **values,
        )  # fmt: skip
        return HTMLResponse(body.encode(errors="backslashreplace"), headers={"Content-Security-Policy": POLICY})

    def banners(self) -> list[str]:
        """What is missing from sight now."""
        found = []
        if self.view.store is None:
            found.append(NO_HISTORY.format(source=self.view.source))
        elif self.view.store.status.failure:
            found.append(f"The journals cannot be read: {self.view.store.status.failure}. What follows is older.")
        elif self.view.store.status.last is None:
            found.append("The journals are being read; what follows is not complete yet.")
        elif not self.newest:
            found.append(
                f"No record of any node yet. This service reads {self.view.source}: gather what the node daemons write "
                "below journal.dir there."
            )
        standing = self.view.standing
        if standing.failure:
            complete = standing.complete_time
            seen = (
                f"the last complete result is of {_minute(complete)}" if complete else "no result was complete so far"
            )
            found.append(f"The last refresh failed ({standing.failure.told}); {seen}.")
        return found

    def _footer(self) -> Markup:
        return Markup("{} · data to {} UTC · gpufault {}").format(
            self.view.source, time_of(self.newest or None), __version__
        )


def list_page(frame: Frame, name: str, **more: Any) -> Response:
    """A list's page. Raises BadRequest."""
    listing = LISTS[name]
    wanted = asked(frame.request, name, (frame.start, frame.end))
    rows, total = rows_of(_store(frame), name, wanted) if frame.view.store else ([], 0)
    times = {k: frame.request.query_params[k] for k in ("window", "start", "end") if frame.request.query_params.get(k)}
    return frame.page(
        "list.html", f"{listing.title}: {count(total)}", sub=listing.note, listing=listing, rows=rows, total=total,
        asked=wanted, times=times, export=lambda form: export_address(frame, name, form), **more,
    )  # fmt: skip


def list_answer(request: Request, view: FleetView, name: str) -> Response:
    """A list as JSON or CSV. Raises BadRequest."""
    if view.store is None:
        return json_answer({"error": NO_HISTORY.format(source=view.source)}, 503)
    window = window_of(request, newest=newest_of(view.store) or time.time(), usual=view.window)
    form = request.query_params.get("format", "json")
    if form not in ("json", "csv"):
        raise BadRequest("format is json or csv")
    wanted = asked(request, name, window)
    rows, total = rows_of(view.store, name, wanted)
    if form == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        return Response(api.as_csv(name, rows).encode(), media_type="text/csv; charset=utf-8", headers=headers)
    return json_answer(api.answer(name, wanted, rows, total))


def export_address(frame: Frame, name: str, form: str, **filters: str) -> str:
    """The address of a list's export with the page's window and filters."""
    given = {k: v for k, v in filters_in(frame.request).items() if k in LISTS[name].filters or k.startswith("fact.")}
    return address(frame.request, f"/api/v1/{name}", format=form, limit="1000", **{**given, **filters})


def json_answer(value: Mapping[str, Any], status: int = 200) -> Response:
    """JSON in which control and bidirectional characters are escaped."""
    return Response(line(value).encode(errors="backslashreplace"), status, media_type="application/json")


def newest_of(store: Store) -> float:
    """The time of the newest record; 0 without any."""
    row = store.rows(
        "SELECT greatest((SELECT max(time) FROM incidents), (SELECT max(last) FROM watched_days),"
        " (SELECT max(time) FROM facts)) AS newest"
    )[0]
    return float(row["newest"] or 0.0)


Page = Callable[[Frame], Response]


def _store(frame: Frame) -> Store:
    assert frame.view.store is not None
    return frame.view.store


def _minute(time: float) -> str:
    return str(time_of(time).striptags())
