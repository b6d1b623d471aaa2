"""`gpufault restart-check` against the endpoint of a node's daemon: its exit codes, and what it prints."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main
from exporter.cli.restart_check import CODES
from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import RESTART_WORDS
from exporter.store.journal import segment_path
from tests.web.serving import Node, serving
from tests.web.test_incidents import incident


def recorded(folder: Path, *of: dict[str, Any]) -> Node:
    now = rfc3339(time.time())
    records = [incident(n, **{"time": now, "recorded_time": now, **more}) for n, more in enumerate(of)]
    segment_path(folder, 1).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return Node(journal_folder=folder)


@pytest.mark.parametrize("restart", RESTART_WORDS)
def test_each_advice_has_its_exit_code(restart: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(recorded(tmp_path, {"restart": restart})) as server:
        code = main(["restart-check", "--job", "7", "--url", f"http://{server.addresses[0]}"])
    avoid = "; avoid gpu-07" if restart == "elsewhere" else ""
    line = f"gpufault: restart {RESTART_WORDS[restart]}{avoid}: driver_older_than_rocm hip_error on gpu-07\n"
    assert (code, capsys.readouterr().out) == (CODES[restart], line)
    assert len(set(CODES.values())) == len(RESTART_WORDS)


def test_the_nodes_to_avoid_for_a_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(recorded(tmp_path, {"restart": "elsewhere"}, {"restart": "elsewhere", "node": "gpu-08"})) as server:
        asked = ["restart-check", "--job", "7", "--url", f"http://{server.addresses[0]}"]
        assert main([*asked, "--format", "avoid"]) == 4
        assert capsys.readouterr().out == "gpu-07,gpu-08\n"
        assert main([*asked, "--format", "json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["restart"], answer["avoid"]) == ("elsewhere", ["gpu-07", "gpu-08"])
    assert answer["incident"]["signature"] == "hip_error"


@pytest.mark.parametrize(
    "other", [{"job": {"id": "8"}}, {"role": "cascade"}, {"time": "2020-01-01T00:00:00Z"}], ids=["job", "role", "time"]
)
def test_other_jobs_consequences_and_earlier_runs_say_nothing(
    other: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(recorded(tmp_path, {"restart": "as_is", **other})) as server:
        assert main(["restart-check", "--job", "7", "--url", f"http://{server.addresses[0]}"]) == 3
    assert capsys.readouterr().out == "gpufault: restart unknown: no root incident of job 7 since 1h\n"


def test_it_waits_for_the_first_incident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cli.restart_check.time.sleep", lambda _: recorded(tmp_path, {"restart": "never"}))
    with serving(Node(journal_folder=tmp_path)) as server:
        assert main(["restart-check", "--job", "7", "--wait", "10m", "--url", f"http://{server.addresses[0]}"]) == 6
    assert "not at all: it was cancelled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--url", "http://127.0.0.1:1"], 3, "Connection refused"),
        (["--url", "ftp://node"], 2, "not an http:// or https:// address"),
        (["--since", "soon"], 2, "--since: invalid"),
        (["--wait", "soon"], 2, "--wait: invalid duration"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart-check", "--job", "7", *arguments]) == code
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"incidents": 7}', b'{"incidents": [7]}', b"[" * 100_000])
def test_another_server_is_no_healthy_job(
    answer: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cli.daemon_client.ask", lambda *_, **__: answer)
    assert main(["restart-check", "--job", "7"]) == 3
    assert "no list of incidents" in capsys.readouterr().err


def test_an_answer_of_a_fleet_service_names_the_cause_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "cause": "gpu_lost",
        "time": "2026-06-01T00:00:00Z",
        "node": "gpu-07",
        "role": "root",
        "restart": "elsewhere",
    }
    monkeypatch.setattr("exporter.cli.daemon_client.incidents", lambda *_, **__: {"incidents": [given]})
    assert main(["restart-check", "--job", "7"]) == 4
    assert capsys.readouterr().out == "gpufault: restart on other nodes; avoid gpu-07: gpu_lost on gpu-07\n"
