"""The puller against real web servers: what arrives in the history, once each, and what is told of the rest."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import structlog
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.fleet.history import pulled, schema
from exporter.fleet.history.insert import NewRows
from exporter.fleet.history.pulled import target_rows
from exporter.fleet.pull import status
from exporter.fleet.pull.puller import Puller
from exporter.store.journal import segments_in
from exporter.web.active_config import ActiveConfig
from tests.fleet.pull.nodes import NOW, Nodes, incident, name_of, serving_nodes
from tests.web.serving import TIMEOUT
from tests.web.test_active_config import USERS, VERIFIED, Site


class Clock:
    """The puller's clock: a pull is due when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Fleet:
    """A history and a puller, which a test starts anew as it likes."""

    def __init__(self, nodes: Nodes, **config: Any) -> None:
        self.db = duckdb.connect()
        schema.create(self.db)
        self.nodes, self.clock, self._config = nodes, Clock(), config
        nodes.closing += [self.close, self.db.close]
        self.restart()

    def close(self) -> None:
        self.puller.close(TIMEOUT)

    def restart(self, **config: Any) -> None:
        self._config |= config
        if hasattr(self, "puller"):
            self.close()
        self.puller = Puller(
            self.nodes.config(**self._config), structlog.get_logger(), clock=self.clock, monotonic=self.clock
        )

    def pull(self, after: float = 3600.0) -> None:
        """Pull all nodes to their ends. `after`: seconds that have passed."""
        self.clock.now += after
        self.puller._find_at = float("-inf")
        for _ in range(200):
            self.puller(self.db, lambda: False)
            states = {node.row.state for node in (self.puller._nodes or {}).values()}
            if states and not states & {"behind", "new"}:
                return
            self.clock.now += 1.0
        raise AssertionError(states)

    def numbers(self, number: int) -> list[int]:
        """The numbers of a node's incidents in the history, with repetitions."""
        rows = self.db.execute(
            "SELECT id FROM incident_rows WHERE node = ? ORDER BY time", [name_of(number)]
        ).fetchall()
        return [int(row[0].rpartition("-")[2]) for row in rows]

    def gaps(self) -> list[tuple[str, str, int]]:
        return self.db.execute("SELECT kind, path, count FROM gaps ORDER BY ALL").fetchall()

    def state(self, number: int) -> tuple[str, str]:
        self.puller._status_at = float("-inf")
        self.puller._changed = True
        self.puller(self.db, lambda: False)
        row = target_rows(self.db)[name_of(number)]
        return row.state, row.what


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path) as running:
        yield running


def test_journals_are_pulled_and_then_only_what_is_new(nodes: Nodes) -> None:
    nodes.write(1, 0, 50)
    nodes.write(2, 0, 3)
    fleet = Fleet(nodes)
    fleet.pull()
    assert (fleet.numbers(1), fleet.numbers(2)) == ([*range(50)], [*range(3)])
    sent = fleet.puller.counts.bytes
    assert sent == sum(path.stat().st_size for n in (1, 2) for _, path in segments_in(nodes.folder / name_of(n)))
    nodes.requests.clear()
    fleet.pull()
    assert nodes.requests == ["/api/v1/journal"] * 2  # not changed: one request each
    nodes.write(1, 50, 1)
    fleet.pull()
    assert (fleet.numbers(1), fleet.puller.counts.records, fleet.gaps()) == ([*range(51)], 54, [])
    assert fleet.puller.counts.bytes - sent == len(incident("n1", 50)) + 1


def test_a_node_is_pulled_again_when_its_interval_has_passed(nodes: Nodes) -> None:
    nodes.write(1, 0, 1)
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.write(1, 1, 1)
    fleet.pull(after=20)
    assert fleet.numbers(1) == [0]
    fleet.pull(after=20)
    assert fleet.numbers(1) == [0, 1]


def test_a_new_process_goes_on_where_the_history_ends(nodes: Nodes) -> None:
    nodes.write(1, 0, 40)
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.write(1, 40, 40)
    fleet.restart()
    fleet.pull()
    assert fleet.numbers(1) == [*range(80)]
    assert fleet.puller.counts.records == 40
    assert fleet.gaps() == []


def test_rotation_between_any_two_pulls_loses_and_doubles_nothing(nodes: Nodes) -> None:
    fleet = Fleet(nodes)
    for at in range(0, 200, 7):
        nodes.write(1, at, 7, pad="x" * 100)
        fleet.restart()
        fleet.pull()
        assert fleet.numbers(1) == [*range(at + 7)]
    assert segments_in(nodes.folder / "n1")[0][0] > 1  # the first segments are gone
    assert fleet.gaps() == []


