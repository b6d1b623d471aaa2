"""What doctor tells of outputs, against real receivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.config.outputs import OutputsConfig
from exporter.outputs.reachability import check_outputs
from tests.outputs.receivers import answers, receiving


def seen(**outputs: Any) -> list[tuple[str, str, str]]:
    return [tuple(found) for found in check_outputs(OutputsConfig.model_validate(outputs), "gpu-07")]


def test_an_otlp_receiver_is_asked_with_nothing_to_tell() -> None:
    with receiving() as receiver:
        otlp = {"url": receiver.url, "encoding": "json", "headers": {"X-Scope-OrgID": "gpu"}}
        at = f"http://127.0.0.1:{receiver.port}"
        assert seen(otlp=otlp) == [("ok", "otlp", f"{at} answered 200 to a request without incidents")]
        (request,) = receiver.requests
        assert request.json["resourceLogs"][0]["scopeLogs"][0]["logRecords"] == []
        assert request.headers["x-scope-orgid"] == "gpu"
        receiver.behaviour = answers(401)
        told = f"{at} answered 401 to a request without incidents; check url, headers and encoding"
        assert seen(otlp=otlp) == [("bad", "otlp", told)]


def test_a_webhook_is_connected_to_and_sent_nothing() -> None:
    with receiving() as receiver:
        at = f"http://127.0.0.1:{receiver.port}"
        assert seen(webhook={"url": receiver.url}) == [("ok", "webhook", f"connected to {at}; nothing was sent")]
    assert receiver.requests == []
    assert seen(webhook={"url": receiver.url}) == [("bad", "webhook", f"{at}: Connection refused")]


def test_a_secret_in_the_clear_is_noted_and_a_missing_file_is_told(tmp_path: Path) -> None:
    far = {"url": "http://nobody.invalid/", "headers": {"Authorization": "Bearer x"}, "timeout": 5.0}
    (_, _, unreachable), (state, _, told) = seen(webhook=far | {"timeout": "5s"})
    assert unreachable.startswith("http://nobody.invalid: nobody.invalid: ")
    assert (state, told) == ("note", "headers are sent without encryption; use https://")
    ((state, name, told),) = seen(otlp={"url_file": str(tmp_path / "url")})
    assert (state, name) == ("bad", "otlp")
    assert told.startswith(f"url_file: {tmp_path}/url: No such file or directory")


def test_the_folder_of_the_textfile_must_take_files(tmp_path: Path) -> None:
    path = tmp_path / "gpufault.prom"
    assert seen(textfile={"path": str(path)}) == [("ok", "textfile", f"{tmp_path} can be written")]
    ((state, name, told),) = seen(textfile={"path": "/proc/self/gpufault.prom"})
    assert (state, name) == ("bad", "textfile")
    assert "cannot be written by uid" in told
