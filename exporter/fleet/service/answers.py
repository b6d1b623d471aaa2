"""What the fleet service answers at which path: its pages, the API of its history, and the JSON of its last result."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import partial
from typing import Any

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router

from exporter.core.diagnosis.records import line, rfc3339
from exporter.core.text.phrases import printable
from exporter.core.text.redact import redact
from exporter.fleet.charts.svg import CSS as CHARTS_CSS
from exporter.fleet.service.api import ALWAYS, openapi
from exporter.fleet.service.entities import cause_page, incident_page, job_page
from exporter.fleet.service.finding_list import findings_page
from exporter.fleet.service.finding_page import finding_page
from exporter.fleet.service.frame import MENU, FleetView, Frame, MissingPage, json_answer, list_answer, list_page
from exporter.fleet.service.html import STATIC
from exporter.fleet.service.lists import LISTS
from exporter.fleet.service.nodes import node_page, nodes_page
from exporter.fleet.service.overview import overview
from exporter.fleet.service.page_cache import RETRY_SECONDS, Busy, PageCache, PageState
from exporter.fleet.service.quality import quality_page
from exporter.fleet.service.refresh import FleetStatus
from exporter.fleet.service.requests import BadRequest, refuse_others
from exporter.fleet.service.search import search_page
from exporter.fleet.service.unknown_crashes import unknowns_page
from exporter.web.routes import service_router

STYLE = CHARTS_CSS + (STATIC / "fleet.css").read_text(encoding="utf-8")
SCRIPT = (STATIC / "fleet.js").read_text(encoding="utf-8")
ICON = (STATIC / "icon.svg").read_text(encoding="utf-8")
API = "/api/v1"
LIVE = ("/quality", "/targets")  # never kept: how pulling goes changes without a new record
USUAL = frozenset(path for path, _ in MENU)  # without parameters: what most readers ask for
# Pages of what only the nodes' records tell: without them an empty list would claim that there is nothing.
OF_RECORDS = {path: name for path, name in MENU if path in ("/causes", "/nodes", "/jobs", "/incidents")}
OF_RECORDS |= {"/unknowns": "Unrecognised crashes", "/timeline": "Events", "/targets": "Pulled nodes"}
PARTS: Mapping[str, Sequence[str]] = {
    "findings": ("findings", "locations", "not_enough_data"),
    "lemons": ("lemons",),
    "exposed": ("exposed",),
}


class AnyName(Convertor[str]):
    """A node's or job's name in a path, also with slashes and newlines."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


LIST_PAGES = {f"/{name}" for name in LISTS if name != "unknowns"}  # they look at their parameters themselves
OWN_PARAMETERS = {"/": ("by",), "/search": ("q",), "/nodes": ("at",)}


