"""`/api/v1/incidents` and who may read what a job printed, over the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from exporter.store.journal import segment_path
from exporter.web.active_config import ActiveConfig
from exporter.web.incidents_api import PUBLIC
from exporter.web.readers import Readers
from tests.web.serving import ADMINISTRATOR, Node, ask, serving
from tests.web.test_active_config import TLS, USERS, VERIFIED, Site, as_user

LINE = "RuntimeError: HIP error in /home/ada/train.py password=hunter2"


def incident(number: int, **more: Any) -> dict[str, Any]:
    """A record as the journal has it."""
    return {
        "kind": "incident", "id": f"i{number}", "time": f"2026-11-20T14:00:{number:02}.000Z", "time_source": "log",
        "node": "gpu-07", "signature": "hip_error", "root_cause": "driver_older_than_rocm", "severity": "error",
        "vendor": "amd", "layer": "runtime", "source": "job", "path": "/jobs/7.log", "line": 12, "offset": 900, "lines": 3,
        "last_time": f"2026-11-20T14:00:{number:02}.000Z", "text": LINE, "captures": {"name": "secretive"},
        "gpu": None, "job": {"id": "7", "user": "ada", "rank": None, "kind": "slurm", "confidence": "sure"}, "ranks": ["0"],
        "role": "root", "caused_by": None, "verdict": "infrastructure", "domain": "unknown", "restart": "unknown",
        "evidence": [{"what": "capture:name", "value": LINE, "why": "because"}], "remediation": "Upgrade.",
        "references": [], "same_time": [], "excerpt": [LINE], "recorded_time": f"2026-11-20T14:00:{number:02}.000Z",
        "late": False, **more,
    }  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "journal"
    folder.mkdir()
    return Node(journal_folder=folder)


def write(node: Node, *records: dict[str, Any]) -> None:
    segment_path(node.journal_folder, 1).write_text("".join(f"{json.dumps(record)}\n" for record in records))


def ids(text: str) -> list[str]:
    return [one["id"] for one in json.loads(text)["incidents"]]


def test_the_answer_has_the_journals_records_with_titles_the_latest_first(node: Node) -> None:
    write(node, incident(1, text="HIP error"), incident(2, text="HIP error"))
    with serving(node, client=ADMINISTRATOR) as server:
        answer = ask(server, "/api/v1/incidents")
    found = json.loads(answer.text)
    assert answer.headers["content-type"] == "application/json"
    assert (found["node"], found["lines_shown"], found["next"]) == ("gpu-07", True, None)
    assert [set(one) for one in found["incidents"]] == [set(incident(1))] * 2
    assert (found["incidents"][0]["id"], found["incidents"][0]["text"]) == ("i2", "HIP error")
    assert found["titles"] == {name: f"Title of {name}" for name in ("driver_older_than_rocm", "hip_error")}


def test_filters_limit_and_pages(node: Node) -> None:
    records = [
        incident(1, root_cause="unknown"),
        incident(2, job=None),
        incident(3, signature="other", root_cause="unknown"),
        *map(incident, range(4, 9)),
    ]
    write(node, *records)
    with serving(node) as server:

        def found(query: str) -> list[str]:
            return ids(ask(server, f"/api/v1/incidents?{query}").text)

        assert found("cause=hip_error") == ["i1"]
        assert found("cause=driver_older_than_rocm&limit=2") == ["i8", "i7"]
        assert found("signature=other") == ["i3"]
        assert found("job=8") == []
        assert "i2" not in found("job=7")
        assert found("since=2026-11-20T14:00:06Z") == ["i8", "i7", "i6"]
        assert found("since=1795183207") == found("since=" + quote("2026-11-20T15:00:07+01:00")) != []
        pages, before = [], ""
        while True:
            answer = json.loads(ask(server, f"/api/v1/incidents?limit=3{before}").text)
            pages.append([one["id"] for one in answer["incidents"]])
            if answer["next"] is None:
                break
            before = f"&before={answer['next']}"
    assert pages == [["i8", "i7", "i6"], ["i5", "i4", "i3"], ["i2", "i1"]]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=" + "9" * 5000, "limit=%D9%A3", "since=yesterday", "since=nan",
     "since=inf", "before=x", "colour=red", "%1b[31m=x"],
)  # fmt: skip
def test_an_invalid_query_is_refused_in_one_printable_line(node: Node, query: str) -> None:
    with serving(node) as server:
        answer = ask(server, f"/api/v1/incidents?{query}")
    assert answer.status == 400
    assert answer.text.removesuffix("\n").isprintable()


def test_a_journal_that_cannot_be_read_is_reported(node: Node) -> None:
    segment_path(node.journal_folder, 1).mkdir()
    with serving(node) as server:
        answer = ask(server, "/api/v1/incidents")
    assert (answer.status, answer.text) == (503, "the journal cannot be read: Is a directory\n")


# Who may read lines.


def shows_lines(text: str) -> bool:
    """Whether an answer has what the job printed. Fails for one that has a part of it."""
    answer = json.loads(text)
    (found,) = answer["incidents"]
    whole = set(found) == set(incident(1))
    assert whole or set(found) == PUBLIC
    assert whole == ("excerpt" in text) == ("secretive" in text) == ('"ada"' in text) == answer["lines_shown"]
    assert "hunter2" not in text
    return whole


def test_lines_are_for_everyone_on_a_trusted_network(node: Node) -> None:
    write(node, incident(1))
    with serving(node, readers=Readers(everyone=True)) as server:
        assert shows_lines(ask(server, "/api/v1/incidents", headers={"Host": "gpu-07"}).text)


def test_lines_are_for_users(node: Node, tmp_path: Path) -> None:
    write(node, incident(1))
    site = Site(tmp_path)
    site.write(USERS)
    with serving(node, active_config=ActiveConfig(site.path)) as server:
        assert ask(server, "/api/v1/incidents").status == 401
        user = {"Host": "gpu-07", **as_user("ada", "secret")}
        assert shows_lines(ask(server, "/api/v1/incidents", headers=user).text)


def test_lines_are_for_clients_with_a_verified_certificate(node: Node, tmp_path: Path) -> None:
    write(node, incident(1))
    site = Site(tmp_path)
    given = VERIFIED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven") % ""
    for text, name, shown in (
        (VERIFIED % "", "fleet", True),
        (given, "fleet", True),
        (given, None, False),
        (TLS % "", "fleet", False),  # the server asks for no certificate
    ):
        site.write(text)
        with serving(node, "127.0.0.1:0", active_config=ActiveConfig(site.path)) as server:
            answer = ask(server, "/api/v1/incidents", headers={"Host": "gpu-07"}, tls=site.client(name))
            assert shows_lines(answer.text) is shown
