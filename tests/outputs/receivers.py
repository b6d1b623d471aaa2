"""A real HTTP server on loopback that takes what outputs send, and behaves as badly as a test wants."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.e2e.conftest import eventually


@dataclass(frozen=True)
class Request:
    """What came in: names of headers are lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def ids(self) -> list[str]:
        """The incidents of a webhook's request."""
        return [incident["id"] for incident in self.json["incidents"]]


# What a server does with a request: an answer's status, headers and body, or something worse.
Behaviour = Callable[["Handler"], None]


def answers(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    def behave(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def hangs(handler: Handler) -> None:
    """Takes the request and never says a word."""
    handler.server.receiver.closing.wait()


def drips(handler: Handler) -> None:
    """Sends a byte now and then: no single wait is long, and the answer never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not handler.server.receiver.closing.wait(0.02):
        handler.wfile.write(b"x")


def half_closes(handler: Handler) -> None:
    """Ends its side without an answer, and keeps the other one open."""
    handler.connection.shutdown(socket.SHUT_WR)
    handler.server.receiver.closing.wait()


def resets(handler: Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def babbles(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


def cuts_short(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body)
        with receiver.lock:
            receiver.requests.append(request)
            behave = receiver.next_ones.pop(0) if receiver.next_ones else receiver.behaviour
        self.close_connection = True
        receiver.before_answer(request)
        behave(self)

    def log_message(self, *_what: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a daemon that was killed


@dataclass
class Receiver:
    """What has come in, and what is done with the next requests."""

    behaviour: Behaviour = field(default_factory=lambda: answers(200))
    next_ones: list[Behaviour] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    before_answer: Callable[[Request], None] = lambda _request: None
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/logs"

    def got(self, count: int, seconds: float = 30.0) -> list[Request]:
        """The requests, when there are so many."""
        eventually(lambda: len(self.requests) >= count or None, seconds)
        return self.requests

    @property
    def ids(self) -> list[str]:
        """Every incident that came to a webhook, in order, as often as it came."""
        with self.lock:
            return [incident for request in self.requests for incident in request.ids]


@contextmanager
def receiving(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver(scheme="https" if context else "http")
    server = Server(("127.0.0.1", port), Handler)
    server.receiver = receiver
    receiver.port = server.server_address[1]
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
