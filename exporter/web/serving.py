"""The daemon's HTTP side: a landing page, the metrics, health, readiness and reload, served from one thread.

What is shown comes from a WebView, the metrics' text from `exporter.exposition`. Nothing is decided or counted here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Protocol

import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.core.problems import InvalidInput, Problem
from exporter.exposition import Exposition, MetricsSnapshot

# Each is a descriptor that log files then lack, and 4 kB. A scraper or a probe needs one; 200 left open by a port scan
# or a broken client must leave room for them.
MAX_CONNECTIONS = 256
IDLE_SECONDS = 10  # a whole request must have come by then; a scrape takes milliseconds, its usual timeout is 10 s
KEEP_ALIVE_SECONDS = 5  # scrapes are 15 s apart and more: keeping a connection from one to the next wins nothing
HEADER_BYTES = 16 * 1024  # Prometheus sends 0.5 kB; a browser's cookies for a host can come to 8 kB


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """One source on the landing page. `why_down` says what to do when it is not up."""

    name: str
    up: bool
    why_down: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentIncident:
    """One incident on the landing page. `path` is that of the log it was read from."""

    time: float
    signature: str
    root_cause: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the landing page shows; `incidents` are the last few, newest first."""

    version: str
    node: str
    sources: tuple[SourceState, ...]
    incidents: tuple[RecentIncident, ...]


class WebView(Protocol):
    """What the daemon lets be seen. Called from the web thread: all but `reload` must answer at once."""

    def snapshot(self) -> MetricsSnapshot:
        """The metrics as last committed."""

    def not_ready(self) -> list[str]:
        """Why this node is not watched in full yet, a sentence each; empty when it is."""

    def healthy(self) -> bool:
        """Whether the main loop is alive."""

    def reload(self) -> list[str]:
        """Have the main loop reload, and wait for it, a bounded time. The problems found; empty when all is well.

        Called from a thread of its own, perhaps from several at once.
        """

    def overview(self) -> Overview:
        """What the landing page shows."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server at work. `addresses` are those it really has, as HOST:PORT (`[::1]:9873` for IPv6)."""

    addresses: tuple[str, ...]
    _server: uvicorn.Server
    _thread: threading.Thread

    def close(self, timeout: float) -> None:
        """Stop listening and wait at most `timeout` seconds for answers under way; later ones end with the process."""
        self._server.should_exit = True
        self._thread.join(timeout)


def serve(addresses: Sequence[str], view: WebView, telemetry_path: str) -> RunningServer:
    """Answer at each of `addresses` from now on, in a thread of its own. Port 0 takes any that is free.

    Raises InvalidInput for an address or path that cannot be meant, OSError for an address that cannot be had.
    """
    app = Router(_routes(view, telemetry_path), redirect_slashes=False)
    sockets = _listen(addresses)
    config = uvicorn.Config(
        app,
        http=_Connection,
        loop="asyncio",
        lifespan="off",
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="error",  # below that, each port scan would be a warning
        access_log=False,
        proxy_headers=False,
        server_header=False,  # the date stays: RFC 9110 §6.6.1 asks for it
        headers=list(_HEADERS.items()),
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    config.load()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_run, args=(server, sockets), name="web", daemon=True)
    bound = tuple(_written(sock) for sock in sockets)
    thread.start()
    return RunningServer(bound, server, thread)


def _run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    try:
        server.run(sockets)  # off the main thread, uvicorn leaves the signals to the daemon
    finally:
        for sock in sockets:  # uvicorn 0.38 leaves them open when it is told to end before it has begun
            sock.close()


# Listening: done in the caller's thread, so that an address that is taken is the caller's error and no line in a log.


def _listen(addresses: Sequence[str]) -> list[socket.socket]:
    problems = [
        Problem("--web.listen-address", 1, 1, address, "is not HOST:PORT; write :9873 for every address of this host")
        for address in addresses
        if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > 65535
    ]
    if problems:
        raise InvalidInput(problems)
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(_listen_at(address))
    except OSError as error:
        for sock in sockets:
            sock.close()
        reason = str(error.strerror).partition(" (while")[0]  # create_server adds the address, as a tuple
        what = f"cannot listen on {address}: {reason}; free it or give another --web.listen-address"
        raise OSError(error.errno, what) from None
    return sockets


