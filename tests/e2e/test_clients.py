"""Attacks on the real daemon by clients that can do nothing but connect."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import bcrypt
import pytest

from tests.e2e.conftest import Guarded, Node, eventually

pytestmark = pytest.mark.heavy

TIMEOUT = 30.0
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
CHUNKED = b"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon without TLS and users, shared by the tests of this module."""
    node = Node(tmp_path_factory.mktemp("node"), [])
    node.start()
    yield node
    node.kill()


def connect(node: Node) -> socket.socket:
    host, _, port = node.address.partition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def answers(sock: socket.socket, *parts: bytes) -> bytes:
    """Everything until the daemon ends the connection. Between two parts it has answered once."""
    received = b""
    try:
        for number, part in enumerate(parts):
            received += sock.recv(65536) if number else b""
            sock.sendall(part)
        while more := sock.recv(65536):
            received += more
    except ConnectionError:  # it ended the connection before it had read all
        pass
    return received


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("request_line", [b"POST /-/healthy HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n"])
def test_an_invalid_chunk_is_refused_without_a_line_in_the_log(node: Node, request_line: bytes, at_once: bool) -> None:
    logged = node.log.stat().st_size
    request, chunk = request_line + CHUNKED, b"-1\r\n"
    for _ in range(20):
        with connect(node) as sock:
            received = answers(sock, request + chunk) if at_once else answers(sock, request, chunk)
            assert received.count(b"HTTP/1.1 ") == 1
            assert received.startswith(b"HTTP/1.1 400 ") or not at_once
    assert node.get("/-/healthy")
    assert node.log.stat().st_size == logged


@pytest.mark.parametrize(
    "header",
    [b"X: " + b"a" * 100_000, b"X:" + b" " * 100_000 + b"a", b"a: b\r\n" * 16_000 + b"c: d"],
    ids=["one", "blanks", "many"],
)
@pytest.mark.parametrize("before", [b"", b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "second"])
def test_a_header_over_16_kib_is_refused_even_if_it_is_complete(node: Node, header: bytes, before: bytes) -> None:
    with connect(node) as sock:
        received = answers(sock, before + REQUEST + header + b"\r\n\r\n")
    assert received.count(b"HTTP/1.1 200 ") == (1 if before else 0)
    assert received.count(b"HTTP/1.1 400 ") <= 1  # a reset may overtake it
    with connect(node) as sock:
        assert answers(sock, REQUEST + b"X: " + b"a" * 15_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


# Passwords.


def as_ada(password: str) -> bytes:
    return b"Authorization: Basic " + base64.b64encode(f"ada:{password}".encode()) + b"\r\n\r\n"


@pytest.mark.parametrize("different", [1, 40])
def test_a_right_password_gets_through_a_flood_of_wrong_ones_from_its_own_address(
    make_node: Callable[..., Node], tmp_path: Path, different: int
) -> None:
    """40 clients send wrong passwords without a pause until the right one, which the daemon has never seen, is answered."""
    hashed = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(8)).decode()
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{ada: {hashed}}}")
    node = make_node()
    node.wrap = ("env", f"GPUFAULT_WEB_CONFIG_FILE={tmp_path}/web.yaml")
    node.start()
    answered = False
    refused: list[bytes] = []

    def flood(number: int) -> None:
        while not answered:
            with connect(node) as sock:
                refused.append(answers(sock, REQUEST + as_ada(f"wrong {number % different}"))[9:12])

    with ThreadPoolExecutor(40) as clients:
        done = [clients.submit(flood, number) for number in range(40)]
        try:
            eventually(lambda: len(refused) > 40)
            with connect(node) as sock:
                right = answers(sock, REQUEST + as_ada("open sesame"))
        finally:
            answered = True
        for client in done:
            client.result()
    assert right.startswith(b"HTTP/1.1 200 ")
    assert b"200" not in refused


# TLS.


def hello() -> bytes:
    """The first message of a client."""
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(received, to_send, server_hostname="localhost").do_handshake()
    return to_send.read()


def mib(node: Node, what: str) -> float:
    """VmRSS: what is resident now; VmHWM: the most that ever was."""
    assert node.process is not None
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{node.process.pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.parametrize(
    ("sent", "count", "a_second"),
    [
        pytest.param(hello()[:7], 900, 1000, id="seven bytes"),
        pytest.param(hello(), 900, 1000, id="a hello"),
        pytest.param(hello()[:7], 5000, 100, id="for a minute", marks=pytest.mark.heavy),
    ],
)
def test_memory_of_half_open_tls_connections_is_bounded_and_freed(
    make_node: Callable[..., Node], guarded: Guarded, tmp_path: Path, sent: bytes, count: int, a_second: int
) -> None:
    node = make_node()
    node.wrap = guarded.environment
    node.start()
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    login = base64.b64encode(":".join(("sre", "open sesame")).encode())

    def scrape() -> bytes:
        with connect(node) as sock, trust.wrap_socket(sock, server_hostname="127.0.0.1") as tls:
            return answers(tls, REQUEST + b"Authorization: Basic " + login + b"\r\n\r\n")

    assert scrape().startswith(b"HTTP/1.1 200 ")
    before = mib(node, "VmRSS")
    held: deque[socket.socket] = deque()
    began = time.monotonic()
    try:
        for number in range(count):
            held.append(connect(node))
            with suppress(ConnectionError):  # it was ended for a later one
                held[-1].sendall(sent)
            if len(held) > 300:
                held.popleft().close()
            if number % 300 == 299:
                assert scrape().startswith(b"HTTP/1.1 200 ")
            time.sleep(max(0.0, began + number / a_second - time.monotonic()))
    finally:
        for sock in held:
            sock.close()
    assert mib(node, "VmHWM") < 128
    eventually(lambda: mib(node, "VmRSS") < before + 10, seconds=60)
