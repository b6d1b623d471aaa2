"""Runs the web server: listens, accepts connections and passes them to uvicorn, in one thread.

See `exporter.web.routes` for the paths, `exporter.web.guard` for authentication and `exporter.web.connections` for limits.
"""

import asyncio
import contextlib
import logging
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from exporter.core.text.phrases import printable
from exporter.core.text.problems import InvalidInput, Problem
from exporter.process.own_log import RateLimitedLog
from exporter.web import control_socket
from exporter.web.active_config import ActiveConfig
from exporter.web.connections import HEADER_BYTES, MAX_CONNECTIONS, Connection, ConnectionSlots
from exporter.web.guard import Guard
from exporter.web.tls import certificate_filter
from exporter.web.tls_connection import TlsConnection

KEEP_ALIVE_SECONDS = 5  # scrapes are at least 15 s apart: keeping a connection between them gains nothing
CONFIG_CHECK_SECONDS = 1  # between checks for changes of the web configuration
BACKLOG = 1024  # connections that the kernel queues; a client retries a dropped one only after a second
# How long a thread waits for the interpreter's lock before it requests it (sys.setswitchinterval). Each time another thread
# takes the lock, the wait starts again. With Python's 5 ms, a scrape of a busy daemon waited some fifty times, up to 1 s.
SWITCH_SECONDS = 0.0002
NO_DESCRIPTOR_SECONDS = 0.1  # without a free descriptor accept() fails at once, so wait before the next call
MAX_ERROR_CHARS = 400  # an error may quote what a client sent
_LOGGERS = ("asyncio", "uvicorn.error")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running web server. `addresses`: where it listens, as HOST:PORT (`[::1]:9873` for IPv6)."""

    addresses: tuple[str, ...]
    _server: uvicorn.Server
    _thread: threading.Thread
    _state_dir: Path | None

    def close(self, timeout: float) -> None:
        """Stop listening, and wait at most `timeout` seconds for responses in progress."""
        self._server.should_exit = True
        self._thread.join(timeout)
        if self._state_dir:
            control_socket.remove(self._state_dir)


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)


def serve(
    addresses: Sequence[str],
    app: ASGIApp,
    active_config: ActiveConfig | None = None,
    *,
    node: str = "",
    state_dir: Path | None = None,
    log_error: Callable[[str], None] = _print_error,
    on_config_change: Callable[[], None] = lambda: None,
) -> RunningServer:
    """Start a web server for `app` in a thread. Port 0 means any free port.

    node: whose tokens are accepted.
    state_dir: where to listen on the control socket too.
    log_error: called from another thread with each internal error of the server, as one line.
    on_config_change: called from another thread when the web configuration's files have changed and were read again.
    Raises InvalidInput for an invalid address, OSError for one that is not available.
    """
    active_config = active_config or ActiveConfig()

    checks: list[threading.Thread] = []  # the latest one, which hangs where a file's file system does

    def check() -> None:
        if active_config.reload_if_changed():
            on_config_change()

    async def check_config() -> None:
        if not (checks and checks[-1].is_alive()):
            checks[:] = [threading.Thread(target=check, name="web configuration", daemon=True)]
            checks[-1].start()

    sockets = _listen(addresses)
    bound = tuple(_address_of(sock) for sock in sockets)
    if state_dir:
        try:
            sockets.append(control_socket.listen(state_dir))
        except OSError as error:  # a file system without sockets
            log_error(f"no control socket; `gpufault clear` works over HTTP only: {error}")
    config = uvicorn.Config(
        Guard(app, active_config, node),
        http=Connection,
        loop="asyncio",
        lifespan="off",
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="error",  # at lower levels, each port scan logs a warning
        access_log=False,
        proxy_headers=False,
        server_header=False,  # but the Date header stays: RFC 9110 §6.6.1 requires it
        limit_concurrency=MAX_CONNECTIONS + 1,  # uvicorn refuses at its limit, not above it
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_notify=CONFIG_CHECK_SECONDS,
        callback_notify=check_config if active_config.is_file else None,
    )
    config.load()
    redirect_errors(log_error)
    server = _Server(config, sockets, active_config)
    thread = threading.Thread(target=_run, args=(server, sockets), name="web", daemon=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    thread.start()
    return RunningServer(bound, server, thread, state_dir)


def _run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    try:
        server.run([])  # off the main thread, uvicorn leaves the signals to the daemon
    finally:
        for sock in sockets:
            sock.close()


# Listening: in the caller's thread, so that the caller gets the error for an address in use.


def _listen(addresses: Sequence[str]) -> list[socket.socket]:
    problems = [
        Problem("--web.listen-address", 1, 1, address, "not HOST:PORT; use :9873 for all addresses of this host")
        for address in addresses
        if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > 65535
    ]
    if problems:
        raise InvalidInput(problems)
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(sock := _listen_at(address))
            # Accepted sockets inherit it. A response is written in parts: without it, the second waits for the client's
            # delayed ACK, 40 ms. asyncio sets it only where the socket's protocol is given, and `create_server` gives none.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    except OSError as error:
        for sock in sockets:
            sock.close()
        reason = str(error.strerror).partition(" (while")[0]  # create_server adds the address, as a tuple
        message = f"cannot listen on {address}: {reason}; free it or set another --web.listen-address"
        raise OSError(error.errno, message) from None
    return sockets


# :9873, node-7.example.org:9873, [fe80::1%eth0]:9873. A longer label raises UnicodeError in the resolver.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+(%\w+)?\]|([\w-]{1,63}(\.|(?=:)))*):[0-9]{1,5}", re.ASCII)


def _listen_at(host_port: str) -> socket.socket:
    host, _, port = host_port.rpartition(":")
    host = host.strip("[]")
    if host in ("", "::") and socket.has_dualstack_ipv6():  # as in Go's net.Listen, and so in node_exporter
        return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    choices = socket.getaddrinfo(host or "0.0.0.0", int(port), type=socket.SOCK_STREAM)  # noqa: S104  # user's choice
    family, _, _, _, address = choices[0]
    return socket.create_server(address, family=family)


def _address_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


# Connections are accepted here, since asyncio's servers accept without limit, wait a minute for a TLS handshake, and never
# load a new certificate.


class _Server(uvicorn.Server):
    """uvicorn's server, but with our own code to accept connections."""

    def __init__(self, config: uvicorn.Config, sockets: Sequence[socket.socket], active_config: ActiveConfig) -> None:
        super().__init__(config)
        self._listening = sockets
        self._active_config = active_config
        self._slots = ConnectionSlots()
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
            except OSError:  # no free descriptor, or the client has disconnected
                await self._slots.wait_for_end(loop, NO_DESCRIPTOR_SECONDS)
                continue
            with contextlib.suppress(OSError), contextlib.ExitStack() as on_error:  # the client has disconnected
                on_error.enter_context(sock)
                await self._slots.wait_for_slot(loop)  # new connections wait in the kernel's queue
                connection = Connection(self.config, self.server_state, {}, loop, sock=sock, slots=self._slots)
                on_error.callback(self._slots.release, connection)
                protocol = connection if sock.family == socket.AF_UNIX else self._with_tls(connection)
                await loop.connect_accepted_socket(lambda: protocol, sock)  # noqa: B023  # called before the next round
                on_error.pop_all()

    def _with_tls(self, connection: Connection) -> asyncio.Protocol:
        """The connection wrapped in TLS, if TLS is configured."""
        settings = self._active_config.settings
        if settings.context is None:
            return connection
        return TlsConnection(
            settings.context, connection, certificate_filter(settings.tls.client_allowed_sans if settings.tls else [])
        )


def redirect_errors(log: Callable[[str], None]) -> None:
    """Log errors of asyncio and uvicorn as one short line each, rate limited, since clients may cause them."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_OneLineHandler(RateLimitedLog(log, time.monotonic))]
        logger.propagate = False


class _OneLineHandler(logging.Handler):
    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-1:]
            message += "".join(f" at {frame.filename}:{frame.lineno}" for frame in frames) + f": {error!r}"
        self._log(f"web server: {printable(message)[:MAX_ERROR_CHARS]}; please report it")
