"""Clients that misbehave, against the real server: whoever scrapes meanwhile must get an answer.

Bounds are in seconds where loopback takes milliseconds: an order is held here, not a speed.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.web import connections as web
from exporter.web.active_config import ActiveConfig
from exporter.web.serving import RunningServer
from tests.web.serving import ADMINISTRATOR, TIMEOUT, Node, ask, connect, ends, received, serving

pytestmark = pytest.mark.heavy

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a TLS hello
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ActiveConfig, ssl.SSLContext]:
    """A server's settings with TLS, and a client that trusts it."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "web.yaml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.pem}")
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return ActiveConfig(tmp_path / "web.yaml"), client


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTT", REQUEST], ids=["silent", "half sent", "unread"])
@pytest.mark.parametrize("count", [200, 2 * web.MAX_CONNECTIONS])
def test_idle_connections_do_not_hamper_a_scrape(node: Node, sent: bytes, count: int) -> None:
    with serving(node) as server, ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connect(server, sent))
        assert ask(server, "/metrics").status == 200


@pytest.mark.parametrize("sent", [b"", HELLO], ids=["silent", "half a hello"])
def test_half_open_tls_does_not_hamper_a_scrape(
    node: Node, tls: tuple[ActiveConfig, ssl.SSLContext], sent: bytes
) -> None:
    active_config, client = tls
    with serving(node, active_config=active_config) as server, ExitStack() as stack:
        for _ in range(2 * web.MAX_CONNECTIONS):
            stack.enter_context(connect(server, sent))
        assert ask(server, "/metrics", tls=client).status == 200


def test_a_slow_handshake_is_ended(
    monkeypatch: pytest.MonkeyPatch, node: Node, tls: tuple[ActiveConfig, ssl.SSLContext]
) -> None:
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.05)
    with serving(node, active_config=tls[0]) as server, connect(server, HELLO) as sock:
        assert received(sock) == b""  # returns because the server ends it


def test_at_the_bound_the_longest_idle_connection_makes_room(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(web, "YIELD_SECONDS", 0.01)
    with serving(node) as server, ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(3)]
        assert ask(server, "/metrics").status == 200
        assert received(held[0]) == b""


