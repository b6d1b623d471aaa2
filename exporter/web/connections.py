"""HTTP connections with bounds: on their number, their time and the size of a request.

uvicorn and h11 speak HTTP/1.1; this module adds the bounds that they lack. Listening is in `exporter.web.serving`.
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

# Each is a descriptor that log files then lack; one with TLS whose client does not read its answer holds 1 MiB, buffers
# of OpenSSL and asyncio and the text of /metrics. A scraper or a probe needs one.
MAX_CONNECTIONS = 128
IDLE_SECONDS = 10  # a whole request must have come by then; a scrape takes milliseconds, its usual timeout is 10 s
YIELD_SECONDS = 0.25  # at the bound: for so long a client may have its place before it has to give it to the next
HEADER_BYTES = 16 * 1024  # Prometheus sends 0.5 kB; a browser's cookies for a host can come to 8 kB
# Ended connections after which their memory is handed back, where none is open and where some are: scrapes come to 64 in
# a quarter of an hour, a flood to 1000 in 10 s.
ENDED_WHEN_IDLE, ENDED_WHEN_BUSY = 64, 1000

_END_OF_HEADER = re.compile(b"\n\r?\n")  # h11's own


@dataclass(eq=False)
class Places:
    """The connections there are, the oldest first: at most MAX_CONNECTIONS. Lives in one event loop."""

    free: asyncio.Event = field(default_factory=asyncio.Event)
    taken: dict[Connection, None] = field(default_factory=dict)
    ended: int = 0  # since their memory was handed back

    async def one(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until a place is free: of those that wait for their client, the oldest connection is ended for it."""
        while len(self.taken) >= MAX_CONNECTIONS:
            ended = self.take_back(loop.time())
            self.free.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if ended else YIELD_SECONDS / 10):
                    await self.free.wait()

    async def after_one(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Wait until a place was given back, for which one is taken back if that can be, or until so much time is over."""
        self.take_back(loop.time())
        self.free.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.free.wait()

    def take_back(self, now: float) -> bool:
        """End the oldest of those that wait for their client, if one has had its time."""
        old = itertools.takewhile(lambda connection: now - connection.since >= YIELD_SECONDS, self.taken)
        return any(not connection.has_spoken() and connection.end_if_idle() for connection in old)

    def give_back(self, connection: Connection) -> None:
        """Free the place, and from time to time the memory of ended connections: asyncio leaves a reference cycle of 2 kB for
        each, old enough for the garbage collector to look at it only after ten thousands.
        """
        self.taken.pop(connection, None)
        self.free.set()
        self.ended += 1
        if self.ended >= (ENDED_WHEN_BUSY if self.taken else ENDED_WHEN_IDLE):
            self.ended = 0
            malloc_tuning.release_garbage()


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1, with a bound on how long it may stay without a whole request, or with an answer unread.

    By itself uvicorn times only the pause after an answer, so a silent, half-sent or unread request would stay open. Has
    a place from the beginning.
    """

    def __init__(self, *uvicorns: Any, sock: socket.socket, places: Places) -> None:
        super().__init__(*uvicorns)
        self.conn = _Requests(h11.SERVER, HEADER_BYTES)
        self.since = self.loop.time()
        self._sock = sock
        self._places = places
        self._deadline: asyncio.TimerHandle | None = None
        places.taken[self] = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._wait_for_client()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)
        self._places.give_back(self)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with 400, or end the connection if an answer has begun. uvicorn would answer twice, and would let
        the application answer after this: each raises an error in h11, which it logs with a traceback.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
        super().send_400_response(msg)

    def has_spoken(self) -> bool:
        """Whether its client has sent what we have not come to read: on a busy machine that takes us longer than it."""
        if self._sock.fileno() < 0 or (self._deadline and self.flow.write_paused):
            return False
        readable = select.poll()
        readable.register(self._sock, select.POLLIN)
        return bool(readable.poll(0))

    def end_if_idle(self) -> bool:
        """End the connection, unless we are the ones who are waited for."""
        if self._deadline is None:
            return False  # it begins at this moment: there is no transport yet
        no_request_yet = self.cycle is None
        idle = no_request_yet or self.cycle.response_complete or self.flow.write_paused or self.transport.is_closing()
        if idle:
            self.transport.abort()  # close() would wait for a client that reads nothing
        return bool(idle)

    def _wait_for_client(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(IDLE_SECONDS, self._time_is_up)

    def _time_is_up(self) -> None:
        if not self.end_if_idle():
            self._wait_for_client()


class _Requests(h11.Connection):
    """h11's connection; it bounds complete headers, too, where h11 bounds only incomplete ones."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            received, _ = self.trailing_data
            if len(received) > HEADER_BYTES and not _END_OF_HEADER.search(received, 0, HEADER_BYTES):
                raise h11.RemoteProtocolError("header too long", error_status_hint=431)
        return super().next_event()
