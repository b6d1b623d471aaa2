"""What all pages share: the menu, the window, links that keep it, banners, and lists as HTML, JSON or CSV."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from exporter import __version__
from exporter.config.fleet import LostConfig
from exporter.core.diagnosis.records import line
from exporter.core.model import DOMAIN_WORDS, RESTART_WORDS
from exporter.fleet.history.store import Store
from exporter.fleet.service import api
from exporter.fleet.service.html import POLICY, Titles, change, count, render, time_of
from exporter.fleet.service.lists import LISTS, rows_of
from exporter.fleet.service.refresh import FleetStatus
from exporter.fleet.service.requests import (
    DAY,
    WINDOWS,
    BadRequest,
    address,
    asked,
    filters_in,
    path_of,
    window_in,
    window_of,
)
from exporter.fleet.service.tables import PageTable, arranged, as_csv, as_json, tone_of
from exporter.web.interface import ServiceView

MENU = (
    ("/", "Overview"), ("/causes", "Causes"), ("/findings", "Findings"), ("/nodes", "Nodes"), ("/jobs", "Jobs"),
    ("/incidents", "Incidents"), ("/unknowns", "Unrecognised"), ("/quality", "Data quality"),
)  # fmt: skip
NO_HISTORY = (
    "Incidents, nodes and jobs need the nodes' journals. This service reads {source}: gather the journals in a folder "
    "and give it as --journal DIR. Findings and counts are shown on the page Findings."
)


CHOICES = {  # of filters with few values
    "verdict": ("infrastructure", "workload", "unclear"), "domain": tuple(DOMAIN_WORDS), "restart": tuple(RESTART_WORDS),
    "role": ("root", "cascade", "context"),
    "kind": ("incident", "job_start", "job_end", "node_check", "boot", "facts", "silence"),
}  # fmt: skip


class FleetView(ServiceView, Protocol):
    """What the fleet service lets the web server see."""

    @property
    def fleet_status(self) -> FleetStatus:
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
    def lost(self) -> LostConfig:
        """What the GPU-hours of crashed jobs cost."""

    @property
    def window(self) -> float:
        """The usual window in seconds."""


class MissingPage(Exception):
    """No such node, job, incident or cause: what to say of it."""


class Frame:
    """One request for a page: its window, and how the page is rendered."""

    def __init__(self, request: Request, view: FleetView, telemetry_path: str, current: str) -> None:
        """Raises BadRequest."""
        self.request, self.view, self._telemetry, self._current = request, view, telemetry_path, current
        self.newest = newest_of(view.store) if view.store else 0.0
        self.start, self.end = window_of(request, newest=self.newest or time.time(), usual=view.window)
        self.span = {"start": self.start, "end": self.end}
        self._tables: dict[str, PageTable] = {}

    def table(
        self, key: str, title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], **more: Any
    ) -> PageTable:
        """A table of the page, sorted and filtered as the address asks; `table=KEY&format=csv` exports it."""
        made = PageTable(key=key, title=title, heads=tuple(heads), rows=list(rows), **more)
        self._tables[key] = arranged(made, self.request.query_params)
        return self._tables[key]

    def link(self, path: str, /, **changes: str | None) -> str:
        """Another page with this window."""
        return address(self.request, path, **changes)

    def to(self, path: str) -> str:
        """The page of a node, job, incident or cause with this window; empty where the service has no such pages."""
        return self.link(path) if self.view.store is not None else ""

    def page(self, template: str, heading: str, **values: Any) -> Response:
        """The page as a response; or one of its tables, if the request asks for that."""
        if key := self.request.query_params.get("table"):
            return self._export(key)
        windows, span = self._windows()
        body = render(
            template, heading=heading, menu=MENU, current=self._current, path=path_of(self.request), windows=windows,
            window=span, of_window=window_in(self.request),
            kept=filters_in(self.request), all_kept=_kept(self.request), titles=self.view.titles,
            link=self.link, change=change, tone_of=tone_of, here=self.here, banners=self.banners(), footer=self._footer(),
            shown_window=_days(self.start, self.end), telemetry_path=self._telemetry, **self._neighbours(), **values,
        )  # fmt: skip
        return HTMLResponse(body.encode(errors="backslashreplace"), headers={"Content-Security-Policy": POLICY})

    def missing(self, heading: str, status: int = 404) -> Response:
        """The page of something that is not on record, or cannot be asked, with the menu and the search."""
        response = self.page("missing.html", heading, is_missing=status == 404)
        response.status_code = status
        return response

    def here(self, changes: Mapping[str, str | None] | None = None, /, **more: str | None) -> str:
        """This page with some parameters changed."""
        return address(self.request, None, **{**(changes or {}), **more})

    def _export(self, key: str) -> Response:
        if key not in self._tables:
            raise MissingPage(f"This page has no table {key[:80]!r}; it has {', '.join(self._tables) or 'none'}")
        table, form = self._tables[key], self.request.query_params.get("format", "json")
        if form == "json":
            return json_answer(as_json(table))
        if form != "csv":
            raise BadRequest("format is json or csv")
        headers = {"Content-Disposition": f'attachment; filename="{key}.csv"'}
        return Response(as_csv(table).encode(), media_type="text/csv; charset=utf-8", headers=headers)

    def _windows(self) -> tuple[dict[str, str], str]:
        given, days = self.request.query_params, self.view.window / DAY
        if given.get("start"):
            return {"": "chosen dates", **WINDOWS}, ""
        usual = f"{days:g}d" if days == int(days) else ""
        windows = {**WINDOWS, usual: "1 day" if days == 1 else f"{days:g} days"}
        chosen = given.get("window") or usual
        windows.setdefault(chosen, chosen)
        return dict(sorted(windows.items(), key=lambda item: (len(item[0]), item[0]))), chosen

    def _neighbours(self) -> dict[str, str | None]:
        """The addresses of the window before, of the next one, and of this one for ever."""
        span = self.end - self.start
        ends = {"start": None, "window": f"{span / DAY:.0f}d" if span >= DAY else f"{max(span / 3600, 1):.0f}h"}
        later = min(self.end + span, self.newest + 1)
        return {
            "earlier": self.here({**ends, "end": f"{self.start:.0f}"}),
            "later": self.here({**ends, "end": f"{later:.0f}"}) if self.end < self.newest else None,
            "permanent": self.here(start=f"{self.start:.0f}", end=f"{self.end:.0f}", window=None),
        }

    def banners(self) -> list[str]:
        """What is missing from sight now."""
        texts = []
        if self.view.store is None:
            texts.append(NO_HISTORY.format(source=self.view.source))
        elif self.view.store.status.failure:
            texts.append(f"The journals cannot be read: {self.view.store.status.failure}. What follows is older.")
        elif self.view.store.status.last is None:
            texts.append("The journals are being read; what follows is not complete yet.")
        elif not self.newest:
            texts.append(
                f"No record of any node yet. This service reads {self.view.source}: gather what the node daemons write "
                "below journal.dir there."
            )
        fleet_status = self.view.fleet_status
        if fleet_status.failure:
            complete = fleet_status.complete_time
            seen = (
                f"the last complete result is of {_minute(complete)}" if complete else "no result was complete so far"
            )
            texts.append(f"The last refresh failed ({fleet_status.failure.message}); {seen}.")
        return texts

    def _footer(self) -> Markup:
        return Markup("{} · data to {} UTC · page made at {:%H:%M:%S} UTC · gpufault {}").format(
            self.view.source, time_of(self.newest or None), datetime.now(UTC), __version__
        )


def list_page(frame: Frame, name: str, **more: Any) -> Response:
    """A list's page. Raises BadRequest."""
    listing = LISTS[name]
    wanted = asked(frame.request, name, (frame.start, frame.end))
    rows, total = rows_of(store_of(frame), name, wanted) if frame.view.store else ([], 0)
    kept = {
        k: v
        for k, v in frame.request.query_params.items()
        if v and (k in ("window", "start", "end", "by") or k[:5] == "fact.")
    }
    heading = f"{count(total)} {listing.title[0].lower()}{listing.title[1:]}"
    return frame.page(
        "list.html", heading, sub=listing.note, listing=listing, rows=rows, total=total,
        asked=wanted, times=kept, choices=CHOICES, export=lambda form: export_address(frame, name, form), **more,
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


def store_of(frame: Frame) -> Store:
    """The history. Raises MissingPage where the service has none."""
    if frame.view.store is None:
        raise MissingPage("Pages of nodes, jobs and incidents need the nodes' journals (--journal DIR)")
    return frame.view.store


def _kept(request: Request) -> dict[str, str]:
    """All parameters but those of an export."""
    return {key: value for key, value in request.query_params.items() if value and key not in ("table", "format")}


def _days(start: float, end: float) -> str:
    """A window for people: `15 Jun – 13 Jul 2026`."""
    first, last = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(max(end - 1, start), UTC)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}–{last.day} {last:%b %Y}" if first.day != last.day else f"{last.day} {last:%b %Y}"
    year = f" {first:%Y}" if first.year != last.year else ""
    return f"{first.day} {first:%b}{year} – {last.day} {last:%b %Y}"


def _minute(time: float) -> str:
    return str(time_of(time).striptags())