def router(view: FleetView, telemetry_path: str) -> Router:
    """The fleet service's application. Raises InvalidInput for a path that cannot be meant."""

    register_url_convertor("any", AnyName())
    cache = PageCache()

    async def made(request: Request, path: str, make: Callable[[], Response]) -> Response:
        """What `make` answers, or has answered a moment ago. It queries, so it runs in one of a few threads."""
        usual = path in USUAL and not request.url.query
        address = (request.scope["path"], request.url.query)
        try:
            return await cache.get(address, _state(view), make, usual=usual, keep=path not in LIVE)
        except Busy:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return PlainTextResponse("Too many pages are being made; ask again in some seconds.\n", 503, headers)

    def page(path: str, show: Callable[[Frame], Response]) -> Route:
        async def answer(request: Request) -> Response:
            return await made(request, path, lambda: shown(request, path, show))

        return Route(path, answer)

    def entity(path: str, show: Callable[[Frame, str], Response]) -> Route:
        async def answer(request: Request) -> Response:
            name = request.path_params["name"]
            return await made(request, "", lambda: shown(request, path, lambda frame: show(frame, name)))

        return Route(f"{path}/{{name:any}}", answer)

    def shown(request: Request, path: str, show: Callable[[Frame], Response]) -> Response:
        try:
            frame = Frame(request, view, telemetry_path, path)
            if view.store is None and request.scope["path"] in OF_RECORDS:
                return frame.missing(f"{OF_RECORDS[path]} are not known from {view.source}", 200)
            if path not in LIST_PAGES or "name" in request.path_params:
                refuse_others(request, {"table", "format", *OWN_PARAMETERS.get(path, ())})
            return show(frame)
        except BadRequest as error:
            if "table" in request.query_params:
                return _plain_text(str(error), 400)
            bare, what = Request({**request.scope, "query_string": b""}), str(error)
            return Frame(bare, view, telemetry_path, path).missing(f"{what[0].upper()}{what[1:]}", 400)
        except MissingPage as error:
            if "table" in request.query_params:
                return _plain_text(str(error), 404)
            return Frame(request, view, telemetry_path, path).missing(str(error))

    def listed(name: str) -> Route:
        def make(request: Request) -> Response:
            try:
                return list_answer(request, view, name)
            except BadRequest as error:
                return json_answer({"error": str(error)}, 400)

        async def answer(request: Request) -> Response:
            return await made(request, f"/{name}", lambda: make(request))

        return Route(f"{API}/{name}", answer)

    async def correlation(request: Request) -> Response:
        return _answer(request, view.fleet_status, None)

    async def part(request: Request) -> Response:
        return _answer(request, view.fleet_status, PARTS[request.url.path.removeprefix(f"{API}/")])

    async def description(_: Request) -> Response:
        return JSONResponse(openapi(PARTS))

    async def style(_: Request) -> Response:
        return Response(STYLE, media_type="text/css", headers={"Cache-Control": "private, max-age=300"})

    async def script(_: Request) -> Response:
        return Response(SCRIPT, media_type="text/javascript", headers={"Cache-Control": "private, max-age=300"})

    async def icon(_: Request) -> Response:
        return Response(ICON, media_type="image/svg+xml", headers={"Cache-Control": "private, max-age=86400"})

    lists = ("causes", "nodes", "jobs", "incidents", "unknowns", "timeline", "targets")
    routes = [page("/", overview), page("/findings", findings_page), page("/quality", quality_page)]
    routes += [page("/search", search_page)]
    routes += [page("/unknowns", unknowns_page), page("/nodes", nodes_page)]
    routes += [page(f"/{name}", partial(list_page, name=name)) for name in lists if name not in ("unknowns", "nodes")]
    routes += [
        entity("/causes", cause_page), entity("/nodes", node_page), entity("/jobs", job_page),
        entity("/incidents", incident_page), entity("/findings", finding_page),
    ]  # fmt: skip
    routes += [Route("/static/fleet.css", style), Route("/static/fleet.js", script)]
    routes += [Route("/static/icon.svg", icon), Route(f"{API}/openapi.json", description)]
    routes += [listed(name) for name in lists]
    routes += [Route(f"{API}/correlation", correlation), *(Route(f"{API}/{name}", part) for name in PARTS)]
    return service_router(view, telemetry_path, routes)


def _state(view: FleetView) -> PageState:
    """Changes with everything that pages show."""
    fleet_status, store = view.fleet_status, view.store
    health: tuple[Hashable, ...] = (fleet_status.failure, fleet_status.result is None)
    seen: tuple[Hashable, ...] = (fleet_status.tag, fleet_status.complete_time)
    if store:
        health += (store.status.last is None, store.status.failure)
        seen += (store.revision,)
    return PageState(health=health, seen=seen)


def _plain_text(text: str, status: int) -> Response:
    return PlainTextResponse(f"{printable(redact(text))}\n".encode(errors="backslashreplace"), status)


def _answer(request: Request, fleet_status: FleetStatus, keys: Sequence[str] | None) -> Response:
    """The last result, or some keys of it, and how old it is; 304 for a client that has it already."""
    refresh_state = _refresh_state(fleet_status)
    if fleet_status.result is None:
        return JSONResponse({"error": "there is no result yet", **refresh_state}, 503)
    # Weak: but for its age the answer is the same.
    headers = {
        "ETag": f'W/"{fleet_status.entity_tag}"',
        "Last-Modified": formatdate(fleet_status.changed, usegmt=True),
        "Cache-Control": "private, no-cache",
    }
    if _has_it(request, headers["ETag"], fleet_status.changed):
        return Response(status_code=304, headers=headers)
    result = fleet_status.to_json()
    chosen = result if keys is None else {key: result[key] for key in (*ALWAYS, *keys)}
    age = {"age_seconds": round(max(time.time() - fleet_status.result_time, 0.0), 3)}
    return Response(line({**age, **refresh_state, **chosen}), headers=headers, media_type="application/json")


def _refresh_state(fleet_status: FleetStatus) -> dict[str, Any]:
    failure = fleet_status.failure
    return {
        "refreshed": rfc3339(fleet_status.result_time) if fleet_status.result is not None else None,
        "last_complete": rfc3339(fleet_status.complete_time) if fleet_status.complete_time is not None else None,
        "last_failure": failure and {"time": rfc3339(failure.time), "reason": failure.reason, "what": failure.message},
    }


def _has_it(request: Request, tag: str, changed: float) -> bool:
    """Whether the client's copy is ours (RFC 9110 §13.1: with a tag the date is not looked at)."""
    if (tags := request.headers.get("if-none-match")) is not None:
        bare = tag.removeprefix("W/")
        return any(entry.strip() == "*" or entry.strip().removeprefix("W/") == bare for entry in tags.split(","))
    try:
        since = parsedate_to_datetime(request.headers["if-modified-since"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return False
    return int(changed) <= since
