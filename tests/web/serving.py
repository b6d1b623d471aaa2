"""The real server for tests: a node in plain reach behind it, and clients that may misbehave."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.config import packs
from exporter.core.authoring.explanation import Explanation, explanation_of
from exporter.core.diagnosis.clear_request import ClearRequest
from exporter.core.diagnosis.node_faults import Fault
from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.sources.boot import moment
from exporter.web.active_config import ActiveConfig
from exporter.web.interface import NodeFaults, Overview, RecentIncident, SourceState
from exporter.web.readers import AUTHENTICATED_ONLY, CLIENT, Client, Readers
from exporter.web.routes import router
from exporter.web.serving import RunningServer, serve

SNAPSHOT = MetricsSnapshot((Family("gpufault_incidents_total", "counter", "Incidents.", ("signature",), {("x",): 2}),))
ADMINISTRATOR = Client("kim", may_read=True, may_change=True)
TIMEOUT = 30.0  # far above what loopback takes on a loaded machine: a hang is a failure and not a wait


@dataclass
class Node:
    """A daemon as the web sees it, with everything in plain reach of a test."""

    metrics: MetricsSnapshot = SNAPSHOT
    alive: bool = True
    reasons: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    on_reload: Callable[[], list[str]] = list
    sources: tuple[SourceState, ...] = ()
    incidents: tuple[RecentIncident, ...] = ()
    faults: tuple[Fault, ...] = ()
    causes: tuple[tuple[str, int], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    cleared: tuple[Fault, ...] = ()
    asked: list[ClearRequest] = field(default_factory=list)
    journal_folder: Path = Path("/nonexistent")
    name: str = "gpu-07"

    def snapshot(self) -> MetricsSnapshot:
        return self.metrics

    def not_ready(self) -> list[str]:
        return self.reasons

    def impaired(self) -> list[str]:
        return self.off

    def healthy(self) -> bool:
        return self.alive

    def reload(self) -> list[str]:
        return self.on_reload()

    def title(self, name: str) -> str:
        return f"Title of {name}"

    def explanation(self, name: str) -> Explanation | None:
        catalogue = packs.load()
        return explanation_of(catalogue, name, lambda signature: packs.outcomes(catalogue, signature))

    def node_faults(self) -> NodeFaults:
        return NodeFaults(
            node=self.name, now=moment(time.time()), faults=self.faults, cleared=self.cleared, blind=tuple(self.reasons)
        )

    def clear_faults(self, request: ClearRequest) -> list[dict[str, Any]]:
        request.recovery(self.faults, moment(time.time()))
        self.asked.append(request)
        return [{"gpu": request.gpu}]

    def overview(self) -> Overview:
        return Overview(
            version="1.2.3", node=self.name, sources=self.sources, incidents=self.incidents, faults=self.faults,
            causes=self.causes, facts=self.facts,
        )  # fmt: skip


@contextmanager
def serving(
    node: Node,
    *addresses: str,
    path: str = "/metrics",
    active_config: ActiveConfig | None = None,
    readers: Readers = AUTHENTICATED_ONLY,
    client: Client | None = None,
    on_config_change: Callable[[], None] = lambda: None,
) -> Iterator[RunningServer]:
    """client: who every client is, whatever it shows."""
    app = router(node, path, readers)
    app = as_client(client, app) if client else app
    running = serve(addresses or ["127.0.0.1:0"], app, active_config, on_config_change=on_config_change)
    try:
        yield running
    finally:
        running.close(TIMEOUT)


def as_client(client: Client, app: ASGIApp) -> ASGIApp:
    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CLIENT: client}, receive, send)

    return known


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    server: RunningServer,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    whence: str = "127.0.0.1",
    body: bytes | None = None,
) -> Answer:
    """One request on a connection of its own, from a loopback address of one's choice."""
    host, _, port = server.addresses[0].rpartition(":")
    options = {"port": int(port), "timeout": TIMEOUT, "source_address": (whence, 0)}
    made = HTTPSConnection("localhost", context=tls, **options) if tls else HTTPConnection(host, **options)
    with closing(made) as connection:
        connection.request(method, path, body, headers=headers or {})
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def connect(server: RunningServer, send: bytes = b"", *, whence: str = "127.0.0.1") -> socket.socket:
    host, _, port = server.addresses[0].rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=TIMEOUT, source_address=(whence, 0))
    sock.sendall(send)
    return sock


def received(sock: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def ends(step: Callable[[], None]) -> bool:
    """Whether the server ends the connection while a client does something again and again."""
    try:
        for _ in range(100_000):
            step()
    except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
        return True
    return False
