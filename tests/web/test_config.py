"""The web configuration as a text: what it says when it is silent, and where it is wrong."""

from __future__ import annotations

import pytest

from exporter.core.text.problems import InvalidInput
from exporter.core.text.yaml_text import parse
from exporter.web.config import WebConfig, load

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"  # of the exporter-toolkit's manual


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load(parse(text, "web.yaml"))
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("text", ["", "{}", "tls_server_config:\nbasic_auth_users: {}\n"])
def test_what_is_not_said_is_off(text: str) -> None:
    assert load(parse(text, "web.yaml")) == WebConfig()


def test_every_key_of_the_exporter_toolkit_that_is_offered_is_read() -> None:
    config = load(
        parse(
            f"""
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example.org, 10.0.0.7]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
  curve_preferences: [X25519]
http_server_config:
  http2: true
  headers:
    Content-Security-Policy: default-src 'self'
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    X-XSS-Protection: ''
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  prometheus: {HASH}
""",
            "web.yaml",
        )
    )
    assert config.tls_server_config
    assert config.tls_server_config.client_allowed_sans == ["prometheus.example.org", "10.0.0.7"]
    assert config.headers == {
        "Content-Security-Policy": "default-src 'self'",
        "Strict-Transport-Security": "max-age=31536000",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "deny",
    }
    assert config.basic_auth_users == {"prometheus": HASH}


CERTIFICATE = "tls_server_config:\n  cert_file: a\n  key_file: b\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tls_config: {}", "web.yaml:1:1: tls_config: no such key here; did you mean tls_server_config?"),
        (
            "rate_limit: {burst: 1}",
            (
                "web.yaml:1:1: rate_limit: no such key here; use administrators, basic_auth_users, http_server_config, "
                "tls_server_config or token_keys_file"
            ),
        ),
        ("tls_server_config: {key_file: b}", "web.yaml:1:1: tls_server_config.cert_file: missing; add it"),
        (
            CERTIFICATE + "  min_version: TLS10",
            "web.yaml:4:3: tls_server_config.min_version: TLS10 is insecure (RFC 8996); use TLS12 or TLS13",
        ),
        (
            CERTIFICATE + "  min_version: TLS13\n  max_version: TLS12",
            "web.yaml:4:3: tls_server_config.min_version: is above max_version TLS12; lower it",
        ),
        (
            CERTIFICATE + "  client_auth_type: RequireAnyClientCert",
            (
                "web.yaml:4:3: tls_server_config.client_auth_type: RequireAnyClientCert accepts unverified certificates; "
                "use RequireAndVerifyClientCert"
            ),
        ),
        (
            CERTIFICATE + "  client_auth_type: RequireAndVerifyClientCert",
            (
                "web.yaml:4:3: tls_server_config.client_auth_type: requires client_ca_file, the authorities that sign "
                "clients' certificates; add it"
            ),
        ),
        (
            CERTIFICATE + "  client_ca_file: ca",
            (
                "web.yaml:4:3: tls_server_config.client_ca_file: has no effect without client_auth_type: "
                "RequireAndVerifyClientCert; add it"
            ),
        ),
        (
            CERTIFICATE + "  client_allowed_sans: [a]",
            (
                "web.yaml:4:3: tls_server_config.client_allowed_sans: requires client_auth_type: RequireAndVerifyClientCert; "
                "add it"
            ),
        ),
        (
            CERTIFICATE + "  cipher_suites: [TLS_AES_128_GCM_SHA256]",
            (
                "web.yaml:4:3: tls_server_config.cipher_suites: contains no suite for TLS 1.2; add one, or set "
                "min_version: TLS13"
            ),
        ),
        (
            "http_server_config: {headers: {X-Powered-By: me}}",
            (
                "web.yaml:1:32: http_server_config.headers.X-Powered-By: no such key here; use Content-Security-Policy, "
                "Strict-Transport-Security, X-Content-Type-Options, X-Frame-Options or X-XSS-Protection"
            ),
        ),
        (
            'http_server_config: {headers: {Content-Security-Policy: "a\\r\\nSet-Cookie: b"}}',
            (
                "web.yaml:1:32: http_server_config.headers.Content-Security-Policy: contains characters that are not "
                "allowed in HTTP headers; use one line of ASCII"
            ),
        ),
        (
            f"basic_auth_users: {{'a:b': '{HASH}'}}",
            "web.yaml:1:20: basic_auth_users.a:b: a user name cannot contain a colon (RFC 7617); use another name",
        ),
        (
            "basic_auth_users: {ada: $2y$31$" + "." * 53 + "}",
            "web.yaml:1:20: basic_auth_users.ada: unsupported bcrypt cost 31; use 4 to 14, such as 10",
        ),
    ],
)
def test_a_mistake_is_told_at_its_place_with_what_to_do(text: str, told: str) -> None:
    assert problems(text) == [told]


def test_all_mistakes_are_told_at_once() -> None:
    assert len(problems("a: 1\nb: 2\nbasic_auth_users: {ada: x}\n")) == 3


@pytest.mark.parametrize("name", ["TLS_RSA_WITH_RC4_128_SHA", "ECDHE-RSA-AES128-SHA", "ALL:@SECLEVEL=0"])
def test_no_other_cipher_suite_reaches_openssl(name: str) -> None:
    (told,) = problems(f"{CERTIFICATE}  cipher_suites: ['{name}']")
    assert f"unsupported cipher suite {name!r}; use one of TLS_AES_128_GCM_SHA256, " in told


@pytest.mark.parametrize(
    "written",
    # the last is a hash but for bits of its salt that do not count: with it, a password would be an error
    [
        "hunter2",
        "123456",
        "1.5",
        "true",
        "[hunter2]",
        "{hunter2: hunter2}",
        "!hunter2 x",
        "'%hunter2'",
        "null",
        f"$2y$10${'a' * 53}",
    ],
)
def test_a_password_in_the_place_of_its_hash_is_refused_and_not_repeated(written: str) -> None:
    (told,) = problems(f"basic_auth_users:\n  ada: {written}\n")
    assert told.startswith("web.yaml:2:")
    assert not any(part in told for part in ("hunter2", "123456", "1.5", "True"))
