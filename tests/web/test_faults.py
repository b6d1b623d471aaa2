"""The endpoints of node faults: who may see and who may clear what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from exporter.core.diagnosis.node_faults import Fault
from exporter.core.diagnosis.recoveries import Recovery
from exporter.web.active_config import ActiveConfig
from exporter.web.readers import Readers
from exporter.web.serving import RunningServer
from tests.web.serving import Node, ask, serving

GPU = "0000:c1:00.0"
FAULT = Fault(
    time=1.0, last_time=1.0, count=2, signature="nv_xid_48_double_bit_ecc", root_cause="gpu_reset_required", title="a cause",
    gpu=GPU, job=None, remediation="Reset it.", incident="1", action="reset_gpu", openings=(1.0,),
)  # fmt: skip
CLEARED = replace(FAULT, gpu="0000:c2:00.0", cleared=Recovery(kind="operator", time=9.0, reason="=reset<b>", who="kim"))
ASKED = {"gpu": "C1:00.0", "reason": "card replaced, ticket 4711"}


@pytest.fixture
def node() -> Node:
    return Node(faults=(FAULT,), cleared=(CLEARED,))


@pytest.fixture
def users(tmp_path: Path) -> ActiveConfig:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (path := tmp_path / "web.yaml").write_text(f"basic_auth_users: {{kim: '{hashed}'}}\nadministrators: [kim]\n")
    return ActiveConfig(path)


def post(server: RunningServer, body: object = None, **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body or ASKED).encode()
    return ask(server, "/api/v1/faults/clear", method="POST", body=data, headers=headers)


@pytest.mark.parametrize(
    ("query", "listed"), [("", [GPU, "0000:c2:00.0"]), ("?state=open", [GPU]), ("?state=cleared", ["0000:c2:00.0"])]
)
def test_faults_are_listed_by_their_state(node: Node, query: str, listed: list[str]) -> None:
    with serving(node) as running:
        told = json.loads(ask(running, f"/api/v1/faults{query}").text)
        assert ask(running, "/api/v1/faults?state=closed").status == 400
    assert told["node"] == "gpu-07"
    assert sorted(fault["gpu"] for fault in told["faults"]) == listed
    states = {fault["gpu"]: (fault["state"], fault["cleared"]) for fault in told["faults"]}
    if CLEARED.gpu in states:
        state, cleared = states[CLEARED.gpu]
        assert state == "cleared"
        assert (cleared["kind"], cleared["reason"], cleared["who"]) == ("operator", "=reset<b>", "kim")


def test_a_user_clears_a_fault_under_his_name(node: Node, users: ActiveConfig) -> None:
    with serving(node, active_config=users) as running:
        answer = post(running, Authorization="Basic a2ltOnNlY3JldA==")
    assert (answer.status, json.loads(answer.text)) == (200, {"cleared": [{"gpu": GPU}]})
    assert [(a.gpu, a.reason, a.who) for a in node.asked] == [(GPU, "card replaced, ticket 4711", "kim")]


@pytest.mark.parametrize("readers", [Readers(), Readers(everyone=True)], ids=["authenticated", "everyone"])
def test_nobody_else_does_not_even_over_loopback(node: Node, readers: Readers) -> None:
    with serving(node, readers=readers) as running:
        answer = post(running)
    assert answer.status == 403
    assert "gpufault clear" in answer.text
    assert node.asked == []


def test_a_page_in_a_users_browser_does_not_either(node: Node, users: ActiveConfig) -> None:
    with serving(node, active_config=users) as running:
        address = running.addresses[0]
        for headers in ({"Origin": f"http://{address}"}, {"Sec-Fetch-Site": "same-origin"}):
            assert post(running, Authorization="Basic a2ltOnNlY3JldA==", **headers).status == 403
    assert node.asked == []


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 5000, 400, "not JSON"),
        ([GPU], 422, "JSON object"),
        ({"gpu": GPU}, 422, "reason"),
        ({"gpu": GPU, "reason": "  "}, 422, "reason"),
        ({"gpu": GPU, "reason": "x" * 501}, 422, "reason"),
        ({"gpu": "the first", "reason": "x"}, 422, "PCI address"),
        ({"gpu": GPU, "reason": "x", "force": True}, 422, "JSON object"),
        ({"gpu": "0000:c9:00.0", "reason": "x"}, 422, f"no open fault of 0000:c9:00.0; open faults: {GPU}"),
        ({"gpu": "node", "reason": "x"}, 422, "no open fault of node"),
        (b" " * 9000, 413, "8192 bytes"),
    ],
)
def test_what_is_wrong_is_told_and_clears_nothing(
    node: Node, users: ActiveConfig, body: object, status: int, told: str
) -> None:
    with serving(node, active_config=users) as running:
        answer = post(running, body, Authorization="Basic a2ltOnNlY3JldA==")
    assert answer.status == status
    assert told in json.loads(answer.text)["error"]
    assert node.asked == []