@pytest.mark.parametrize("when", ["list", "range"])
def test_rotation_while_a_pull_is_under_way_loses_and_doubles_nothing(
    nodes: Nodes, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node writes a whole segment after each answer, and drops some before they are asked for."""
    written = 30

    def more(*_: object) -> None:
        nonlocal written
        if written < 60 and nodes.requests and (nodes.requests[-1] == "/api/v1/journal") == (when == "list"):
            nodes.write(1, written, 3, pad="x" * 1200)
            written += 3

    nodes.write(1, 0, 30, pad="x" * 1200)
    fleet = Fleet(nodes)
    app = next(iter(nodes.apps))
    plain = nodes.apps[app]

    async def writing(scope: Scope, receive: Receive, send: Send) -> None:
        await plain(scope, receive, send)
        more()

    nodes.apps[app] = writing
    fleet.pull()
    fleet.pull()
    lost = sum(count for kind, _, count in fleet.gaps() if kind == "dropped_segments")
    found = fleet.numbers(1)
    assert found == sorted(set(found))
    assert found[-1] == written - 1
    first = [*range(found[0], written)]
    assert len(first) - len(found) <= 3 * lost  # a segment has three records
    assert (first == found) == (lost == 0)


def test_segments_that_were_dropped_before_they_were_pulled_are_told(nodes: Nodes) -> None:
    nodes.write(1, 0, 3, pad="x" * 1200)
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.write(1, 3, 60, pad="x" * 1200)
    first = segments_in(nodes.folder / "n1")[0][0]
    fleet.pull()
    found = fleet.numbers(1)
    assert found[:3] == [0, 1, 2]
    assert found[3:] == [*range(found[3], 63)]
    assert found[3] > 3
    assert fleet.gaps() == [("dropped_segments", "n1", first - 1)]
    assert fleet.puller.counts.gaps == {"dropped_segments": first - 1}
    assert target_rows(fleet.db)["n1"].lost_segments == first - 1 or fleet.state(1)[0] == "ok"


def test_a_journal_that_begins_anew_is_read_from_its_start_and_told(nodes: Nodes) -> None:
    nodes.write(1, 0, 20)
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.journals[1].close()
    for _, path in segments_in(nodes.folder / "n1"):
        path.unlink()
    nodes.write(1, 20, 30)
    fleet.pull()
    assert fleet.numbers(1) == [*range(50)]
    assert fleet.gaps() == [("replaced_journal", "n1", 1)]


def test_a_segment_that_lost_its_end_in_a_power_failure_doubles_nothing(nodes: Nodes) -> None:
    nodes.write(1, 0, 10)
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.journals[1].close()
    (_, path) = segments_in(nodes.folder / "n1")[-1]
    data = path.read_bytes()
    path.write_bytes(data[: data.rfind(b"\n", 0, -1) + 1])  # the last record is written again, as the outbox does
    nodes.write(1, 9, 4)
    fleet.pull()
    assert fleet.numbers(1) == [*range(13)]


def test_an_unreachable_node_delays_no_other_and_is_told(nodes: Nodes) -> None:
    nodes.write(1, 0, 3)
    nodes.write(2, 0, 3)
    with serving_nodes(nodes.folder / "gone") as gone:
        closed = gone.port
    fleet = Fleet(nodes)
    nodes.target_file({"targets": [f"127.0.0.1:{closed}"], "labels": {"node": "absent"}})
    fleet.pull()
    assert fleet.numbers(1) == fleet.numbers(2) == [0, 1, 2]
    fleet.state(1)
    row = target_rows(fleet.db)["absent"]
    assert (row.state, row.what, row.pulled, row.failing_since) == (
        "unreachable",
        "Connection refused",
        None,
        fleet.clock.now,
    )
    counts = fleet.puller.counts
    assert (counts.failures, counts.targets["unreachable"], counts.targets["ok"]) == ({"connect": 1}, 1, 2)


def test_a_node_that_fails_is_asked_less_and_less_often(nodes: Nodes) -> None:
    nodes.instead[1] = PlainTextResponse("broken", 500)
    fleet = Fleet(nodes)
    fleet.pull()
    asked = []
    for _ in range(120):
        before = len(nodes.requests)
        fleet.pull(after=10)
        asked.append(len(nodes.requests) - before)
    assert 3 < sum(asked) < 12
    assert fleet.state(1) == ("invalid", "answered 500")
    del nodes.instead[1]
    nodes.write(1, 0, 2)
    fleet.pull()
    assert (fleet.state(1), fleet.numbers(1)) == (("ok", ""), [0, 1])


def test_a_target_that_disappears_and_comes_back_goes_on_where_it_was(nodes: Nodes) -> None:
    nodes.write(1, 0, 3)
    nodes.write(2, 0, 3)
    fleet = Fleet(nodes)
    fleet.pull()
    journal = nodes.journals.pop(1)
    nodes.target_file()
    fleet.pull()
    assert set(fleet.puller._nodes or {}) == {"n2"}
    nodes.journals[1] = journal
    nodes.write(1, 3, 3)
    nodes.target_file()
    fleet.pull()
    assert fleet.numbers(1) == [*range(6)]
    assert fleet.puller.counts.records == 9


def test_a_history_that_cannot_be_written_loses_nothing(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.write(1, 0, 30)
    fleet = Fleet(nodes)
    with monkeypatch.context() as patch:
        patch.setattr(pulled, "_put_gaps", _full)
        with pytest.raises(duckdb.IOException):
            fleet.pull()
    assert fleet.numbers(1) == []
    fleet.pull()
    assert fleet.numbers(1) == [*range(30)]


def _full(*_: object) -> None:
    raise duckdb.IOException("No space left on device")


def test_faults_and_boots_are_pulled_too(nodes: Nodes) -> None:
    time = "2026-05-26T12:10:00Z"
    fault = {"kind": "fault", "time": time, "node": "n1", "signature": "xid", "state": "open", "action": "reboot"}
    boot = {"id": "b1", "time": "2026-05-26T12:00:00Z"}
    facts = {"kind": "facts", "time": time, "node": "n1", "facts": {"os": "x"}, "boot": boot}
    nodes.write(1, 0, 1)
    nodes.journals[1].append([json.dumps(fault), json.dumps(facts)])
    fleet = Fleet(nodes)
    fleet.pull()
    assert fleet.db.execute("SELECT node, signature, action, state FROM faults").fetchall() == [
        ("n1", "xid", "reboot", "open")
    ]
    assert fleet.db.execute("SELECT node, boot, strftime(to_timestamp(time), '%H:%M') FROM boots").fetchall() == [
        ("n1", "b1", "12:00")
    ]


# Nodes that lie.


def test_records_that_name_another_node_are_counted_and_refused(nodes: Nodes) -> None:
    nodes.write(1, 0, 3)
    nodes.write(2, 0, 2)
    lies = ["n1", "n3", "", None, 7, "n2x", ["n2"]]
    nodes.journals[2].append([incident("n1", 100 + at, node=name) for at, name in enumerate(lies)])
    double = incident("n2", 50).replace('"node": "n2"', '"node": "n1", "node": "n2"')  # which one does a reader see?
    nodes.journals[2].append([double, incident("n2", 51, node="n2.cluster.example")])
    fleet = Fleet(nodes)
    fleet.pull()
    assert (fleet.numbers(1), fleet.numbers(2)) == ([0, 1, 2], [0, 1, 50, 51])
    assert fleet.puller.counts.refused == {"other_node": 4, "not_a_record": 3}  # "", None and a list name no node
    assert sorted(fleet.gaps()) == [("refused_not_a_record", "n2", 1), ("refused_not_a_record", "n2", 2),
        ("refused_other_node", "n2", 4)]  # fmt: skip
    assert [row[0] for row in fleet.db.execute("SELECT DISTINCT node FROM incident_rows ORDER BY 1").fetchall()] == [
        "n1",
        "n2",
    ]
    fleet.state(2)
    assert target_rows(fleet.db)["n2"].refused == len(lies)


def test_a_stolen_id_takes_nothing_from_its_owner(nodes: Nodes) -> None:
    nodes.write(2, 0, 1, id="n1-0", signature="stolen")
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.write(1, 0, 2)
    fleet.restart()
    fleet.pull()
    rows = fleet.db.execute("SELECT node, signature FROM incident_rows ORDER BY ALL").fetchall()
    assert rows == [("n1", "s"), ("n1", "s"), ("n2", "stolen")]


def test_lines_that_are_not_records_are_counted_and_the_rest_is_stored(nodes: Nodes) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    odd = [
        "",
        "x",
        "[]",
        deep,
        '{"kind":"incident","n":NaN}',
        '{"kind":"incident","n":1e999}',
        '{"kind":3}',
        "\0",
        "9" * 5000,
    ]
    nodes.segment_bytes = 8 << 20
    nodes.write(1, 0, 1)
    nodes.journals[1].append([*odd, incident("n1", 1, pad="x" * (1 << 20)), '{"kind":"later","node":"n9"}'])
    nodes.write(1, 2, 1, text="\u2028 \x00", path="\\x00", signature="s\0")
    nodes.write(1, 3, 1, time="yesterday")
    nodes.write(1, 3, 1, text="\ud800")
    nodes.write(1, 4, 1)
    fleet = Fleet(nodes)
    fleet.pull()
    assert fleet.numbers(1) == [0, 2, 4]
    assert fleet.puller.counts.refused == {"not_a_record": len(odd) - 1 + 2, "too_long": 1}
    assert fleet.puller.counts.records == 3


Answers = Callable[[str], Response]


def app(answers: Answers) -> ASGIApp:
    async def serve_it(scope: Scope, receive: Receive, send: Send) -> None:
        await answers(scope["path"])(scope, receive, send)

    return serve_it


def listing(*segments: tuple[object, object]) -> Response:
    return PlainTextResponse(
        json.dumps({"segments": [{"segment": number, "bytes": size} for number, size in segments]})
    )


def is_list(path: str) -> bool:
    return path.endswith("/journal")


def zipped(data: bytes) -> Response:
    return Response(data, headers={"Content-Encoding": "gzip"})


LIES: dict[str, Answers] = {
    "no JSON": lambda _: PlainTextResponse("hello"),
    "deep JSON": lambda _: PlainTextResponse("[" * 100_000),
    "no list": lambda _: PlainTextResponse('{"segments": 7}'),
    "negative": lambda _: listing((1, -5)),
    "huge numbers": lambda _: listing((1, 10**300)),
    "no numbers": lambda _: listing((True, 1.5)),
    "twice the same": lambda _: listing((1, 5), (1, 5)),
    "too many": lambda _: listing(*((number, 1) for number in range(20_000))),
    "a bomb for a list": lambda _: zipped(gzip.compress(b" " * (64 << 20))),
    "a bomb": lambda path: listing((1, 1 << 30)) if is_list(path) else zipped(gzip.compress(b"x" * (64 << 20))),
    "damaged gzip": lambda path: listing((1, 50)) if is_list(path) else zipped(gzip.compress(b"x\n")[:-9]),
    "not gzip": lambda path: listing((1, 50)) if is_list(path) else zipped(b"plain"),
    "half a line": lambda path: listing((1, 50)) if is_list(path) else PlainTextResponse("one\ntwo"),
    "a redirect": lambda _: Response(status_code=302, headers={"Location": "http://127.0.0.1/"}),
    "nothing of what it lists": lambda path: listing((1, 50)) if is_list(path) else PlainTextResponse("gone", 410),
    "not changed, though never asked": lambda _: Response(status_code=304),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_answers_nonsense_harms_nobody(nodes: Nodes, lie: str) -> None:
    nodes.instead[1] = app(LIES[lie])
    nodes.write(2, 0, 3)
    fleet = Fleet(nodes)
    fleet.pull()
    assert fleet.numbers(2) == [0, 1, 2]
    assert fleet.db.execute("SELECT count(*) FROM incident_rows WHERE node != 'n2'").fetchone() == (0,)
    assert fleet.state(1)[0] in ("ok", "invalid")
    assert fleet.state(2)[0] == "ok"


@pytest.mark.parametrize("drip", ["list", "range"])
def test_an_endless_answer_delays_no_other_node(nodes: Nodes, drip: str) -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if drip == "range" and is_list(scope["path"]):
            await listing((1, 10**9))(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not nodes.ending.is_set():
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.sleep(0.05)

    nodes.instead[1] = endless
    for number in range(2, 8):
        nodes.write(number, 0, 3)
    fleet = Fleet(nodes, timeout="5s", concurrency=2)
    begin = time.monotonic()
    fleet.clock.now += 1
    fleet.puller(fleet.db, lambda: all(fleet.numbers(number) for number in range(2, 8)))
    assert [len(fleet.numbers(number)) for number in range(2, 8)] == [3] * 6
    assert time.monotonic() - begin < 5  # before the endless one is given up
    fleet.pull()
    assert fleet.state(1) == ("unreachable", "no complete response within 5 s")


def test_a_node_that_sends_without_end_is_limited(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "BURST_BYTES", 10 << 20)
    block = b"".join(incident("n1", number, pad="x" * 1000).encode() + b"\n" for number in range(4000))[: 4 << 20]
    block = block[: block.rfind(b"\n") + 1]

    def answers(path: str) -> Response:
        return listing((1, 1 << 40)) if is_list(path) else zipped(gzip.compress(block, 1))

    nodes.instead[1] = app(answers)
    nodes.write(2, 0, 3)
    fleet = Fleet(nodes)
    fleet.pull()
    assert fleet.state(1) == ("limited", "sends more than 1.4 GB a day; the rest waits")
    assert 8 << 20 < fleet.puller.counts.bytes < 16 << 20
    nodes.write(2, 3, 3)
    nodes.requests.clear()
    fleet.pull(after=60)
    assert (fleet.numbers(2), nodes.requests.count("/api/v1/journal/1")) == ([*range(6)], 1)  # that of the other node


def test_what_duckdb_cannot_take_of_one_node_is_left_out_alone(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known that it cannot take; this is made up."""
    plain = pulled.insert

    def insert(db: duckdb.DuckDBPyConnection, rows: NewRows, *, now: float) -> Any:
        if any("poison" in row for row in rows.of["incidents"]):
            raise duckdb.ConversionException("cannot convert")
        return plain(db, rows, now=now)

    monkeypatch.setattr(pulled, "insert", insert)
    nodes.write(1, 0, 3)
    nodes.write(2, 0, 2, text="poison")
    fleet = Fleet(nodes)
    fleet.pull()
    nodes.write(2, 2, 2)
    fleet.pull()
    assert (fleet.numbers(1), fleet.numbers(2)) == ([0, 1, 2], [2, 3])
    assert fleet.gaps() == [("unusable_records", "n2", 2)]


# Access.


def test_nodes_are_asked_with_a_password_over_tls(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.certify("127.0.1.2")
    site.write(VERIFIED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven") % "" + USERS)
    password = tmp_path / "password"
    password.write_text("wrong\n")
    with serving_nodes(tmp_path / "nodes", ActiveConfig(site.path)) as nodes:
        (tmp_path / "nodes").mkdir(exist_ok=True)
        nodes.write(1, 0, 3)
        access = {"scheme": "https", "user": "ada", "password_file": str(password)}
        fleet = Fleet(nodes, **access, tls={"ca_file": str(tmp_path / "ca.crt")})
        fleet.pull()
        assert fleet.state(1)[0] == "refused"
        password.write_text("secret\n")  # it is read again
        fleet.pull()
        assert (fleet.state(1), fleet.numbers(1)) == (("ok", ""), [0, 1, 2])
        fleet.restart(tls={})
        nodes.write(1, 3, 1)
        fleet.pull()
        state, what = fleet.state(1)
        assert (state, "verify" in what or "certificate" in what) == ("unreachable", True)


def test_certificates_of_addresses_name_what_the_configuration_says(tmp_path: Path) -> None:
    """As on Kubernetes, where no certificate can name the addresses of pods to come."""
    site = Site(tmp_path)
    site.certify("gpufault.gpu.svc")
    site.write(VERIFIED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven") % "" + USERS)
    password = tmp_path / "password"
    password.write_text("secret\n")
    with serving_nodes(tmp_path / "nodes", ActiveConfig(site.path)) as nodes:
        (tmp_path / "nodes").mkdir(exist_ok=True)
        nodes.write(1, 0, 3)
        access = {"scheme": "https", "user": "ada", "password_file": str(password)}
        fleet = Fleet(nodes, **access, tls={"ca_file": str(tmp_path / "ca.crt")})
        fleet.pull()
        assert fleet.state(1)[0] == "unreachable"
        fleet.restart(**access, tls={"ca_file": str(tmp_path / "ca.crt")}, server_name="gpufault.gpu.svc")
        fleet.pull()
        assert (fleet.state(1), fleet.numbers(1)) == (("ok", ""), [0, 1, 2])


def test_nodes_are_asked_with_a_client_certificate(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.certify("127.0.1.2")
    site.write(VERIFIED % "")
    certificate = site.authority.issue_cert("fleet")
    certificate.private_key_pem.write_to_path(tmp_path / "fleet.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "fleet.crt")
    files = {"ca_file": "ca.crt", "cert_file": "fleet.crt", "key_file": "fleet.key"}
    with serving_nodes(tmp_path / "nodes", ActiveConfig(site.path)) as nodes:
        (tmp_path / "nodes").mkdir(exist_ok=True)
        nodes.write(1, 0, 3)
        tls = {key: str(tmp_path / name) for key, name in files.items()}
        fleet = Fleet(nodes, scheme="https", tls=tls)
        fleet.pull()
        assert (fleet.state(1), fleet.numbers(1)) == (("ok", ""), [0, 1, 2])
