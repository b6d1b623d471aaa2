"""HTTP over TLS works like plain HTTP, however the bytes are split, and bad clients are disconnected."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
import trustme

from exporter.metrics.exposition import Family, MetricsSnapshot
from exporter.web import connections
from exporter.web.active_config import ActiveConfig
from exporter.web.serving import RunningServer
from tests.web.serving import ADMINISTRATOR, Node, connect, ends, received, serving

GET = b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def active_config(tmp_path: Path) -> ActiveConfig:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "web.yaml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.pem}")
    return ActiveConfig(tmp_path / "web.yaml")


@pytest.fixture
def trust(active_config: ActiveConfig, tmp_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))


def secured(server: RunningServer, trust: ssl.SSLContext) -> ssl.SSLSocket:
    return trust.wrap_socket(connect(server), server_hostname="localhost", suppress_ragged_eofs=False)


def sent_in_pieces(sock: socket.socket, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        sock.sendall(data[start : start + size])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [1, 1000, 40_000])
def test_requests_are_answered_in_order_however_they_are_split(
    node: Node, active_config: ActiveConfig, trust: ssl.SSLContext, size: int, version: ssl.TLSVersion
) -> None:
    trust.maximum_version = version
    with serving(node, client=ADMINISTRATOR, active_config=active_config) as server, secured(server, trust) as sock:
        sent_in_pieces(sock, GET + POST % (5, b"12345") + GET + LAST, size)
        answers = received(sock)
    assert answers.count(b"HTTP/1.1 200 ") == 4
    assert answers.index(b"is ready") < answers.index(b"reloaded") < answers.index(b"gpufault_incidents_total")


def test_an_unread_body_does_not_block_the_next_request(
    node: Node, active_config: ActiveConfig, trust: ssl.SSLContext
) -> None:
    with serving(node, client=ADMINISTRATOR, active_config=active_config) as server, secured(server, trust) as sock:
        sock.sendall(POST % (1 << 20, b"x" * (1 << 20)) + LAST)
        answers = received(sock)
    assert answers.count(b"HTTP/1.1 200 ") == 2


def test_a_large_answer_arrives_whole_and_ends_with_close_notify(
    node: Node, active_config: ActiveConfig, trust: ssl.SSLContext
) -> None:
    text = "x" * 5_000_000  # more than the kernel buffers
    node.metrics = MetricsSnapshot((Family("gpufault_large", "gauge", text, (), {(): 1.0}),))
    with serving(node, active_config=active_config) as server, secured(server, trust) as sock:
        sock.sendall(LAST)
        answer = received(sock)  # raises SSLEOFError without a close_notify
    assert text.encode() in answer


def test_a_client_that_sends_on_without_reading_is_ended(
    monkeypatch: pytest.MonkeyPatch, node: Node, active_config: ActiveConfig, trust: ssl.SSLContext
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.2)
    node.metrics = MetricsSnapshot((Family("gpufault_large", "gauge", "x" * 1_000_000, (), {(): 1.0}),))
    with serving(node, active_config=active_config) as server, secured(server, trust) as sock:
        assert ends(lambda: sock.sendall(LAST.replace(b"close", b"keep-alive")))


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05" + b"\xff" * 5, b"\x00" * 100])
def test_garbage_instead_of_tls_ends_the_connection_without_a_line_in_the_log(
    node: Node, active_config: ActiveConfig, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with serving(node, active_config=active_config) as server, connect(server, sent) as sock:
        assert received(sock)[:1] in (b"\x15", b"")  # an alert, unless OpenSSL has none for it
    assert capfd.readouterr() == ("", "")


def test_an_endless_client_hello_ends_the_connection(node: Node, active_config: ActiveConfig) -> None:
    record = b"\x16\x03\x01\x40\x00"
    first = record + b"\x01\x01\xff\xfc\x03\x03" + b"\0" * (0x4000 - 6)  # 128 KiB, as much as OpenSSL would hold
    with serving(node, active_config=active_config) as server, connect(server, first) as sock:
        assert ends(lambda: sock.sendall(record + b"\0" * 0x4000))
