"""The section `outputs`: what is wrong with it is told at its place, files that it names included, secrets never."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import trustme

from exporter.cli.main import main
from exporter.config.node import load
from exporter.config.outputs import WebhookConfig
from exporter.core.text.problems import InvalidInput
from exporter.net import credentials
from exporter.net.url import parse_url
from exporter.outputs import receiver_settings


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load(text, "c.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_what_is_left_out_has_a_default() -> None:
    outputs = load("outputs: {otlp: {url: 'https://otel:4318/v1/logs'}, textfile: {path: /t/g.prom}}", "c.yaml").outputs
    assert outputs.otlp is not None
    assert outputs.textfile is not None
    assert (outputs.otlp.encoding, outputs.otlp.batch, outputs.otlp.timeout, outputs.otlp.start) == (
        "protobuf",
        100,
        10.0,
        "end",
    )
    assert (outputs.textfile.interval, outputs.textfile.mode) == (15.0, "0644")
    assert outputs.webhook is None
    assert outputs.npd is False


def test_every_error_is_told_at_its_place_all_at_once() -> None:
    told = problems(
        """\
outputs:
  otlp:
    encoding: grpc
    resource: {Host: a}
    tls: {cert_file: /tls.crt}
    headers: {Content-Type: text/plain, X-Scope-OrgID: 7}
    retry: {first: 1}
  webhook:
    url: http://h/x
    url_file: /run/url
    batch: 0
  textfile: {path: gpufault.txt, interval: 10ms, mode: 644}
  npd: yes please
