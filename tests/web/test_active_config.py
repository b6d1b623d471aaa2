"""The web configuration in force: what a changed file changes, what it must not, and what TLS makes of it."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import threading
from pathlib import Path

import bcrypt
import pytest
import trustme

from exporter.core.text.problems import InvalidInput
from exporter.web import serving as web
from exporter.web.active_config import ActiveConfig
from exporter.web.serving import RunningServer
from tests.web.serving import TIMEOUT, Answer, Node, ask, serving

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key%s}\n"
VERIFIED = TLS % ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt%s"
SECRET = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users: {{ada: {SECRET}}}\n"


class Site:
    """A folder with an authority, a server's certificate and a web configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "web.yaml"
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.crt")
        self.certify()

    def certify(self, name: str = "localhost") -> None:
        """A new certificate and key for the server."""
        certificate = self.authority.issue_cert(name)
        certificate.private_key_pem.write_to_path(self.folder / "server.key")
        (self.folder / "server.crt").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))

    def write(self, text: str) -> None:
        """All at once: a server that looks at any time must not find half a file."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def client(self, name: str | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
        """A client that trusts the authority, and has a certificate for `name`."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        for version, value in versions.items():
            setattr(context, version, value)
        if name:
            self.authority.issue_cert(name).configure_cert(context)
        return context


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The tests look at the files themselves; the server, once an hour."""
    monkeypatch.setattr(web, "CONFIG_CHECK_SECONDS", 3600)
    return Site(tmp_path)


def as_user(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def refused(server: RunningServer, tls: ssl.SSLContext) -> bool:
    """Whether the connection ends without an answer. With TLS 1.3 a client learns of its refusal when it reads."""
    try:
        ask(server, "/metrics", tls=tls)
    except OSError:  # ssl.SSLError, a reset, an end without an answer
        return True
    return False


def problems(active_config: ActiveConfig) -> list[str]:
    return [str(problem) for problem in active_config.problems]


# Users.


def test_every_path_asks_for_name_and_password_where_there_are_users(site: Site) -> None:
    site.write(USERS)
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        for path in ("/", "/metrics", "/-/healthy", "/-/ready", "/nowhere"):
            answer = ask(server, path)
            assert (answer.status, answer.headers["www-authenticate"][:5]) == (401, "Basic")
            assert answer.headers["cache-control"] == "no-store"
        assert ask(server, "/-/reload", "POST").status == 401
        assert ask(server, "/metrics", headers=as_user("ada", "wrong")).status == 401
        assert ask(server, "/metrics", headers=as_user("eve", "secret")).status == 401
        assert ask(server, "/metrics", headers=as_user("ada", "secret")).status == 200


def test_two_authorization_headers_are_none(site: Site) -> None:
    site.write(USERS)
    right = as_user("ada", "secret")["Authorization"]
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {right}\r\n"
        for more, status in (("", b"200"), (f"Authorization: {right}\r\n", b"401")):
            with socket.create_connection(server.addresses[0].split(":"), timeout=TIMEOUT) as sock:
                sock.sendall((request + more + "\r\n").encode())
                assert sock.recv(12) == b"HTTP/1.1 " + status


def test_a_new_password_takes_force_without_a_restart(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "CONFIG_CHECK_SECONDS", 0.01)
    site.write(USERS)
    looked = threading.Event()
    with serving(Node(), active_config=ActiveConfig(site.path), on_config_change=looked.set) as server:
        assert ask(server, "/metrics", headers=as_user("ada", "secret")).status == 200
        assert not looked.is_set()
        site.write(f"basic_auth_users: {{ada: {bcrypt.hashpw(b'new', bcrypt.gensalt(4)).decode()}}}\n")
        assert looked.wait(TIMEOUT)
        assert ask(server, "/metrics", headers=as_user("ada", "secret")).status == 401
        assert ask(server, "/metrics", headers=as_user("ada", "new")).status == 200


def test_the_headers_that_are_set_replace_ours(site: Site) -> None:
    site.write("http_server_config: {headers: {X-Frame-Options: deny, Content-Security-Policy: sandbox}}")
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        headers = ask(server, "/").headers
    assert headers["x-frame-options"] == "deny"
    assert headers["content-security-policy"] == "sandbox"
    assert headers["x-content-type-options"] == "nosniff"


# Reading again.


def test_nothing_is_read_again_as_long_as_nothing_has_changed(site: Site) -> None:
    site.write(USERS)
    active_config = ActiveConfig(site.path)
    before = active_config.settings
    os.utime(site.path, (0, 0))
    assert not active_config.reload_if_changed()
    assert active_config.settings is before


def test_a_broken_file_leaves_the_old_one_in_force_and_is_told_once(site: Site) -> None:
    site.write(USERS)
    now = [100.0]
    active_config = ActiveConfig(site.path, clock=lambda: now[0])
    before = active_config.settings
    now[0] = 200.0
    site.write(USERS + "basic_auth: 1\n")
    assert active_config.reload_if_changed()
    assert problems(active_config) == [f"{site.path}:2:1: basic_auth: no such key here; did you mean basic_auth_users?"]
    assert (active_config.settings, active_config.applied_at, active_config.reload_if_changed()) == (
        before,
        100.0,
        False,
    )
    site.write(USERS + "# mended\n")
    assert active_config.reload_if_changed()
    assert (problems(active_config), active_config.applied_at) == ([], 200.0)


def test_a_file_that_is_gone_leaves_the_old_one_in_force(site: Site) -> None:
    site.write(USERS)
    active_config = ActiveConfig(site.path)
    site.path.unlink()
    assert active_config.reload_if_changed()
    assert problems(active_config) == [f"{site.path}:1:1: No such file or directory; use a file that gpufault can read"]
    assert active_config.settings.users
    assert not active_config.reload_if_changed()


@pytest.mark.parametrize("name", ["web.yaml", "server.key"])
def test_a_file_that_becomes_a_fifo_holds_up_no_look(site: Site, name: str) -> None:
    site.write(TLS % "")
    active_config = ActiveConfig(site.path)
    held = active_config.settings
    was = (site.folder / name).read_bytes()
    (site.folder / name).unlink()
    os.mkfifo(site.folder / name)
    looks: list[bool] = []
    looking = threading.Thread(target=lambda: looks.append(active_config.reload_if_changed()), daemon=True)
    looking.start()
    looking.join(TIMEOUT)
    assert looks == [True]
    assert "not a regular file; use a file that gpufault can read" in problems(active_config)[0]
    assert active_config.settings is held
    (site.folder / name).unlink()
    (site.folder / name).write_bytes(was)
    assert active_config.reload_if_changed()
    assert problems(active_config) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (USERS, "", "basic_auth_users: a reload cannot remove all users; restart gpufault"),
        (TLS % "", "", "tls_server_config: a reload cannot disable TLS; restart gpufault"),
        (VERIFIED % "", TLS % "", "client_auth_type: a reload cannot admit clients without a certificate; restart"),
        (
            VERIFIED % ", client_allowed_sans: [a]",
            VERIFIED % "",
            "a reload cannot remove client_allowed_sans; restart",
        ),
    ],
    ids=["users", "TLS", "certificates", "names"],
)
def test_a_file_that_is_empty_for_a_moment_opens_nothing(site: Site, before: str, after: str, told: str) -> None:
    site.write(before)
    active_config = ActiveConfig(site.path)
    held = active_config.settings
    site.write(after)
    assert active_config.reload_if_changed()
    assert told in problems(active_config)[0]
    assert active_config.settings is held
    assert ActiveConfig(site.path).problems == ()


def test_half_of_a_new_pair_changes_nothing_and_the_other_half_does(site: Site) -> None:
    site.write(TLS % "")
    active_config = ActiveConfig(site.path)
    held = active_config.settings
    key = (site.folder / "server.key").read_bytes()
    site.certify()
    new = (site.folder / "server.key").read_bytes()
    (site.folder / "server.key").write_bytes(key)
    assert active_config.reload_if_changed()
    assert "tls_server_config.cert_file: " in problems(active_config)[0]
    assert "key values mismatch; use a certificate and its" in problems(active_config)[0]
    assert active_config.settings is held
    (site.folder / "server.key").write_bytes(new)
    assert active_config.reload_if_changed()
    assert problems(active_config) == []
    assert active_config.settings.context is not held.context


# TLS.


def test_metrics_come_over_tls_and_over_nothing_less(site: Site) -> None:
    site.write(TLS % "")
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        assert ask(server, "/metrics", tls=site.client()).status == 200
        with socket.create_connection(server.addresses[0].split(":"), timeout=TIMEOUT) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(1000)
        old = site.client(maximum_version=ssl.TLSVersion.TLSv1_2)
        assert ask(server, "/metrics", tls=old).status == 200
        stranger = ssl.create_default_context()
        assert refused(server, stranger)


def test_a_new_certificate_takes_force_for_the_next_connection(site: Site) -> None:
    site.write(TLS % "")
    active_config = ActiveConfig(site.path)
    with serving(Node(), active_config=active_config) as server:
        assert ask(server, "/metrics", tls=site.client()).status == 200
        site.authority = trustme.CA()
        site.certify()
        active_config.reload_if_changed()
        assert ask(server, "/metrics", tls=site.client()).status == 200


def test_the_oldest_version_is_refused_where_the_newest_is_asked_for(site: Site) -> None:
    site.write(TLS % ", min_version: TLS13")
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        assert ask(server, "/metrics", tls=site.client()).status == 200
        assert refused(server, site.client(maximum_version=ssl.TLSVersion.TLSv1_2))


def test_only_the_chosen_cipher_suite_and_curve_are_spoken(site: Site) -> None:
    site.write(TLS % ", max_version: TLS12, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "
               "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384], curve_preferences: [CurveP384]")  # fmt: skip
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        host, port = server.addresses[0].split(":")
        with (
            socket.create_connection((host, port), timeout=TIMEOUT) as sock,
            site.client().wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            assert tls.version() == "TLSv1.2"
            assert (tls.cipher() or ("",))[0].endswith("AES256-GCM-SHA384")
        other = site.client()
        other.set_ciphers("ECDHE+AES128")
        other.maximum_version = ssl.TLSVersion.TLSv1_2
        assert refused(server, other)
        curve = site.client()
        curve.set_ecdh_curve("prime256v1")
        assert refused(server, curve)


def test_a_client_needs_a_certificate_of_the_authority(site: Site) -> None:
    site.write(VERIFIED % "")
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        assert ask(server, "/metrics", tls=site.client("prometheus.example.org")).status == 200
        assert refused(server, site.client())
        foreign = site.client()
        trustme.CA().issue_cert("prometheus.example.org").configure_cert(foreign)
        assert refused(server, foreign)


@pytest.mark.parametrize("name", ["prometheus.example.org", "10.1.2.3", "2001:db8::7", "ada@example.org"])
def test_a_clients_certificate_must_carry_an_allowed_name(site: Site, name: str) -> None:
    site.write(VERIFIED % f", client_allowed_sans: ['{name}']")
    with serving(Node(), active_config=ActiveConfig(site.path)) as server:
        assert ask(server, "/metrics", tls=site.client(name)).status == 200
        assert refused(server, site.client("prometheus.example.com"))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "server.key").unlink(), "key_file: {}/server.key: No such file or directory"),
        (lambda folder: (folder / "server.crt").write_text("no"), "cert_file: {}/server.crt: "),
        (lambda folder: (folder / "ca.crt").write_text("no"), "client_ca_file: {}/ca.crt: "),
        (lambda folder: (folder / "ca.crt").write_bytes(b"\xff\x00"), "client_ca_file: {}/ca.crt: "),
    ],
)
def test_what_openssl_cannot_use_is_told_at_its_key(site: Site, spoil: object, told: str) -> None:
    site.write(VERIFIED % "")
    spoil(site.folder)
    with pytest.raises(InvalidInput) as caught:
        ActiveConfig(site.path)
    assert str(caught.value).startswith(f"{site.path}:1:")
    assert told.format(site.folder) in str(caught.value)
    assert "; give " in str(caught.value) or "; use " in str(caught.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(site: Site) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((site.folder / "server.key").read_bytes(), None)
    (site.folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    site.write(TLS % "")
    with pytest.raises(InvalidInput, match="unencrypted key in PEM form"):
        ActiveConfig(site.path)


def test_the_answer_over_tls_is_the_answer_without(site: Site) -> None:
    site.write(TLS % "")

    def shown(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
        return answer.status, answer.body, {**answer.headers, "date": ""}

    with serving(Node(), active_config=ActiveConfig(site.path)) as secure, serving(Node()) as plain:
        assert shown(ask(secure, "/", tls=site.client())) == shown(ask(plain, "/"))