def test_at_the_bound_nobody_who_is_being_answered_is_ended(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(web, "YIELD_SECONDS", 0.01)
    begun, done = threading.Barrier(3), threading.Event()

    def wait_for_main_loop() -> list[str]:
        begun.wait(TIMEOUT)
        return [] if done.wait(TIMEOUT) else ["the main loop does not answer"]

    node.on_reload = wait_for_main_loop
    reload = b"POST /-/reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with serving(node, client=ADMINISTRATOR) as server, connect(server, reload) as one, connect(server, reload) as two:
        begun.wait(TIMEOUT)
        with connect(server, HEALTHY) as third:
            done.set()
            assert [received(sock)[9:12] for sock in (one, two, third)] == [b"200"] * 3


def test_a_thousand_scrapes_at_once_are_all_answered(node: Node) -> None:
    with serving(node, client=ADMINISTRATOR) as server, ExitStack() as stack:
        socks = [stack.enter_context(connect(server, REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
                 for _ in range(1000)]  # fmt: skip
        for sock in socks:
            sock.settimeout(30)
        with ThreadPoolExecutor(8) as readers:
            answers = list(readers.map(received, socks))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\nHost:",
        b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\nGET /metr",
        b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a request", "nothing after an answer", "half a request after an answer", "half a body"],
)
def test_a_connection_without_a_whole_request_is_ended(
    monkeypatch: pytest.MonkeyPatch, node: Node, sent: bytes
) -> None:
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.05)
    with serving(node, client=ADMINISTRATOR) as server, connect(server, sent) as sock:
        answers = received(sock)  # returns because the server ends it
        assert answers.count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")


def test_a_client_that_sends_on_without_reading_is_ended(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.05)
    large = Family("gpufault_large", "gauge", "x" * 1_000_000, (), {(): 1.0})
    node.metrics = MetricsSnapshot((large,))  # no kernel holds many of these for a client
    with serving(node) as server, connect(server) as sock:
        assert ends(lambda: sock.sendall(REQUEST))
        assert ask(server, "/-/healthy").status == 200


def test_a_header_sent_byte_by_byte_buys_no_time(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.2)
    with serving(node) as server, connect(server, b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ") as sock:
        answer = select.poll()  # select() takes no descriptor above 1023
        answer.register(sock, select.POLLIN)

        def drip() -> None:
            sock.sendall(b"a")
            answer.poll(10)

        assert ends(drip)


def test_a_request_that_takes_long_is_not_idle(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.05)
    never = threading.Event()
    node.on_reload = lambda: ["waited"] if not never.wait(0.2) else []
    with serving(node, client=ADMINISTRATOR) as server:
        assert ask(server, "/-/reload", "POST").text == "waited\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (web.HEADER_BYTES + 1),
        b"GET /" + b"a" * (web.HEADER_BYTES + 1),
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * web.HEADER_BYTES,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        REQUEST + b"\x00\xff\r\n\r\n" * 100,
        b"\n" * 100_000,
    ],
    ids=["a header without end", "a path without end", "headers without end", "a TLS hello", "no Host",
         "HTTP/2", "garbage behind a request", "newlines"],
)  # fmt: skip
def test_what_is_no_request_is_refused_without_a_line_in_the_log(
    node: Node, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with serving(node) as server:
        with connect(server) as sock:
            try:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has been ended already
            else:
                assert received(sock).split(b"HTTP/1.1 ")[-1][:4] in (b"400 ", b"404 ", b"")  # a reset may overtake it
        assert ask(server, "/metrics").status == 200
    assert capfd.readouterr() == ("", "")


def test_a_request_whose_length_is_told_in_two_ways_ends_its_connection(node: Node) -> None:
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with (
        serving(node, client=ADMINISTRATOR) as server,
        connect(server, b"POST /-/reload HTTP/1.1\r\nHost: x\r\n" + lengths + REQUEST) as sock,
    ):
        answers = received(sock)
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1") == 1


def test_when_no_descriptor_is_left_the_next_scrape_waits_and_is_answered(
    monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    import asyncio

    accept: Callable[..., object] = asyncio.SelectorEventLoop.sock_accept
    failures = iter([OSError(24, "Too many open files")] * 3)

    async def sometimes(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> object:
        if failure := next(failures, None):
            raise failure
        return await accept(loop, sock)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", sometimes)
    with serving(node) as server:
        assert ask(server, "/metrics").status == 200


def test_where_descriptors_end_before_the_places_the_longest_idle_connection_makes_room(
    monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    import asyncio

    monkeypatch.setattr(web, "YIELD_SECONDS", 0.01)
    accept: Callable[..., object] = asyncio.SelectorEventLoop.sock_accept
    servers: list[RunningServer] = []

    async def of_three(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> object:
        while not servers:
            await asyncio.sleep(0)
        if _held(servers[0]) >= 3:
            raise OSError(24, "Too many open files")
        return await accept(loop, sock)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", of_three)
    with serving(node) as server, ExitStack() as stack:
        servers.append(server)
        for _ in range(6):
            stack.enter_context(connect(server))
        assert ask(server, "/metrics").status == 200


def test_one_client_at_the_bound_of_its_passwords_holds_up_nobody_else(node: Node, tmp_path: Path) -> None:
    import base64

    import bcrypt

    (tmp_path / "web.yaml").write_text(
        f"basic_auth_users: {{ada: {bcrypt.hashpw(b'secret', bcrypt.gensalt(10)).decode()}}}"
    )

    def as_ada(password: str) -> bytes:
        return base64.b64encode(f"ada:{password}".encode())

    def wrong(number: int) -> bytes:
        return REQUEST.replace(b"\r\n\r\n", b"\r\nAuthorization: Basic " + as_ada(f"{number}") + b"\r\n\r\n")

    with serving(node, active_config=ActiveConfig(tmp_path / "web.yaml")) as server, ExitStack() as stack:
        flood = [stack.enter_context(connect(server, wrong(n), whence="127.0.0.2")) for n in range(100)]
        headers = {"Authorization": "Basic " + as_ada("secret").decode()}
        assert ask(server, "/metrics", headers=headers, whence="127.0.0.3").status == 200
        answered = [sock for sock in flood if _has_answer(sock, b"401")]
        assert (
            len(answered) < 16
        )  # as many checks as one address may have waiting: they were not all gone through first


def _has_answer(sock: socket.socket, status: bytes) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(12, socket.MSG_PEEK)[9:] == status
    except BlockingIOError:
        return False


def test_a_server_holds_no_more_connections_than_its_bound(node: Node) -> None:
    with serving(node) as server, ExitStack() as stack:
        for _ in range(3 * web.MAX_CONNECTIONS):
            stack.enter_context(connect(server))
        assert ask(server, "/metrics").status == 200
        assert _held(server) <= web.MAX_CONNECTIONS


def _held(server: RunningServer) -> int:
    return len(server._server.server_state.connections)
