"""Requests of commands to the daemon: where their password comes from."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from exporter.cli.daemon_client import _headers


def options(path: str | Path) -> argparse.Namespace:
    return argparse.Namespace(user="sre", password_file=str(path))


def test_a_password_from_a_pipe_serves_several_requests() -> None:
    """As from `kubectl exec --stdin`, where no file has it."""
    reads, writes = os.pipe()
    try:
        os.write(writes, b"open sesame\n")
        os.close(writes)
        first, second = (_headers(options(f"/proc/self/fd/{reads}")) for _ in range(2))
    finally:
        os.close(reads)
    assert first == second == {"Authorization": "Basic c3JlOm9wZW4gc2VzYW1l"}


def test_a_password_file_is_read_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    before = _headers(options(file))
    file.write_text("new")
    assert _headers(options(file)) != before