# :9873, node-7.example.org:9873, [fe80::1%eth0]:9873. A label that no resolver takes would be a UnicodeError.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+(%\w+)?\]|([\w-]{1,63}(\.|(?=:)))*):[0-9]{1,5}", re.ASCII)


def _listen_at(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("", "::") and socket.has_dualstack_ipv6():  # as Go's net.Listen, so as node_exporter
        return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    found = socket.getaddrinfo(host or "0.0.0.0", int(port), type=socket.SOCK_STREAM)  # noqa: S104  # all: asked for
    family, _, _, _, place = found[0]
    return socket.create_server(place, family=family)


def _written(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


class _Connection(H11Protocol):
    """uvicorn's HTTP/1.1, with a bound on how many there are and how long one may stay without a whole request.

    By itself uvicorn times only the pause after an answer, so a silent or half-sent request stays for ever; and over
    limit_concurrency it refuses requests, but still accepts connections.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._deadline = self.loop.call_later(IDLE_SECONDS, self._end_if_idle)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._deadline.cancel()
        self._deadline = self.loop.call_later(IDLE_SECONDS, self._end_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _end_if_idle(self) -> None:
        no_request_yet = self.cycle is None
        if no_request_yet or self.cycle.response_complete:
            self.transport.abort()  # close() would wait for a client that reads nothing


# What is answered.


def _routes(view: WebView, telemetry_path: str) -> list[Route]:
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
        reasons = view.not_ready()
        return _text(reasons, 503) if reasons else PlainTextResponse("gpufault is ready.\n")

    def reload(_: Request) -> Response:  # not async: it waits, so starlette gives it a thread of its own
        problems = view.reload()
        return _text(problems, 500) if problems else PlainTextResponse("reloaded.\n")

    async def landing(_: Request) -> Response:
        page = _page(view.overview(), view.not_ready(), telemetry_path)
        return HTMLResponse(page.encode(errors="backslashreplace"))

    return [
        Route(telemetry_path, metrics),  # first: at "/" it takes the landing page's place, as in node_exporter
        Route("/", landing),
        Route("/-/healthy", healthy),
        Route("/-/ready", ready),
        Route("/-/reload", reload, methods=["POST"]),
    ]


def _text(lines: Iterable[str], status: int) -> Response:
    text = "".join(f"{line}\n" for line in lines)
    return PlainTextResponse(text.encode(errors="backslashreplace"), status)


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p, ul { margin: .5rem 0 } nav a { margin-right: 1rem }
table { width: 100%; border-collapse: collapse }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8885 }
td { overflow-wrap: break-word } td:last-child { overflow-wrap: anywhere }
time { white-space: nowrap; font-variant-numeric: tabular-nums }
@media (max-width: 40rem) {
  thead { display: none } td { display: block; border: 0; padding: 0 }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid #8885 }
}
"""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'sha256-{}'; {}".format(
        base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode(),
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",  # default-src does not stand for these
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def _page(overview: Overview, not_ready: Sequence[str], telemetry_path: str) -> str:
    reasons = "".join(f"<li>{escape(reason)}" for reason in not_ready)
    state = f"<p>Not ready:\n<ul>{reasons}</ul>" if reasons else "<p>Ready."
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpufault on {escape(overview.node)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>gpufault on {escape(overview.node)}</h1>
<p>Version {escape(overview.version)}.
{state}
<nav>
<a href="{escape(telemetry_path)}">Metrics</a>
<a href="/-/healthy">Health</a>
<a href="/-/ready">Readiness</a>
</nav>
<h2>Sources</h2>
{_table(("Source", "State"), [_source_row(source) for source in overview.sources])}
<h2>Last incidents</h2>
{_table(("Time (UTC)", "Signature", "Root cause", "Log"), [_incident_row(i) for i in overview.incidents])}
</body>
</html>
"""


def _source_row(source: SourceState) -> list[str]:
    return [escape(source.name), "up" if source.up else escape(f"down: {source.why_down}")]


def _incident_row(incident: RecentIncident) -> list[str]:
    at = datetime.fromtimestamp(incident.time, UTC)
    when = f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M:%S}</time>'
    return [when, *map(escape, (incident.signature, incident.root_cause, incident.path))]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    if not rows:
        return "<p>None."
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
