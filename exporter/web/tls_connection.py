"""TLS between a plain asyncio transport and the protocol that it carries. Knows nothing of HTTP.

asyncio's own TLS allocates 256 KiB for a connection before the client's first byte. A failed handshake leaves them in a
reference cycle until the garbage collector walks its oldest generation: 100 half-open connections a second took 250 MiB
in 10 s. Here a connection costs nothing before its first byte, and its memory is freed when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

HANDSHAKE_BYTES = 64 * 1024  # from a client: a hello has 2 kB, a chain of certificates up to 20 kB
PIECE_BYTES = 16 * 1024  # passed to OpenSSL at once: a record of TLS holds no more, and its buffers never shrink


class _Session(NamedTuple):
    tls: ssl.SSLObject
    received: ssl.MemoryBIO
    to_send: ssl.MemoryBIO


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """The server's side of one TLS connection: the protocol of `transport`, and the transport of `carried`.

    `carried` is told of the connection at once, so that its deadline includes the handshake, and of data only after the
    handshake with a client whose certificate `accepts` allows (`SSLSocket.getpeercert` has its form).
    """

    def __init__(
        self, context: ssl.SSLContext, carried: asyncio.Protocol, accepts: Callable[[dict[str, Any] | None], bool]
    ) -> None:
        super().__init__()
        self._context = context
        self._carried = carried
        self._accepts = accepts
        self._session: _Session | None = None  # from the client's first byte to the end of the connection
        self._handshake_done = False
        self._handshake_bytes = 0
        self._reading = True
        self._closing = False

    # The protocol of the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._carried.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._session is None:
            received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._session = _Session(self._context.wrap_bio(received, to_send, server_side=True), received, to_send)
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self._handshake_bytes += 0 if self._handshake_done else len(piece)
            if self._handshake_bytes > HANDSHAKE_BYTES:
                self.abort()
            if self._closing:
                return
            self._session.received.write(piece)
            self._advance(self._session)

    def eof_received(self) -> None:
        """The plain transport closes itself then. Without a close_notify before, a request that is cut has no end."""

    def pause_writing(self) -> None:
        self._carried.pause_writing()

    def resume_writing(self) -> None:
        self._carried.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._session = None
        self._carried.connection_lost(exc)
        self._carried = asyncio.Protocol()  # whose transport this is: a cycle would wait for the garbage collector

    # The transport of the carried protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._session is None or not self._handshake_done:
            return
        plain, sealed = memoryview(data), []
        try:
            for start in range(0, len(plain), PIECE_BYTES):
                self._session.tls.write(plain[start : start + PIECE_BYTES])
                sealed.append(self._session.to_send.read())
        except ssl.SSLError:
            self.abort()
            return
        self._transport.write(b"".join(sealed))

    def pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading:
            return
        self._reading = True
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._read_on)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what was written and a close_notify. The client's own close_notify is not waited for (RFC 8446 §6.1)."""
        if self._closing:
            return
        self._closing = True
        if self._session is not None:
            with contextlib.suppress(ssl.SSLError):  # the client's is missing, or the handshake was not done
                self._session.tls.unwrap()
            self._send(self._session)
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._context if name == "sslcontext" else self._transport.get_extra_info(name, default)

    def _read_on(self) -> None:
        if self._session is not None and not self._closing:
            self._advance(self._session)

    def _advance(self, session: _Session) -> None:
        """Do what the bytes received so far allow."""
        try:
            if not self._handshake_done:
                session.tls.do_handshake()
                self._handshake_done = True
                if not self._accepts(session.tls.getpeercert()):
                    self.abort()
            while self._reading and not self._closing:
                data = session.tls.read(PIECE_BYTES)
                if not data:  # close_notify
                    self.close()
                    return
                self._carried.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # not TLS, no common version, no certificate, or not what was sealed
            self.close()  # an alert says why
        if not self._closing:
            self._send(session)

    def _send(self, session: _Session) -> None:
        if session.to_send.pending:
            self._transport.write(session.to_send.read())
