"""One secret opens one door: what a compromised node sees of the service's requests opens no other node, and clears nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.config.pull import PullConfig
from exporter.core.text.problems import InvalidInput
from exporter.fleet.history.store import Store
from exporter.fleet.pull.puller import Puller
from exporter.net.tokens import ISSUER, SCOPE, is_valid, public_keys, sign
from exporter.store.journal import Journal
from exporter.web.active_config import ActiveConfig
from exporter.web.routes import router
from exporter.web.serving import RunningServer, serve
from tests.web.serving import TIMEOUT, Node, ask
from tests.web.test_faults import ASKED, FAULT

from .nodes import incident


def pair(key: Any = None) -> tuple[str, str]:
    """A private and a public key in PEM form."""
    key = key or Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Machine:
    """A node with its real web server at an address of loopback; `heard`: the headers of requests to it."""

    def __init__(self, folder: Path, number: int, public: str) -> None:
        self.host, self.name = f"127.0.0.{number}", f"n{number}"
        self.heard: list[dict[str, str]] = []
        folder = folder / self.name
        self._journal = Journal(folder / "journal", 1 << 20)
        self._journal.append([incident(self.name, at) for at in range(3)])
        self._keys = folder / "keys.pem"
        self._keys.write_text(public)
        (folder / "web.yaml").write_text("token_keys_file: keys.pem\n")
        self.node = Node(journal_folder=folder / "journal", faults=(FAULT,), name=self.name)
        self.config = ActiveConfig(folder / "web.yaml")
        app = self._listening(router(self.node, "/metrics"))
        self._looked = threading.Event()
        self.server: RunningServer = serve(
            [f"{self.host}:0"], app, self.config, node=self.name, on_config_change=self._looked.set
        )
        self.address = self.server.addresses[0]

    def _listening(self, app: ASGIApp) -> ASGIApp:
        async def listen(scope: Scope, receive: Receive, send: Send) -> None:
            self.heard.append(dict(Request(scope).headers))
            await app(scope, receive, send)

        return listen

    def replace_keys(self, public: str) -> None:
        """Replace the file at once, and wait for the server's next look: a look from here would race with it."""
        new = self._keys.with_suffix(".new")
        new.write_text(public)
        self._looked.clear()
        new.replace(self._keys)
        assert self._looked.wait(TIMEOUT)
        assert not self.config.problems

    def close(self) -> None:
        self.server.close(5.0)
        self._journal.close()


@pytest.fixture
def keys() -> tuple[str, str]:
    return pair()


@pytest.fixture
def machines(tmp_path: Path, keys: tuple[str, str]) -> Iterator[list[Machine]]:
    with ExitStack() as stack:
        found = [Machine(tmp_path, number, keys[1]) for number in (3, 7)]
        for machine in found:
            stack.callback(machine.close)
        yield found


def pulled(folder: Path, private: str, **sources: Any) -> list[str]:
    """The ids of what the service pulls in one life."""
    (folder / "key.pem").write_text(private)
    config = PullConfig.model_validate({**sources, "token_key_file": folder / "key.pem", "timeout": "5s"})
    puller = Puller(config, structlog.wrap_logger(structlog.PrintLogger()))
    store = Store(folder / "history.duckdb")
    store.read_once(puller)
    puller.close(5.0)
    ids = [row["id"] for row in store.rows("SELECT id FROM incident_rows ORDER BY id")]
    store.close()
    return ids


def targets(folder: Path, machines: list[Machine]) -> dict[str, Any]:
    groups = [{"targets": [each.address], "labels": {"node": each.name}} for each in machines]
    (folder / "targets.json").write_text(json.dumps(groups))
    return {"files": [str(folder / "targets.json")]}