"""
    )
    assert [line.split(" ")[:2] for line in told] == [
        ["c.yaml:3:5:", "outputs.otlp.encoding:"],
        ["c.yaml:4:16:", "outputs.otlp.resource.Host:"],
        ["c.yaml:5:11:", "outputs.otlp.tls.cert_file:"],
        ["c.yaml:6:15:", "outputs.otlp.headers.Content-Type:"],
        ["c.yaml:6:41:", "outputs.otlp.headers.X-Scope-OrgID:"],
        ["c.yaml:7:13:", "outputs.otlp.retry.first:"],
        ["c.yaml:11:5:", "outputs.webhook.batch:"],
        ["c.yaml:12:14:", "outputs.textfile.path:"],
        ["c.yaml:12:34:", "outputs.textfile.interval:"],
        ["c.yaml:12:50:", "outputs.textfile.mode:"],
        ["c.yaml:13:3:", "outputs.npd:"],
    ]
    assert problems("outputs: {webhook: {url: 'http://h/x', url_file: /u}}") == [
        "c.yaml:1:40: outputs.webhook.url_file: stands beside url; remove one of them"
    ]
    assert problems("outputs: {otlp: {}}") == ["c.yaml:1:11: outputs.otlp: has no url; add it, or url_file"]


@pytest.mark.parametrize(
    ("url", "target", "origin"),
    [
        ("http://otel:4318/v1/logs", "/v1/logs", "http://otel:4318"),
        ("https://hooks.example.org", "/", "https://hooks.example.org"),
        ("https://hooks.example.org:443/a/b?token=c", "/a/b?token=c", "https://hooks.example.org"),
        ("http://[::1]:4318/v1/logs", "/v1/logs", "http://[::1]:4318"),
    ],
)
def test_a_url_is_taken_apart_and_only_its_origin_is_shown(url: str, target: str, origin: str) -> None:
    parsed = parse_url(url)
    assert (parsed.target, parsed.origin) == (target, origin)
    assert target == "/" or target not in repr(parsed)


@pytest.mark.parametrize(
    "url",
    ["", "otel:4318", "ftp://h/x", "http:///x", "http://h:0/", "http://h:70000/", "http://h:x/", "http://h/a b",
     "http://h/\r\nX: y", "http://user:secret@h/", "http://h/#f", "http://hö/", "http://h\\@evil/", "https://[::1", "http://h%0d/"],
)  # fmt: skip
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"; (write|put|remove)") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


CHECKED: dict[str, tuple[str, str]] = {
    "url_file: {there}/missing": (
        "url_file",
        r"missing: No such file or directory; use a file that gpufault can read",
    ),
    "url_file: {there}/empty": ("url_file", "not a URL; write https://HOST:PORT/PATH"),
    "url: 'http://h/', headers_file: {there}/empty.d": ("headers_file", "Is a directory; use a file"),
    "url: 'http://h/', headers_file: {there}/fifo": ("headers_file", "not a regular file"),
    "url: 'http://h/', headers_file: {there}/key": ("headers_file", "line 1 is not `Name: value`"),
    "url: 'http://h/', headers_env: NOT_SET_HERE": ("headers_env", "the environment variable NOT_SET_HERE is not set"),
    "url: 'https://h/', tls: {{ca_file: {there}/key}}": ("tls.ca_file", "no PEM certificate found; use"),
    "url: 'https://h/', tls: {{ca_file: {there}/fifo}}": ("tls.ca_file", "not a regular file"),
    "url: 'https://h/', tls: {{cert_file: {there}/cert, key_file: {there}/other}}": (
        "tls.cert_file",
        "key values mismatch; use a certificate and its unencrypted key",
    ),
    "url: 'https://h/', tls: {{cert_file: {there}/missing, key_file: {there}/other}}": (
        "tls.cert_file",
        "missing: No such file",
    ),
    "url: 'http://h/', secret_file: {there}/empty": ("secret_file", "not a key; write `whsec_`"),
}


@pytest.mark.parametrize("written", CHECKED)
def test_files_that_cannot_be_used_are_told_by_config_check(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key, told = CHECKED[written]
    authority = trustme.CA()
    certificate, other = authority.issue_cert("a"), authority.issue_cert("b")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    other.private_key_pem.write_to_path(tmp_path / "other")
    (tmp_path / "empty").touch()
    (tmp_path / "empty.d").mkdir()
    (tmp_path / "key").write_text("hunter2hunter2\n")
    os.mkfifo(tmp_path / "fifo")
    config = tmp_path / "config.yaml"
    config.write_text(f"outputs:\n  webhook: {{{written.format(there=tmp_path)}}}\n")
    assert main(["run", "--config.check", f"--config.file={config}"]) == 2
    printed = capsys.readouterr().err
    assert re.match(rf"{re.escape(str(config))}:2:\d+: outputs\.webhook\.{re.escape(key)}: ", printed), printed
    assert told in printed
    assert "hunter2" not in printed


def test_headers_come_from_the_configuration_the_environment_and_a_file_the_last_going_first(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("# a comment\n\nX-A: file: with a colon\n")
    settings = WebhookConfig.model_validate(
        {
            "url": "http://h/",
            "headers": {"X-A": "a", "X-B": "b"},
            "headers_env": "H",
            "headers_file": tmp_path / "headers",
        }
    )
    environ = {"H": "X-B=env%20b, X-C=c"}
    assert receiver_settings.read_headers(settings, environ) == {
        "X-A": "file: with a colon",
        "X-B": "env b",
        "X-C": "c",
    }


@pytest.mark.parametrize("text", ["Host: x", "X-A: a\x00b", "X A: b", ": b", "X-A: ü"])
def test_a_header_that_no_request_may_have_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "headers").write_text(text)
    settings = WebhookConfig(url="http://h/", headers_file=tmp_path / "headers")
    with pytest.raises(ValueError, match=r"HTTP header|by gpufault itself"):
        receiver_settings.read_headers(settings)


def test_a_token_that_rotates_and_a_certificate_that_is_renewed_are_read_anew(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer one")
    settings = WebhookConfig(url="http://h/", headers_file=tmp_path / "headers")
    assert receiver_settings.read_headers(settings) == {"Authorization": "Bearer one"}
    (tmp_path / "headers").write_text("Authorization: Bearer two")
    assert receiver_settings.read_headers(settings) == {"Authorization": "Bearer two"}
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = WebhookConfig.model_validate({"url": "https://h/", "tls": {"ca_file": tmp_path / "ca.pem"}}).tls
    contexts = credentials.ContextCache(tls)
    first = contexts.get()
    assert contexts.get() is first
    trustme.CA().cert_pem.write_to_path(tmp_path / "new.pem")
    (tmp_path / "new.pem").rename(tmp_path / "ca.pem")
    assert contexts.get() is not first
