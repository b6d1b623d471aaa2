"""Limits on HTTP connections: their number, their idle time and the size of a request's header.

uvicorn and h11 implement HTTP/1.1; this module adds the limits that they lack. `exporter.web.serving` accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import select
import socket
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.process import malloc_tuning
from exporter.web.readers import TRANSPORT

# Each takes a file descriptor. With TLS, one whose client does not read the response holds 1 MiB: buffers of OpenSSL and
# asyncio, and the text of /metrics. A scraper or a probe needs one connection.
MAX_CONNECTIONS = 128
IDLE_SECONDS = 10  # to receive a complete request; a scrape takes milliseconds, and its usual timeout is 10 s
YIELD_SECONDS = 0.25  # age at which an idle connection may be ended for a new one, if all slots are taken
HEADER_BYTES = 16 * 1024  # Prometheus sends 0.5 kB; a browser's cookies for a host can take 8 kB
# Number of ended connections after which their memory is released, without and with open ones. Scrapes reach 64 in a
# quarter of an hour, a flood reaches 1000 in 10 s.
ENDED_WHEN_IDLE, ENDED_WHEN_BUSY = 64, 1000

_END_OF_HEADER = re.compile(b"\n\r?\n")  # as in h11


@dataclass(eq=False)
class ConnectionSlots:
    """Limits the number of open connections to MAX_CONNECTIONS. For use in one event loop."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    connections: dict[Connection, None] = field(default_factory=dict)  # oldest first
    ended: int = 0  # connections since memory was last released

    async def wait_for_slot(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until a slot is free. Ends the oldest idle connection if all are taken."""
        while len(self.connections) >= MAX_CONNECTIONS:
            ended = self.end_oldest_idle(loop.time())
            await self._wait_for_release(None if ended else YIELD_SECONDS / 10)

    async def wait_for_end(self, loop: asyncio.AbstractEventLoop, max_seconds: float) -> None:
        """Wait until a connection has ended. Ends the oldest idle one, if any."""
        self.end_oldest_idle(loop.time())
        await self._wait_for_release(max_seconds)

    async def _wait_for_release(self, max_seconds: float | None) -> None:
        self.released.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_seconds):
                await self.released.wait()

    def end_oldest_idle(self, now: float) -> bool:
        """End the oldest connection that waits for its client, if it is older than YIELD_SECONDS. True if one was ended."""
        old = itertools.takewhile(lambda connection: now - connection.opened_at >= YIELD_SECONDS, self.connections)
        return any(not connection.has_unread_data() and connection.end_if_idle() for connection in old)

    def release(self, connection: Connection) -> None:
        """Free the slot of an ended connection, and from time to time the memory of ended connections.

        asyncio leaves a reference cycle of 2 kB for each. By itself, the garbage collector would find them only after
        tens of thousands.
        """
        self.connections.pop(connection, None)
        self.released.set()
        self.ended += 1
        if self.ended >= (ENDED_WHEN_BUSY if self.connections else ENDED_WHEN_IDLE):
            self.ended = 0
            malloc_tuning.release_garbage()


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 connection, ended after IDLE_SECONDS without a complete request or with an unread response.

    uvicorn itself limits only the pause after a response. A connection takes its slot when it is created.
    """

    def __init__(self, *args: Any, sock: socket.socket, slots: ConnectionSlots) -> None:
        """args: those of H11Protocol."""
        super().__init__(*args)
        self.conn = _BoundedHeaders(h11.SERVER, HEADER_BYTES)
        self.opened_at = self.loop.time()
        self._sock = sock
        self._slots = slots
        self._idle_timer: asyncio.TimerHandle | None = None
        slots.connections[self] = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.app_state = {TRANSPORT: transport}
        self._restart_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer:
            self._idle_timer.cancel()
        super().connection_lost(exc)
        self._slots.release(self)

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP with 400, or end the connection if a response has started.

        uvicorn would respond twice, or let the application respond after this. Both are errors in h11, logged as tracebacks.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
        super().send_400_response(msg)

    def has_unread_data(self) -> bool:
        """Whether the client has sent data that we have not read yet, as on a busy machine."""
        if self._sock.fileno() < 0 or (self._idle_timer and self.flow.write_paused):
            return False
        readable = select.poll()
        readable.register(self._sock, select.POLLIN)
        return bool(readable.poll(0))

    def end_if_idle(self) -> bool:
        """End the connection if it waits for its client; False if the client waits for our response."""
        if self._idle_timer is None:
            return False  # not connected to its transport yet
        no_request_yet = self.cycle is None
        idle = no_request_yet or self.cycle.response_complete or self.flow.write_paused or self.transport.is_closing()
        if idle:
            self.transport.abort()  # close() would wait for a client that does not read
        return bool(idle)

    def _restart_timer(self) -> None:
        if self._idle_timer:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(IDLE_SECONDS, self._on_timeout)

    def _on_timeout(self) -> None:
        if not self.end_if_idle():
            self._restart_timer()


class _BoundedHeaders(h11.Connection):
    """h11's connection with a limit on complete headers too; h11 limits only incomplete ones."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            received, _ = self.trailing_data
            if len(received) > HEADER_BYTES and not _END_OF_HEADER.search(received, 0, HEADER_BYTES):
                raise h11.RemoteProtocolError("header too long", error_status_hint=431)
        return super().next_event()
