"""One gRPC call without a request's fields over a Unix socket: HTTP/2 (RFC 9113) as far as that needs it.

Headers of the answer are not decoded: an answer without data is a failure, whatever its status says.
"""

import socket
import struct
import time
from pathlib import Path

MAX_ANSWER = 16 << 20  # bytes; the kubelet's own limit (podresources.DefaultMaxMsgSize)
MAX_FRAME = 16_384  # bytes; a server may send longer ones only if the client allows it
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_STREAM = 1
_WINDOW_SIZE = (1 << 31) - 1
_INITIAL_WINDOW = 4  # the setting's number


class CallFailed(Exception):
    """The server answered with an error, or not as gRPC does."""


def call(path: Path, method: str, *, timeout: float) -> bytes:
    """The message that a method without arguments returns. Raises OSError and CallFailed."""
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(_request(method))
        return _message(_answer(connection, deadline))


def _request(method: str) -> bytes:
    headers = [
        (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    ]  # fmt: skip
    block = b"".join(b"\x00" + _literal(name) + _literal(value) for name, value in headers)  # never indexed by HPACK
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _WINDOW_SIZE))
        + _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_SIZE - 65_535))
        + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
        + _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, 0))  # an empty message, not compressed
    )


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()  # shorter than 127, without Huffman's code


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _answer(connection: socket.socket, deadline: float) -> bytes:
    data = bytearray()
    while True:
        head = _exactly(connection, 9, deadline)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        if length > MAX_FRAME:
            raise CallFailed("not HTTP/2: a frame is too long")
        payload = _exactly(connection, length, deadline)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY and not data:
            raise CallFailed("the server closed the connection")
        elif stream == _STREAM and kind == _RST:
            raise CallFailed("the server reset the call")
        elif stream == _STREAM and kind == _DATA:
            padding = payload[0] if flags & _PADDED and payload else 0
            data += payload[1 : len(payload) - padding] if flags & _PADDED else payload
            if len(data) > MAX_ANSWER:
                raise CallFailed("the answer is too long")
        if stream == _STREAM and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return bytes(data)


def _message(data: bytes) -> bytes:
    if len(data) < 5:
        raise CallFailed("an error instead of a message")
    compressed, length = struct.unpack(">BI", data[:5])
    if compressed or len(data) != 5 + length:
        raise CallFailed("not one uncompressed message")
    return data[5:]


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    out = bytearray()
    while len(out) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left)
        part = connection.recv(min(count - len(out), 1 << 16))
        if not part:
            raise CallFailed("the connection ended early")
        out += part
    return bytes(out)
