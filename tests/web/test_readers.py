"""Who may read and change what, over the real server: each path for each kind of client."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from exporter.store.journal import segment_path
from exporter.web import control_socket
from exporter.web.active_config import ActiveConfig
from exporter.web.interface import RecentIncident
from exporter.web.routes import router
from exporter.web.serving import RunningServer, serve
from tests.web.serving import TIMEOUT, Answer, Node, ask, serving
from tests.web.test_active_config import SECRET, TLS, VERIFIED, Site, as_user
from tests.web.test_faults import ASKED, FAULT
from tests.web.test_incidents import incident

TEXT = "zqzq"  # in all that a record has of a job
INCIDENT = RecentIncident(
    time=1.0, signature="hip_error", root_cause="unknown", verdict="unclear", remediation="Upgrade.", job=TEXT, gpu="",
    log=f"/{TEXT}.log:1", line=TEXT, because=(TEXT,),
)  # fmt: skip
PATHS = {
    "/signatures/{name}": "/signatures/nv_xid_79_fallen_off_bus",
    "/api/v1/journal/{number:int}": "/api/v1/journal/1",
}  # fmt: skip
USERS = f"basic_auth_users: {{ada: {SECRET}, kim: {SECRET}}}\nadministrators: [kim]\n"
GIVEN = VERIFIED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven") % ""


def paths(method: str) -> list[str]:
    """All paths of the daemon for a method."""
    routes = router(Node(), "/metrics").routes
    return sorted(PATHS.get(each.path, each.path) for each in routes if method in each.methods)  # type: ignore[attr-defined]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "journal"
    folder.mkdir()
    record = incident(
        1, text=TEXT, excerpt=[TEXT], path=f"/{TEXT}.log", captures={"name": TEXT}, ranks=[TEXT], same_time=[TEXT],
        job={"id": TEXT, "user": TEXT, "rank": TEXT, "kind": "path", "confidence": "sure"},
        evidence=[{"what": "capture:name", "value": TEXT, "why": TEXT}],
    )  # fmt: skip
    segment_path(folder, 1).write_text(f"{json.dumps(record)}\n")
    return Node(journal_folder=folder, faults=(FAULT,), incidents=(INCIDENT,))


def over_socket(folder: Path, path: str, method: str, body: bytes | None = None) -> Answer:
    with closing(HTTPConnection("localhost", timeout=TIMEOUT)) as connection, control_socket.connect(folder) as sock:
        connection.sock = sock
        connection.request(method, path, body)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())


def has_text(answer: Answer) -> bool:
    return TEXT in answer.text


# Whoever the client claims to be: it is on this host, where jobs of other users run too.
NOBODY = [
    {},
    {"Host": "localhost:9873"},
    {"Host": "[::1]:9873"},
    {"Host": "gpu-07:9873"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-User": "root"},
    {"Authorization": "Basic cm9vdDo="},
    {"Authorization": "Bearer x"},
]


@pytest.mark.parametrize("headers", NOBODY, ids=str)
def test_a_client_on_this_host_reads_no_text_and_changes_nothing(node: Node, headers: dict[str, str]) -> None:
    reloads: list[int] = []
    node.on_reload = lambda: reloads.append(1) or []  # type: ignore[func-returns-value]
    with serving(node) as server:
        for path in paths("GET"):
            answer = ask(server, path, headers=headers)
            assert not has_text(answer), path
            assert answer.status == (403 if path.startswith("/api/v1/journal") else 200), path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in paths("POST"):
                answer = ask(server, path, method, headers, body=json.dumps(ASKED).encode())
                assert answer.status == (
                    403 if (method in ("POST", "PUT") and path == "/-/reload") or method == "POST" else 405
                )
                assert answer.status == 405 or "root" in answer.text
    assert (node.asked, reloads) == ([], [])


def rights(
    server: RunningServer, node: Node, headers: dict[str, str], site: Site, name: str | None
) -> tuple[bool, bool]:
    """Whether a client reads all that a job printed, and whether it changes all. Fails for one that does a part of it."""
    tls = site.client(name) if name is not None else None
    texts = [
        has_text(ask(server, path, headers=headers, tls=tls))
        for path in ("/", "/api/v1/incidents", "/api/v1/journal/1")
    ]
    body = json.dumps(ASKED).encode()
    changed = [ask(server, path, "POST", headers, tls=tls, body=body).status == 200 for path in paths("POST")]
    assert set(texts) < {True, False}
    assert set(changed) < {True, False}
    return texts[0], changed[0]


@pytest.mark.parametrize(
    ("config", "user", "certificate", "expected"),
    [
        (USERS, "ada", None, (True, False)),
        (USERS, "kim", None, (True, True)),
        (USERS.replace("administrators: [kim]", ""), "kim", None, (True, False)),
        (GIVEN, None, "fleet", (True, False)),
        (GIVEN + "administrators: [fleet]\n", None, "fleet", (True, True)),
        (GIVEN + "administrators: [other]\n", None, "fleet", (True, False)),
        (GIVEN, None, "", (False, False)),
        (TLS % "", None, "fleet", (False, False)),  # the server asks for no certificate
    ],
)
def test_who_proves_who_it_is_reads_and_administrators_change(
    node: Node, tmp_path: Path, config: str, user: str | None, certificate: str | None, expected: tuple[bool, bool]
) -> None:
    site = Site(tmp_path)
    site.write(config)
    headers = as_user(user, "secret") if user else {}
    with serving(node, active_config=ActiveConfig(site.path)) as server:
        assert rights(server, node, headers, site, certificate) == expected


def test_the_daemons_own_user_reads_and_changes_over_the_socket(node: Node, tmp_path: Path) -> None:
    site = Site(tmp_path)
    for config in ("", USERS):
        site.write(config)
        server = serve(["127.0.0.1:0"], router(node, "/metrics"), ActiveConfig(site.path), state_dir=tmp_path)
        try:
            assert (tmp_path / control_socket.NAME).stat().st_mode & 0o777 == 0o600
            for path in paths("GET"):
                assert over_socket(tmp_path, path, "GET").status == 200, path
            for path in ("/", "/api/v1/incidents", "/api/v1/journal/1"):
                assert has_text(over_socket(tmp_path, path, "GET")), path
            for path in paths("POST"):
                assert over_socket(tmp_path, path, "POST", json.dumps(ASKED).encode()).status == 200, path
        finally:
            server.close(TIMEOUT)
        assert not (tmp_path / control_socket.NAME).exists()


def test_an_administrator_must_be_a_user(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write(USERS.replace("[kim]", "[kim, sam]"))
    with pytest.raises(Exception, match="not a name of basic_auth_users") as refused:
        ActiveConfig(site.path)
    assert "administrators[1]" in str(refused.value)
