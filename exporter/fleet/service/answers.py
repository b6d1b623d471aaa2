"""What the fleet service answers at which path: its page, and the JSON of its last result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, Router

from exporter.core.diagnosis.records import line, rfc3339
from exporter.fleet.service.page import page
from exporter.fleet.service.status import FleetStatus
from exporter.web.interface import ServiceView
from exporter.web.routes import service_router

API = "/api/v1"
PARTS: Mapping[str, Sequence[str]] = {
    "findings": ("findings", "locations", "not_enough_data"),
    "lemons": ("lemons",),
    "exposed": ("exposed",),
}
ALWAYS = ("window", "nodes", "incidents", "complete", "gaps")  # what each answer is of, and what it lacks


class FleetView(ServiceView, Protocol):
    """What the fleet service lets be seen."""

    @property
    def standing(self) -> FleetStatus:
        """The last result, and how refreshes went."""

    @property
    def source(self) -> str:
        """What is read, for people."""


def router(view: FleetView, telemetry_path: str) -> Router:
    """The fleet service's application. Raises InvalidInput for a path that cannot be meant."""

    async def landing(_: Request) -> Response:
        return HTMLResponse(page(view.standing, view.source, view.not_ready(), telemetry_path, now=time.time()))

    async def correlation(request: Request) -> Response:
        return _answer(request, view.standing, None)

    async def part(request: Request) -> Response:
        return _answer(request, view.standing, PARTS[request.url.path.removeprefix(f"{API}/")])

    pages = [Route("/", landing), Route(f"{API}/correlation", correlation)]
    pages += [Route(f"{API}/{name}", part) for name in PARTS]
    return service_router(view, telemetry_path, pages)


def _answer(request: Request, standing: FleetStatus, keys: Sequence[str] | None) -> Response:
    """The last result, or some keys of it, and how old it is; 304 for a client that has it already."""
    told = _refreshed(standing)
    if standing.result is None:
        return JSONResponse({"error": "there is no result yet", **told}, 503)
    # Weak: but for its age the answer is the same.
    headers = {
        "ETag": f'W/"{standing.entity_tag}"',
        "Last-Modified": formatdate(standing.changed, usegmt=True),
        "Cache-Control": "private, no-cache",
    }
    if _has_it(request, headers["ETag"], standing.changed):
        return Response(status_code=304, headers=headers)
    found = standing.result
    chosen = found if keys is None else {key: found[key] for key in (*ALWAYS, *keys)}
    age = {"age_seconds": round(max(time.time() - standing.result_time, 0.0), 3)}
    return Response(line({**age, **told, **chosen}), headers=headers, media_type="application/json")


def _refreshed(standing: FleetStatus) -> dict[str, Any]:
    failure = standing.failure
    return {
        "refreshed": rfc3339(standing.result_time) if standing.result is not None else None,
        "last_complete": rfc3339(standing.complete_time) if standing.complete_time is not None else None,
        "last_failure": failure and {"time": rfc3339(failure.time), "reason": failure.reason, "what": failure.told},
    }


def _has_it(request: Request, tag: str, changed: float) -> bool:
    """Whether the client's copy is ours (RFC 9110 §13.1: with a tag the date is not looked at)."""
    if (tags := request.headers.get("if-none-match")) is not None:
        bare = tag.removeprefix("W/")
        return any(each.strip() == "*" or each.strip().removeprefix("W/") == bare for each in tags.split(","))
    try:
        since = parsedate_to_datetime(request.headers["if-modified-since"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return False
    return int(changed) <= since
