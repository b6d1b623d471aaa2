"""An HTTP client for one request per connection, with one deadline for all of it. Ignores redirects and proxies.

The timeout of http.client starts again with each byte, so a server that sends a byte now and then could block its client.
"""

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

MAX_BODY = 64 << 10  # bytes of a response that are read: enough for a partial success and its message
_BUFFER = 64 << 10

Reason = Literal["connect", "tls", "timeout", "protocol"]


class RequestFailed(Exception):
    """A request without a complete response. `reason` is a metric label; the message contains no secret."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Response:
    """A server's response. Header names are lower case; of a longer body than allowed, it has the beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(
    method: Literal["GET", "POST", "PATCH"],
    url: Url,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    context: ssl.SSLContext | None,
    seconds: float,
    max_body: int = MAX_BODY,
    server_name: str | None = None,
) -> Response:
    """Send a request and return the response, of its body up to `max_body` bytes. Raises RequestFailed.

    server_name: what the certificate must name; None: the host.
    """
    deadline = time.monotonic() + seconds
    defaults = {"Host": url.authority, "User-Agent": f"gpufault/{__version__}", "Connection": "close"}
    length = {} if method == "GET" else {"Content-Length": str(len(body))}
    head = h11.Request(method=method, target=url.target, headers=[*{**defaults, **headers, **length}.items()])
    try:
        with _connect(url, context, deadline, server_name) as connection:
            return _exchange(connection, head, body, max_body, deadline)
    except TimeoutError:
        raise RequestFailed("timeout", f"no complete response within {seconds:g} s") from None
    except (OSError, h11.ProtocolError) as error:
        raise RequestFailed("protocol", str(error) or "the connection ended") from None


def check_connection(url: Url, *, context: ssl.SSLContext | None, seconds: float) -> None:
    """Connect, with a TLS handshake if the URL asks for it, and disconnect. Raises RequestFailed."""
    try:
        _connect(url, context, time.monotonic() + seconds).close()
    except TimeoutError:
        raise RequestFailed("timeout", f"no connection within {seconds:g} s") from None


def _connect(
    url: Url, context: ssl.SSLContext | None, deadline: float, server_name: str | None = None
) -> socket.socket:
    plain = _connect_tcp(url, deadline)
    if not url.tls:
        return plain
    try:
        plain.settimeout(_remaining(deadline))
        return (context or ssl.create_default_context()).wrap_socket(plain, server_hostname=server_name or url.host)
    except TimeoutError:
        plain.close()
        raise
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        plain.close()
        message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        raise RequestFailed("tls", f"TLS: {message or 'the connection ended'}") from None


def _connect_tcp(url: Url, deadline: float) -> socket.socket:
    """Connect to the first address of the host that accepts; the time left is shared among the addresses."""
    try:
        addresses = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestFailed("connect", f"{url.host}: {getattr(error, 'strerror', None) or 'no such host'}") from None
    failure: OSError = OSError("no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_remaining(deadline) / (len(addresses) - number))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    if isinstance(failure, TimeoutError):
        raise failure
    raise RequestFailed("connect", failure.strerror or str(failure)) from None


def _exchange(connection: socket.socket, head: h11.Request, body: bytes, max_body: int, deadline: float) -> Response:
    http = h11.Connection(h11.CLIENT)
    parts = [http.send(head), *([http.send(h11.Data(body))] if body else []), http.send(h11.EndOfMessage())]
    with contextlib.suppress(
        BrokenPipeError, ConnectionResetError
    ):  # the server may respond before it has read everything
        _send(connection, b"".join(part or b"" for part in parts), deadline)
    return _read_response(connection, http, max_body, deadline)


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        connection.settimeout(_remaining(deadline))
        view = view[connection.send(view[:_BUFFER]) :]


def _read_response(connection: socket.socket, http: h11.Connection, max_body: int, deadline: float) -> Response:
    status, headers, body = 0, dict[str, str](), bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            connection.settimeout(_remaining(deadline))
            http.receive_data(connection.recv(_BUFFER))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) >= max_body:
                return Response(status, headers, bytes(body[:max_body]))
        elif not isinstance(event, h11.InformationalResponse):
            return Response(status, headers, bytes(body))


def _remaining(deadline: float) -> float:
    """Seconds until a deadline. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
