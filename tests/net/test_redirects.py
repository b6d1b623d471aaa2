"""A password or a token goes to the address that was given, and to no other that a server names."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest

from exporter.cli import daemon_client
from exporter.fleet.input.prometheus_api import NoAnswer, connect

SECRET = "hunter2"


@pytest.fixture
def redirecting() -> Iterator[tuple[str, list[str]]]:
    """A server that sends whoever asks to /elsewhere, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(200 if self.path == "/elsewhere" else 302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def ask_a_prometheus(url: str, _folder: Path) -> None:
    connect(url, token=SECRET).at("up", 5)


def ask_the_daemon(url: str, folder: Path) -> None:
    (folder / "password").write_text(SECRET)
    options = Namespace(user="ada", password_file=folder / "password", ca_file=None, cert_file=None, key_file=None)
    daemon_client.ask(f"{url}/metrics", options, timeout=5.0, most=100)


@pytest.mark.parametrize("ask", [ask_a_prometheus, ask_the_daemon])
def test_a_redirect_is_told_and_not_followed(
    ask: Callable[[str, Path], None], redirecting: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, asked = redirecting
    with pytest.raises((NoAnswer, HTTPError), match=f"302.*redirects to {url}/elsewhere; use that address"):
        ask(url, tmp_path)
    assert len(asked) == 1
    assert "/elsewhere" not in asked
