"""The review by webhook, to a real server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.fleet.report import markdown
from tests.fleet.review.fleets import crash, journal, watched
from tests.outputs.receivers import answers, receiving

HOSTILE = "<!channel> <@U1|x> @all *b* `c` & <http://evil.example|ok>\nSubject: x"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    crashes = [crash("n1", 22 + i / 10, root_cause=HOSTILE, text=HOSTILE) for i in range(9)]
    return journal(tmp_path_factory.mktemp("fleet"), [*watched(["n1", "n2", HOSTILE]), crash(HOSTILE, 23), *crashes])


def report(fleet: Path, *flags: str) -> int:
    return main(["report", "--journal", str(fleet), *flags])


def secret(tmp_path: Path, text: str) -> str:
    path = tmp_path / "secret"
    path.write_text(f"{text}\n")
    return str(path)


def test_a_webhook_gets_blocks_and_nothing_is_printed(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving() as chat:
        flags = (
            "--webhook.url-file",
            secret(tmp_path, chat.url),
            "--delivery.link",
            "https://fleet.example/?window=7d",
        )
        assert report(fleet, *flags) == 0
    assert capsys.readouterr() == ("", "")
    (request,) = chat.requests
    body = request.json
    assert request.headers["content-type"] == "application/json"
    assert body["text"].startswith("10 root incidents on 2 of 3 nodes")
    header, *sections, link = body["blocks"]
    assert header["text"] == {"type": "plain_text", "text": "GPU fleet review, 21 to 28 June 2026"}
    assert link["text"]["text"] == "<https://fleet.example/?window=7d|Open the fleet page>"
    assert any(each["text"]["text"].startswith("*Why jobs crashed*\n• ") for each in sections)
    assert all(each["text"]["verbatim"] and len(each["text"]["text"]) <= 3000 for each in sections)
    assert len(body["blocks"]) <= 50
    every = body["text"] + "".join(each["text"]["text"] for each in sections)
    assert "!channel" in every
    assert "<" not in every
    assert "@all" not in every


def test_a_refusal_is_told_without_the_secret_address(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving() as chat:
        chat.behaviour = answers(404, b"no_service")
        address = secret(tmp_path, chat.url.replace("/v1/logs", "/services/T0/SECRET"))
        assert report(fleet, "--webhook.url-file", address, f"--output={tmp_path}/review.html") == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert f"the webhook at http://127.0.0.1:{chat.port} did not take the review: 404 no_service" in err
    assert "SECRET" not in err
    assert (tmp_path / "review.html").exists()


def test_a_link_that_is_no_address_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--journal", str(tmp_path), "--delivery.link=javascript:x"]) == 2
    assert "--delivery.link" in capsys.readouterr().err


def test_a_long_section_is_divided_at_its_lines() -> None:
    lines = ["*Title*", *(f"• {i} {'x' * 300}" for i in range(30)), "", "short"]
    parts = markdown._parts(lines)
    assert all(len(part) <= markdown.MAX_BLOCK_CHARS for part in parts)
    assert "\n".join(parts).split("\n") == [line for line in lines if line]
