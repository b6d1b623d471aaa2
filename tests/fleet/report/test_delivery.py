"""The review by webhook and by e-mail, to real servers on loopback."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from exporter.cli.main import main
from exporter.fleet.report import markdown
from tests.fleet.review.fleets import crash, journal, watched
from tests.outputs.receivers import answers, receiving
from tests.support.mail_server import mail_server

HOSTILE = "<!channel> <@U1|x> @all *b* `c` & <http://evil.example|ok>\nSubject: x"
ADDRESSES = ("--email.from=gpufault@example.org", "--email.to=a@example.org", "--email.to=b@example.org")


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


def test_an_email_has_the_review_as_text_and_as_a_file(fleet: Path, tmp_path: Path) -> None:
    with mail_server() as server:
        output = tmp_path / "review.md"
        flags = (*ADDRESSES, f"--email.server=127.0.0.1:{server.port}", "--email.security=none", f"--output={output}")
        assert report(fleet, *flags, "--format=md") == 0
    (message,) = server.messages
    assert server.recipients == ["a@example.org", "b@example.org"]
    assert message["To"] == "a@example.org, b@example.org"
    assert message["Subject"].startswith("GPU fleet: 10 root incidents on 2 of 3 nodes")
    assert message["Date"]
    assert message["Message-ID"]
    text, page = message.iter_parts()
    assert "**" not in text.get_content()
    assert "- " in text.get_content()
    assert page.get_filename() == "gpu-fleet-review-21-to-28-June-2026.html"
    assert page.get_content().startswith("<!DOCTYPE html>")
    assert output.read_text().startswith("**GPU fleet review")


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_password_is_sent_only_over_tls(fleet: Path, tmp_path: Path, security: str) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with mail_server(security, context) as server:
        flags = (
            *ADDRESSES, f"--email.server=localhost:{server.port}", f"--email.security={security}", "--email.user=fleet",
            "--email.password-file", secret(tmp_path, "pass word"),
        )  # fmt: skip
        assert report(fleet, *flags) == 3  # nobody has signed its certificate
        assert (server.messages, server.logins) == ([], [])
        assert report(fleet, *flags, f"--delivery.ca-file={tmp_path}/ca.pem") == 0
    assert server.logins == ["\0fleet\0pass word"]
    assert len(server.messages) == 1


def test_a_mail_server_without_starttls_gets_nothing(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    with mail_server() as server:
        assert report(fleet, *ADDRESSES, f"--email.server=127.0.0.1:{server.port}") == 3
    assert server.messages == []
    assert "STARTTLS" in capsys.readouterr().err


def test_each_receiver_is_tried_and_each_refusal_is_told(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mail_server(refuses="552 too large") as server, receiving() as chat:
        chat.behaviour = answers(404, b"no_service")
        flags = (
            *ADDRESSES, f"--email.server=127.0.0.1:{server.port}", "--email.security=none", "--webhook.url-file",
            secret(tmp_path, chat.url.replace("/v1/logs", "/services/T0/SECRET")),
        )  # fmt: skip
        assert report(fleet, *flags, f"--output={tmp_path}/review.html") == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert f"the webhook at http://127.0.0.1:{chat.port} did not take the review: 404 no_service" in err
    assert f"the mail server 127.0.0.1:{server.port} refused: 552 too large" in err
    assert "SECRET" not in err
    assert (tmp_path / "review.html").exists()


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--email.to=a@example.org"], "--email.from"),
        ([*ADDRESSES, "--email.user=x"], "--email.password-file"),
        ([*ADDRESSES, "--email.user=x", "--email.password-file=f", "--email.security=none"], "plain text"),
        (["--email.to=nobody", "--email.from=a@example.org"], "'nobody' is not an address"),
        (["--delivery.link=javascript:x", *ADDRESSES], "--delivery.link"),
    ],
)
def test_what_is_missing_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], what: str
) -> None:
    assert main(["report", "--journal", str(tmp_path), *flags]) in (1, 2)
    assert what in capsys.readouterr().err


def test_a_long_section_is_divided_at_its_lines() -> None:
    lines = ["*Title*", *(f"• {i} {'x' * 300}" for i in range(30)), "", "short"]
    parts = markdown._parts(lines)
    assert all(len(part) <= markdown.MAX_BLOCK_CHARS for part in parts)
    assert "\n".join(parts).split("\n") == [line for line in lines if line]
