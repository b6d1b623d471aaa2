"""One POST: a connection, a request, an answer, all within one time. Follows no redirect, asks no proxy.

The time is that of the whole request: a receiver that sends a byte now and then must not hold an output up for ever,
as it could with the time-outs of http.client, which begin anew with each byte.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import h11

from exporter import __version__
from exporter.net.url import Url

MAX_ANSWER = 64 << 10  # bytes of an answer that are looked at: a partial success and its message fit
_PIECE = 64 << 10

Reason = Literal["connect", "tls", "timeout", "protocol"]


class NoAnswer(Exception):
    """A request that came to nothing: why, in one word for a label, and in words that name no secret."""

    def __init__(self, reason: Reason, why: str) -> None:
        self.reason: Reason = reason
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said; names of headers are lower case, the body may be cut at MAX_ANSWER."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def post(
    url: Url, body: bytes, headers: Mapping[str, str], *, context: ssl.SSLContext | None, seconds: float
) -> Answer:
    """Send a request and take its answer. Raises NoAnswer."""
    deadline = time.monotonic() + seconds
    try:
        with _connected(url, context, deadline) as connection:
            return _exchange(connection, url, body, headers, deadline)
    except TimeoutError:
        raise NoAnswer("timeout", f"no whole answer within {seconds:g} s") from None
    except (OSError, h11.ProtocolError) as error:
        raise NoAnswer("protocol", f"{str(error) or 'the connection ended'}") from None


def reach(url: Url, *, context: ssl.SSLContext | None, seconds: float) -> None:
    """Connect, shake hands, and hang up. Raises NoAnswer."""
    try:
        _connected(url, context, time.monotonic() + seconds).close()
    except TimeoutError:
        raise NoAnswer("timeout", f"no connection within {seconds:g} s") from None


def _connected(url: Url, context: ssl.SSLContext | None, deadline: float) -> socket.socket:
    plain = _plain(url, deadline)
    if not url.tls:
        return plain
    try:
        plain.settimeout(_left(deadline))
        return (context or ssl.create_default_context()).wrap_socket(plain, server_hostname=url.host)
    except TimeoutError:
        plain.close()
        raise
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        plain.close()
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error) or "hung up"
        raise NoAnswer("tls", f"TLS: {why}") from None


def _plain(url: Url, deadline: float) -> socket.socket:
    """A connection to the first of the host's addresses that takes one; each has its part of the time."""
    try:
        addresses = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoAnswer("connect", f"{url.host}: {getattr(error, 'strerror', None) or 'no such host'}") from None
    refused: OSError = OSError("no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline) / (len(addresses) - number))
            connection.connect(address)
        except OSError as error:
            connection.close()
            refused = error
        else:
            return connection
    if isinstance(refused, TimeoutError):
        raise refused
    raise NoAnswer("connect", refused.strerror or str(refused)) from None


def _exchange(
    connection: socket.socket, url: Url, body: bytes, headers: Mapping[str, str], deadline: float
) -> Answer:  # fmt: skip
    http = h11.Connection(h11.CLIENT)
    ours = {"Host": url.authority, "User-Agent": f"gpufault/{__version__}", "Connection": "close"}
    request = h11.Request(
        method="POST", target=url.target, headers=[*{**ours, **headers, "Content-Length": str(len(body))}.items()]
    )
    parts = [http.send(part) for part in (request, h11.Data(body), h11.EndOfMessage())]
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it had read all
        _send(connection, b"".join(part or b"" for part in parts), deadline)
    return _answer(connection, http, deadline)


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        connection.settimeout(_left(deadline))
        view = view[connection.send(view[:_PIECE]) :]


def _answer(connection: socket.socket, http: h11.Connection, deadline: float) -> Answer:
    status, headers, body = 0, dict[str, str](), bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            connection.settimeout(_left(deadline))
            http.receive_data(connection.recv(_PIECE))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) >= MAX_ANSWER:
                return Answer(status, headers, bytes(body[:MAX_ANSWER]))
        elif not isinstance(event, h11.InformationalResponse):
            return Answer(status, headers, bytes(body))


def _left(deadline: float) -> float:
    """Seconds until a deadline. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
