"""Listening and accepting: sockets of our own in front of uvicorn's HTTP/1.1, in one thread.

What is answered is in `exporter.web.routes`, who may ask in `exporter.web.guard`, and the bounds of a connection in
`exporter.web.connections`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from exporter.core.text.problems import InvalidInput, Problem
from exporter.web.active_config import ActiveConfig
from exporter.web.connections import HEADER_BYTES, MAX_CONNECTIONS, Connection, Places
from exporter.web.errors import limit_errors
from exporter.web.guard import Guard
from exporter.web.interface import WebView
from exporter.web.routes import router
from exporter.web.tls import allows
from exporter.web.tls_connection import TlsConnection

KEEP_ALIVE_SECONDS = 5  # scrapes are 15 s apart and more: keeping a connection from one to the next wins nothing
LOOK_SECONDS = 1  # between two looks at the web configuration's files
BACKLOG = 1024  # connections that wait in the kernel; it drops more, and the client comes again only after a second
# A thread that waits for the interpreter's lock may demand it only once nobody took it for so long. Python's 5 ms never pass
# without a system call in a busy daemon's loop, so that a scrape, which waits some fifty times, took up to a second.
SWITCH_SECONDS = 0.0002
NO_DESCRIPTOR_SECONDS = 0.1  # without a free one accept() fails at once, so wait before the next call


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server at work. `addresses` are those it really has, as HOST:PORT (`[::1]:9873` for IPv6)."""

    addresses: tuple[str, ...]
    _server: uvicorn.Server
    _thread: threading.Thread

    def close(self, timeout: float) -> None:
        """Stop listening and wait at most `timeout` seconds for responses in progress; later ones end with the process."""
        self._server.should_exit = True
        self._thread.join(timeout)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def serve(
    addresses: Sequence[str],
    view: WebView,
    telemetry_path: str,
    in_force: ActiveConfig | None = None,
    *,
    say: Callable[[str], None] = _say,
    after_look: Callable[[], None] = lambda: None,
) -> RunningServer:
    """Answer what the node daemon does; see `serve_app`. Raises InvalidInput for a path that cannot be meant, too."""
    return serve_app(addresses, router(view, telemetry_path), in_force, say=say, after_look=after_look)


def serve_app(
    addresses: Sequence[str],
    app: ASGIApp,
    in_force: ActiveConfig | None = None,
    *,
    say: Callable[[str], None] = _say,
    after_look: Callable[[], None] = lambda: None,
) -> RunningServer:
    """Answer at each of `addresses` from now on, in a thread of its own. Port 0 takes any that is free.

    `say` is called, from another thread, with each internal error of the server, one line each.
    `after_look` is called, from another thread, when the web configuration's files have changed and were read again.
    Raises InvalidInput for an address that cannot be meant, OSError for one that cannot be had.
    """
    in_force = in_force or ActiveConfig()

    async def look() -> None:
        if await asyncio.to_thread(in_force.look):
            after_look()

    sockets = _listen(addresses)
    config = uvicorn.Config(
        Guard(app, in_force),
        http=Connection,
        loop="asyncio",
        lifespan="off",
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="error",  # below that, each port scan would be a warning
        access_log=False,
        proxy_headers=False,
        server_header=False,  # the date stays: RFC 9110 §6.6.1 asks for it
        limit_concurrency=MAX_CONNECTIONS + 1,  # uvicorn refuses at its limit, not above it
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_notify=LOOK_SECONDS,
        callback_notify=look if in_force.is_file else None,
    )
    config.load()
    limit_errors(say)
    server = _Server(config, sockets, in_force)
    thread = threading.Thread(target=_run, args=(server, sockets), name="web", daemon=True)
    bound = tuple(_written(sock) for sock in sockets)
    sys.setswitchinterval(SWITCH_SECONDS)
    thread.start()
    return RunningServer(bound, server, thread)


def _run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    try:
        server.run([])  # off the main thread, uvicorn leaves the signals to the daemon
    finally:
        for sock in sockets:
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


# Connections: accepted here, since asyncio's own servers accept without bound, wait a minute for a TLS handshake, and
# keep the certificate that they began with.


class _Server(uvicorn.Server):
    """uvicorn's server, with sockets that are accepted from here."""

    def __init__(self, config: uvicorn.Config, sockets: Sequence[socket.socket], in_force: ActiveConfig) -> None:
        super().__init__(config)
        self._listening = sockets
        self._in_force = in_force
        self._places = Places()
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting = [asyncio.create_task(self._accept(sock)) for sock in self._listening]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for sock in self._listening:
            sock.close()
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.listen(BACKLOG)
        listening.setblocking(False)
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor is left, or the client has gone already
                await self._places.after_one(loop, NO_DESCRIPTOR_SECONDS)
                continue
            with contextlib.suppress(OSError), contextlib.ExitStack() as on_error:  # the client has gone already
                on_error.enter_context(sock)
                await self._places.one(loop)  # meanwhile further ones wait in the kernel's queue
                connection = Connection(self.config, self.server_state, {}, loop, sock=sock, places=self._places)
                on_error.callback(self._places.give_back, connection)
                protocol = self._secured(connection)
                await loop.connect_accepted_socket(lambda: protocol, sock)  # noqa: B023  # called before the next round
                on_error.pop_all()

    def _secured(self, connection: Connection) -> asyncio.Protocol:
        """The connection behind TLS, if that is asked for now."""
        settings = self._in_force.settings
        if settings.context is None:
            return connection
        tls = settings.config.tls_server_config
        return TlsConnection(settings.context, connection, allows(tls.client_allowed_sans if tls else []))
