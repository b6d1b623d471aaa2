"""`gpufault top --once` over real node daemons' endpoints."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.core.diagnosis.records import rfc3339
from exporter.store.journal import segment_path
from tests.web.serving import Node, serving
from tests.web.test_incidents import incident


def test_root_incidents_are_shown_by_cause_and_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    now = rfc3339(time.time())
    records = [
        incident(5),  # long ago
        incident(1, time=now, recorded_time=now),
        incident(2, time=now, recorded_time=now, node="evil\x1b[31m"),
        incident(3, time=now, recorded_time=now, role="cascade", root_cause="consequence"),
        incident(4, time=now, recorded_time=now, root_cause="unknown", signature="[bold]"),
    ]
    segment_path(tmp_path, 1).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    with serving(Node(journal_folder=tmp_path)) as server:
        assert main(["top", f"http://{server.addresses[0]}", "http://127.0.0.1:1", "--once", "--since=10m"]) == 0
    shown = capsys.readouterr()
    text = " ".join(shown.out.split())
    assert "Title of driver_older_than_rocm" in text
    assert "Title of [bold] (cause unknown)" in text
    assert "evil\\x1b[31m" in text
    assert "\x1b[31m" not in shown.out
    assert "consequence" not in text
    assert shown.err == "gpufault top: http://127.0.0.1:1: Connection refused\n"


def test_exit_code_3_if_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "http://127.0.0.1:1", "--once"]) == 3
    assert main(["top", "nonsense", "--once"]) == 2
    assert "not an http:// or https:// address" in capsys.readouterr().err
