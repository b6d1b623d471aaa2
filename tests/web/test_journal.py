"""`/api/v1/journal`: the journal's segments as a client that copies them reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from exporter.store.journal import MAX_RANGE_BYTES, Journal, list_segments, read_range, segment_path
from exporter.web.active_config import ActiveConfig
from exporter.web.readers import Readers
from exporter.web.serving import RunningServer
from tests.web.serving import Answer, Node, ask, serving
from tests.web.test_active_config import USERS, VERIFIED, Site, as_user

TRUSTED = Readers(everyone=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "journal"
    folder.mkdir()
    return Node(journal_folder=folder)


def listed(answer: Answer) -> list[tuple[int, int]]:
    assert answer.status == 200
    return [(one["segment"], one["bytes"]) for one in json.loads(answer.text)["segments"]]


def copied(server: RunningServer, *, count: int) -> bytes:
    """All segments, read in ranges."""
    whole = b""
    for number, size in listed(ask(server, "/api/v1/journal")):
        offset = 0
        while offset < size:
            data = ask(server, f"/api/v1/journal/{number}?offset={offset}&bytes={count}").body
            assert data.endswith(b"\n")
            offset += len(data)
            whole += data
    return whole


def test_the_ranges_of_all_segments_are_the_journal(node: Node) -> None:
    journal = Journal(node.journal_folder, 8 * 4096)
    journal.append([json.dumps({"number": number, "pad": "x" * 300}) for number in range(60)])
    journal.close()
    whole = b"".join(
        segment_path(node.journal_folder, one.number).read_bytes() for one in list_segments(node.journal_folder)
    )
    assert len(list_segments(node.journal_folder)) > 3
    with serving(node, readers=TRUSTED) as server:
        for count in (1, 400, 1000, MAX_RANGE_BYTES):
            assert copied(server, count=count) == whole


def test_a_line_that_is_being_written_comes_when_it_is_complete(node: Node) -> None:
    path = segment_path(node.journal_folder, 1)
    path.write_bytes(b"one\ntw")
    with serving(node, readers=TRUSTED) as server:
        assert ask(server, "/api/v1/journal/1").body == b"one\n"
        assert ask(server, "/api/v1/journal/1?offset=4").body == b""
        path.write_bytes(b"one\ntwo\n")
        assert ask(server, "/api/v1/journal/1?offset=4").body == b"two\n"
        assert ask(server, "/api/v1/journal/1?offset=8").body == b""
        assert ask(server, "/api/v1/journal/1?offset=900").body == b""


def test_a_line_longer_than_the_range_comes_whole_and_one_beyond_the_bound_in_parts(node: Node) -> None:
    long, endless = b"x" * 5000 + b"\n", b"y" * (MAX_RANGE_BYTES + 5) + b"\n"
    segment_path(node.journal_folder, 1).write_bytes(long + endless + b"end\n")
    assert read_range(node.journal_folder, 1, 0, 10) == long
    parts, offset = [], len(long)
    while part := read_range(node.journal_folder, 1, offset, 4000):
        parts.append(part)
        offset += len(part)
    assert b"".join(parts) == endless + b"end\n"
    assert len(parts[0]) == MAX_RANGE_BYTES


def test_an_answer_is_compressed_and_has_an_entity_tag(node: Node) -> None:
    segment_path(node.journal_folder, 1).write_bytes(b"a line\n" * 10_000)
    with serving(node, readers=TRUSTED) as server:
        for path in ("/api/v1/journal", "/api/v1/journal/1", "/api/v1/journal/1?offset=7&bytes=70"):
            plain, zipped = ask(server, path), ask(server, path, headers={"Accept-Encoding": "gzip"})
            assert gzip.decompress(zipped.body) == plain.body
            assert (plain.headers["vary"], zipped.headers["content-encoding"]) == ("Accept-Encoding", "gzip")
            assert plain.headers["etag"] != zipped.headers["etag"]
            for tag in (plain.headers["etag"], f'"x", W/{plain.headers["etag"]}', "*"):
                again = ask(server, path, headers={"If-None-Match": tag})
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", plain.headers["etag"])
        tag = ask(server, "/api/v1/journal").headers["etag"]
        with segment_path(node.journal_folder, 1).open("ab") as file:
            file.write(b"more\n")
        assert ask(server, "/api/v1/journal", headers={"If-None-Match": tag}).status == 200


def test_a_deleted_segment_is_not_found_and_the_list_has_the_others(node: Node) -> None:
    journal = Journal(node.journal_folder, 8 * 4096)
    with serving(node, readers=TRUSTED) as server:
        journal.append(["x" * 3000] * 8)
        first = listed(ask(server, "/api/v1/journal"))
        journal.append(["x" * 3000] * 8)
        journal.close()
        second = listed(ask(server, "/api/v1/journal"))
        assert first[-1][0] < second[0][0]
        answer = ask(server, f"/api/v1/journal/{first[0][0]}")
        assert (answer.status, answer.text) == (404, "no segment 1; it was deleted, or is not written yet\n")


@pytest.mark.parametrize(
    "query", ["offset=-1", "offset=x", "offset=" + "9" * 17, "bytes=0", f"bytes={MAX_RANGE_BYTES + 1}", "from=1"]
)
def test_an_invalid_range_is_refused(node: Node, query: str) -> None:
    segment_path(node.journal_folder, 1).write_bytes(b"x\n")
    with serving(node, readers=TRUSTED) as server:
        assert ask(server, f"/api/v1/journal/1?{query}").status == 400
        assert ask(server, "/api/v1/journal/../../etc/passwd").status == 404


def test_the_journal_is_for_authenticated_clients(node: Node, tmp_path: Path) -> None:
    segment_path(node.journal_folder, 1).write_bytes(b"x\n")
    paths = ("/api/v1/journal", "/api/v1/journal/1")
    with serving(node) as server:  # on loopback, too: another user of the node is no fleet service
        for path in paths:
            answer = ask(server, path)
            assert (answer.status, "configure users" in answer.text) == (403, True)
    site = Site(tmp_path)
    site.write(USERS)
    with serving(node, active_config=ActiveConfig(site.path)) as server:
        assert [ask(server, path).status for path in paths] == [401, 401]
        assert [ask(server, path, headers=as_user("ada", "secret")).status for path in paths] == [200, 200]
    site.write(VERIFIED % "")
    with serving(node, active_config=ActiveConfig(site.path)) as server:
        assert [ask(server, path, tls=site.client("fleet")).status for path in paths] == [200, 200]