@pytest.mark.parametrize("discovery", ["files", "dns"])
def test_what_a_compromised_node_hears_opens_no_other_and_clears_nothing(
    tmp_path: Path, keys: tuple[str, str], machines: list[Machine], discovery: str
) -> None:
    honest, compromised = machines
    if discovery == "files":
        sources = targets(tmp_path, machines)
    else:
        compromised.node.name = "n3"  # so that the service asks it for its name, with a token, as for the honest one
        sources = {"dns": [each.address for each in machines], "dns_names": "daemon"}
    ids = pulled(tmp_path, keys[0], **sources)
    assert {f"n3-{at}" for at in range(3)} <= set(ids) or discovery == "dns"
    stolen = [heard for heard in compromised.heard if "authorization" in heard]
    assert stolen
    for heard in stolen:
        headers = {"Authorization": heard["authorization"]}
        assert ask(compromised.server, "/api/v1/journal", headers=headers).status == 200
        assert ask(honest.server, "/api/v1/journal", headers=headers).status == 403
        assert json.loads(ask(honest.server, "/api/v1/incidents", headers=headers).text)["lines_shown"] is False
        for machine in machines:
            answer = ask(machine.server, "/api/v1/faults/clear", "POST", headers, body=json.dumps(ASKED).encode())
            assert answer.status == 403
            assert ask(machine.server, "/-/reload", "POST", headers).status == 403
    assert (honest.node.asked, compromised.node.asked) == ([], [])


def test_keys_are_replaced_without_a_gap(tmp_path: Path, keys: tuple[str, str], machines: list[Machine]) -> None:
    new = pair(new_ec_key(SECP256R1()))
    everything = [f"n{node}-{at}" for node in (3, 7) for at in range(3)]
    for machine in machines:
        machine.replace_keys(keys[1] + new[1])
    for at, (private, _) in enumerate((keys, new)):
        (tmp_path / str(at)).mkdir()
        assert pulled(tmp_path / str(at), private, **targets(tmp_path, machines)) == everything
    for machine in machines:
        machine.replace_keys(new[1])
    (tmp_path / "old").mkdir()
    assert pulled(tmp_path / "old", keys[0], **targets(tmp_path, machines)) == []


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"iss": ISSUER, "scope": SCOPE, "aud": ["n3"], "iat": now, "exp": now + 60, **more}


@pytest.mark.parametrize(
    ("audience", "accepted"),
    [(["n3"], True), (["n3.example.org"], True), (["10.0.0.3"], True), (["n7", "10.0.0.3"], True), (["::ffff:10.0.0.3"], True),
     (["n7"], False), (["n33"], False), (["10.0.0.7"], False), ([], False), ([""], False), ("n3", False), ([3], False)],
)  # fmt: skip
def test_a_token_is_for_the_node_or_the_address_that_it_names(
    keys: tuple[str, str], audience: Any, *, accepted: bool
) -> None:
    key = jwt.algorithms.OKPAlgorithm().prepare_key(keys[0])
    token = jwt.encode(claims(aud=audience), key, algorithm="EdDSA")
    assert is_valid(token, public_keys(keys[1]), "n3", "::ffff:10.0.0.3") is accepted


def test_what_is_not_signed_so_is_no_token(keys: tuple[str, str]) -> None:
    public = public_keys(keys[1])
    key = jwt.algorithms.OKPAlgorithm().prepare_key(keys[0])
    assert is_valid(sign(keys[0], ["n3"]), public, "n3", "")
    assert not is_valid(sign(pair()[0], ["n3"]), public, "n3", "")
    for wrong in ({"exp": 1}, {"scope": "clear"}, {"iss": "other"}, {"exp": None}, {"aud": None}, {"nbf": 1 << 40}):
        body = {name: value for name, value in claims(**wrong).items() if value is not None}
        assert not is_valid(jwt.encode(body, key, algorithm="EdDSA"), public, "n3", ""), wrong
    assert not is_valid(jwt.encode(claims(), None, algorithm="none"), public, "n3", "")
    assert not is_valid(jwt.encode(claims(), "x" * 64, algorithm="HS256"), public, "n3", "")
    for text in ("", "x", "a.b.c", "x" * 100_000):
        assert not is_valid(text, public, "n3", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no public key"), ("private", "a private key"), (pair(new_ec_key(SECP256R1()))[0], "private key")],
)
def test_a_file_without_public_keys_is_refused_and_not_repeated(
    tmp_path: Path, keys: tuple[str, str], text: str, told: str
) -> None:
    (tmp_path / "keys.pem").write_text(keys[0] if text == "private" else text)
    (tmp_path / "web.yaml").write_text("token_keys_file: keys.pem\n")
    with pytest.raises(InvalidInput) as refused:
        ActiveConfig(tmp_path / "web.yaml")
    assert told in str(refused.value)
    assert "BEGIN" not in str(refused.value)
