"""What is answered at which path. Nothing is decided or counted here; who may ask is not known here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, Router

from exporter.core.text.printable import printable
from exporter.core.text.problems import InvalidInput, Problem
from exporter.core.text.redact import redact
from exporter.metrics.exposition import Exposition
from exporter.web.interface import ServiceView, WebView
from exporter.web.node_check import node_check
from exporter.web.page import first_few, landing_page


def router(view: WebView, telemetry_path: str) -> Router:
    """The node daemon's application. Raises InvalidInput for a path that cannot be meant."""

    async def landing(_: Request) -> Response:
        return HTMLResponse(landing_page(view.overview(), view.not_ready(), telemetry_path, view.impaired()))

    return service_router(view, telemetry_path, [Route("/", landing), Route("/api/v1/node-check", node_check(view))])


def service_router(view: ServiceView, telemetry_path: str, pages: Sequence[Route]) -> Router:
    """Metrics, health and reloading, which every service has, and pages of its own. Raises InvalidInput as `router`."""
    if not re.fullmatch(r"/[\w./~-]*", telemetry_path, re.ASCII):
        what = "is not a path; write one of letters, digits and -._~/ such as /metrics"
        raise InvalidInput([Problem("--web.telemetry-path", 1, 1, telemetry_path, what)])
    exposition = Exposition(view.snapshot)

    async def metrics(request: Request) -> Response:
        asked = request.headers
        body, content_type, encoding = exposition.render(asked.get("accept"), asked.get("accept-encoding"))
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        return Response(body, headers=headers | ({"content-encoding": encoding} if encoding else {}))

    async def healthy(_: Request) -> Response:
        if view.healthy():
            return PlainTextResponse("gpufault is healthy.\n")
        return _text(["the main loop does not answer"], 503)

    async def ready(_: Request) -> Response:
        reasons, impaired = view.not_ready(), first_few(view.impaired())
        # What a job's log is to blame for is said with 200: no job may have a node taken for one that is not monitored.
        return _text([*reasons, *impaired], 503) if reasons else _text(["gpufault is ready.", *impaired], 200)

    def reload(request: Request) -> Response:  # not async: it waits, so starlette gives it a thread of its own
        if _asked_by_a_page(request):
            return _text(["a web page may not ask for this; use curl -X POST, or send SIGHUP"], 403)
        problems = view.reload()
        return _text(problems, 500) if problems else PlainTextResponse("reloaded.\n")

    return Router(
        [
            Route(telemetry_path, metrics),  # first: at "/" it takes the landing page's place, as in node_exporter
            *pages,
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", reload, methods=["POST", "PUT"]),  # as Prometheus
        ],
        redirect_slashes=False,
    )


def _asked_by_a_page(request: Request) -> bool:
    """Whether a browser asks for a page's sake. None of our pages asks for a reload, so no origin is right, not even
    our own: it may be a foreign name that was made to lead here (DNS rebinding). Browsers send Origin with each POST.
    """
    return "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none"


def _text(lines: Iterable[str], status: int) -> Response:
    text = "".join(f"{printable(redact(line))}\n" for line in lines)
    return PlainTextResponse(text.encode(errors="backslashreplace"), status)
