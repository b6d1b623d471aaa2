"""Server-side TLS for asyncio that uses little memory per connection. Independent of HTTP.

asyncio's own TLS allocates 256 KiB for a connection before the client's first byte. After a failed handshake they stay in
a reference cycle until a full garbage collection: 100 half-open connections a second took 250 MiB in 10 s. Here a
connection allocates nothing before the first byte, and its memory is freed when it ends. CPython fixed the cycle in 3.11.8 and
3.12.2 (gh-109534); older ones, such as Debian 12's 3.11.2, are supported.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

HANDSHAKE_BYTES = 64 * 1024  # limit for a client: a hello takes 2 kB, a chain of certificates up to 20 kB
PIECE_BYTES = 16 * 1024  # passed to OpenSSL at once: the size of a TLS record, since its buffers never shrink


class _Session(NamedTuple):
    tls: ssl.SSLObject
    received: ssl.MemoryBIO
    to_send: ssl.MemoryBIO


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """The server's side of one TLS connection, between a plain transport and an inner protocol.

    The inner protocol learns of the connection at once, so that its timeout includes the handshake. It gets data only
    after a handshake with a client whose certificate is accepted.
    """

    def __init__(
        self, context: ssl.SSLContext, inner: asyncio.Protocol, accepts: Callable[[dict[str, Any] | None], bool]
    ) -> None:
        """accepts: decides on a client's certificate, in the form of `SSLSocket.getpeercert`."""
        super().__init__()
        self._context = context
        self._inner = inner
        self._accepts = accepts
        self._session: _Session | None = None  # from the client's first byte to the end of the connection
        self._handshake_done = False
        self._handshake_bytes = 0
        self._reading = True
        self._closing = False

    # Callbacks of the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(self)

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
        """Do nothing: the plain transport closes itself. A request without close_notify may be incomplete, so is ignored."""

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._session = None
        self._inner.connection_lost(exc)
        self._inner = asyncio.Protocol()  # breaks the reference cycle with the inner protocol

    # The transport of the inner protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._session is None or not self._handshake_done:
            return
        plain, encrypted = memoryview(data), []
        try:
            for start in range(0, len(plain), PIECE_BYTES):
                self._session.tls.write(plain[start : start + PIECE_BYTES])
                encrypted.append(self._session.to_send.read())
        except ssl.SSLError:
            self.abort()
            return
        self._transport.write(b"".join(encrypted))

    def pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading:
            return
        self._reading = True
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._continue_reading)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send pending data and a close_notify. Does not wait for the client's close_notify (RFC 8446 §6.1)."""
        if self._closing:
            return
        self._closing = True
        if self._session is not None:
            with contextlib.suppress(ssl.SSLError):  # the client sent none, or the handshake is not done
                self._session.tls.unwrap()
            self._send(self._session)
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":  # empty unless the client showed one
            return self._session.tls.getpeercert() if self._session is not None and self._handshake_done else default
        return self._context if name == "sslcontext" else self._transport.get_extra_info(name, default)

    def _continue_reading(self) -> None:
        if self._session is not None and not self._closing:
            self._advance(self._session)

    def _advance(self, session: _Session) -> None:
        """Continue the handshake and pass on decrypted data, as far as the received bytes allow."""
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
                self._inner.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # not TLS, no common version, no certificate, or corrupt data
            self.close()  # sends an alert with the reason
        if not self._closing:
            self._send(session)

    def _send(self, session: _Session) -> None:
        if session.to_send.pending:
            self._transport.write(session.to_send.read())
