"""The paths that the web server serves. `exporter.web.guard` authenticates requests before they arrive here."""

import re
from collections.abc import Callable, Iterable, Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, Router

from exporter.core.text.phrases import printable
from exporter.core.text.problems import InvalidInput, Problem
from exporter.core.text.redact import hide_secrets, redact
from exporter.metrics.exposition import Exposition
from exporter.web.faults_api import fault_routes
from exporter.web.incidents_api import incidents
from exporter.web.interface import NodeView, ServiceView
from exporter.web.journal_api import journal_routes
from exporter.web.page import SCRIPT, explanation_page, first_few, landing_page
from exporter.web.readers import AUTHENTICATED_ONLY, HOW_TO_CHANGE, Readers, client_of, is_from_web_page


def router(view: NodeView, telemetry_path: str, readers: Readers = AUTHENTICATED_ONLY) -> Router:
    """The node daemon's application. Raises InvalidInput for an invalid path."""

    async def landing(request: Request) -> Response:
        shown = readers.may_read(request.scope)
        overview, not_ready, impaired = view.overview(), view.not_ready(), view.impaired()
        return HTMLResponse(
            landing_page(overview, not_ready, telemetry_path, impaired, title=view.title, with_lines=shown)
        )

    async def explained(request: Request) -> Response:
        name = request.path_params["name"]
        explanation = view.explanation(name)
        if explanation is None:
            return _text([f"no signature or root cause {name!r}"], 404)
        return HTMLResponse(explanation_page(name, explanation, view.title))

    async def script(_: Request) -> Response:
        headers = {"Cache-Control": "private, max-age=300"}
        return Response(SCRIPT.read_text(encoding="utf-8"), media_type="text/javascript", headers=headers)

    routes = [
        Route("/", landing),
        Route("/static/node.js", script),
        Route("/signatures/{name}", explained),
        Route("/api/v1/incidents", incidents(view, readers)),
        *fault_routes(view),
        *journal_routes(view, readers),
    ]
    return service_router(view, telemetry_path, routes)


def service_router(view: ServiceView, telemetry_path: str, pages: Sequence[Route]) -> Router:
    """The paths that all services share (metrics, health, reload), and a service's own pages. Raises InvalidInput."""
    if not re.fullmatch(r"/[\w./~-]*", telemetry_path, re.ASCII):
        problem = "not a path; use letters, digits and -._~/ such as /metrics"
        raise InvalidInput([Problem("--web.telemetry-path", 1, 1, telemetry_path, problem)])
    exposition = Exposition(view.snapshot)

    async def metrics(request: Request) -> Response:
        accept, accept_encoding = request.headers.get("accept"), request.headers.get("accept-encoding")
        body, content_type, encoding = exposition.render(accept, accept_encoding)
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        return Response(body, headers=headers | ({"content-encoding": encoding} if encoding else {}))

    async def healthy(_: Request) -> Response:
        if view.healthy():
            return PlainTextResponse("gpufault is healthy.\n")
        return _text(["the main loop is not responding"], 503)

    async def ready(_: Request) -> Response:
        reasons, impaired = view.not_ready(), first_few(view.impaired())
        # Impairments are reported with 200: a job's log can cause them, and must not make a node look unmonitored.
        return _text([*reasons, *impaired], 503) if reasons else _text(["gpufault is ready.", *impaired], 200)

    def reload(request: Request) -> Response:  # not async: it blocks, so starlette runs it in a thread
        if is_from_web_page(request):
            return _text(["web pages cannot request a reload; use curl -X POST, or send SIGHUP"], 403)
        if not client_of(request.scope).may_change:
            return _text([f"{HOW_TO_CHANGE}; use `systemctl reload`, or send SIGHUP"], 403)
        problems = view.reload()
        return _text(problems, 500, hide=hide_secrets) if problems else PlainTextResponse("reloaded.\n")

    return Router(
        [
            Route(telemetry_path, metrics),  # first: at "/" it replaces the landing page, as in node_exporter
            *pages,
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", reload, methods=["POST", "PUT"]),  # as Prometheus
        ],
        redirect_slashes=False,
    )


def _text(lines: Iterable[str], status: int, *, hide: Callable[[str], str] = redact) -> Response:
    text = "".join(f"{printable(hide(line))}\n" for line in lines)
    return PlainTextResponse(text.encode(errors="backslashreplace"), status)
