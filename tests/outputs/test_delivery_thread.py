"""A delivery and a real server that fails in every way: what the journal holds arrives, and what does not is counted."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from exporter.config.outputs import WebhookConfig
from exporter.outputs.delivery import Delivery, OutputCounts, RequestFormat
from exporter.outputs.journal_reader import JournalPosition, end_position, start_position
from exporter.outputs.webhook import WebhookFormat
from exporter.store.journal import Journal, JournalEnd
from tests.e2e.conftest import eventually
from tests.e2e.test_prometheus import free_port
from tests.outputs.receivers import (
    Behaviour,
    Handler,
    Receiver,
    answers,
    babbles,
    cuts_short,
    drips,
    half_closes,
    hangs,
    receiving,
    resets,
)

SEGMENTS = 8
QUICK = {"first": "1ms", "most": "5ms"}


def incident(number: int, **rest: Any) -> str:
    return json.dumps({"kind": "incident", "id": f"i{number}", "time": "2023-11-14T22:13:20Z", "lines": 1, **rest})


class Ship:
    """A journal, a delivery of it, and all that it told."""

    def __init__(
        self, folder: Path, url: str, form: Callable[[], RequestFormat] = WebhookFormat, **settings: Any
    ) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.total = OutputCounts()
        self.place: JournalPosition | None = None
        end = Journal(folder, SEGMENTS * 4096).end
        config = WebhookConfig.model_validate({"url": url, "retry": QUICK, **settings})
        self.delivery = Delivery(
            "webhook",
            config,
            form,
            folder=folder,
            position=end_position(folder, end),
            log=lambda level, what: self.said.append(f"{level}: {what}"),
        )
        self.journal = Journal(folder, SEGMENTS * 4096, before_drop=self.delivery.before_drop)

    def write(self, *records: str) -> None:
        self.journal.append(records)
        self.delivery.wake(self.journal.end)

    def taken(self) -> OutputCounts:
        """All that has happened since the beginning."""
        self.place, tally = self.delivery.take_progress()
        self.total.sent += tally.sent
        self.total.dropped += tally.dropped
        self.total.failed += tally.failed
        return self.total

    def all_passed(self) -> OutputCounts:
        """Wait until nothing is left to send."""

        def passed() -> OutputCounts | None:
            tally = self.taken()
            return tally if self.place and self.place[:2] == self.journal.end else None

        return eventually(passed)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@contextmanager
def shipping(folder: Path, url: str, **settings: Any) -> Iterator[Ship]:
    ship = Ship(folder / "journal", url, **settings)
    ship.delivery.start()
    try:
        yield ship
    finally:
        ship.delivery.stop(10.0)
        ship.journal.close()


def test_each_incident_arrives_once_and_in_order_and_nothing_else_does(tmp_path: Path, receiver: Receiver) -> None:
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(incident(1), '{"kind":"heartbeat","hours":1}', incident(2))
        ship.write('{"kind":"facts","facts":{}}', incident(3))
        assert ship.all_passed().sent == 3
    assert receiver.ids == ["i1", "i2", "i3"]
    assert ship.total.failed == ship.total.dropped == {}
    assert ship.delivery.up


def test_incidents_that_wait_share_a_request_up_to_the_batch(tmp_path: Path, receiver: Receiver) -> None:
    receiver.next_ones = [answers(503)]
    with shipping(tmp_path, receiver.url, batch=3, retry={"first": "2s", "most": "2s"}) as ship:
        ship.write(incident(0))
        receiver.got(1)
        ship.write(*(incident(number) for number in range(1, 8)))
        ship.all_passed()
    assert [request.ids for request in receiver.requests] == [
        ["i0"],
        ["i0"],
        ["i1", "i2", "i3"],
        ["i4", "i5", "i6"],
        ["i7"],
    ]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (answers(500), "http_5xx"),
        (answers(502), "http_5xx"),
        (answers(503), "http_5xx"),
        (answers(504), "http_5xx"),
        (answers(429), "http_429"),
        (answers(408), "http_4xx"),
        (answers(401, b"the token has run out"), "http_4xx"),
        (answers(403), "http_4xx"),
        (answers(404), "http_4xx"),
        (answers(302, Location="http://127.0.0.1:1/"), "http_3xx"),
        (hangs, "timeout"),
        (drips, "timeout"),
        (half_closes, "protocol"),
        (resets, "protocol"),
        (babbles, "protocol"),
        (cuts_short, "protocol"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_fails_is_sent_again_until_it_is_taken(
    tmp_path: Path, receiver: Receiver, behaviour: Behaviour, reason: str
) -> None:
    receiver.next_ones = [behaviour] * 2
    with shipping(tmp_path, receiver.url, timeout="300ms") as ship:
        ship.write(incident(1), incident(2))
        tally = ship.all_passed()
    assert tally.failed == {reason: 2}
    assert receiver.ids == ["i1", "i1", "i1", "i2"]
    assert (tally.sent, tally.dropped) == (2, {})
    keys = {request.headers["idempotency-key"] for request in receiver.requests[:3]}
    assert keys == {"i1.1"}
    first, *_, last = ship.said
    assert first.startswith("warning: http://127.0.0.1:")
    assert (len(ship.said), last) == (2, "info: sending works again")  # not a word for each attempt


@pytest.mark.parametrize("status", [400, 413, 422])
def test_of_a_batch_that_is_refused_only_what_is_at_fault_is_lost(
    tmp_path: Path, receiver: Receiver, status: int
) -> None:
    def refuses_the_fourth(handler: Any) -> None:
        at_fault = "i4" in receiver.requests[-1].ids
        answers(status if at_fault else 200, b"cannot read i4" if at_fault else b"")(handler)

    receiver.behaviour = refuses_the_fourth
    with shipping(tmp_path, receiver.url, batch=8) as ship:
        ship.write(*(incident(number) for number in range(8)))
        tally = ship.all_passed()
    assert tally.dropped == {"refused": 1}
    assert tally.sent == 7
    taken = [i for request in receiver.requests if "i4" not in request.ids for i in request.ids]
    assert sorted(taken) == ["i0", "i1", "i2", "i3", "i5", "i6", "i7"]
    assert "answered" in ship.said[0]
    assert "cannot read i4" in ship.said[0]


def test_a_receiver_that_asks_for_a_pause_gets_it(tmp_path: Path, receiver: Receiver) -> None:
    receiver.next_ones = [answers(429, Retry_After="1")]
    times: list[float] = []
    receiver.before_answer = lambda _request: times.append(time.monotonic())
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(incident(1))
        ship.all_passed()
    assert times[1] - times[0] >= 0.95  # else it would be 5 ms


def test_nobody_listens_and_then_somebody_does(tmp_path: Path) -> None:
    port = free_port()
    with shipping(tmp_path, f"http://127.0.0.1:{port}/v1/logs") as ship:
        ship.write(*(incident(number) for number in range(5)))
        eventually(lambda: ship.taken().failed["connect"] >= 3 or None)
        assert not ship.delivery.up
        assert ship.delivery.lag(time.time()) > 1e6  # since 2023
        with receiving(port=port) as receiver:
            ship.all_passed()
            assert receiver.ids == ["i0", "i1", "i2", "i3", "i4"]
        assert ship.delivery.up
        assert ship.delivery.lag(time.time()) == 0.0
    assert ship.said[0] == f"warning: http://127.0.0.1:{port}: Connection refused"


def test_what_leaves_the_journal_before_it_was_received_is_counted(tmp_path: Path, receiver: Receiver) -> None:
    receiver.behaviour = answers(503)
    with shipping(tmp_path, receiver.url) as ship:
        total = 200
        for number in range(total):
            ship.write(incident(number, text="x" * 400), '{"kind":"heartbeat","hours":1}')
        receiver.behaviour = answers(200)
        tally = ship.all_passed()
        dropped = tally.dropped["journal"]
        taken = receiver.ids[-tally.sent :]
    assert dropped > 100
    assert dropped + tally.sent == total
    assert taken == [f"i{number}" for number in range(dropped, total)]


def test_a_record_that_is_dropped_while_it_is_sent_counts_once(tmp_path: Path, receiver: Receiver) -> None:
    total, asked, dropped = 200, threading.Event(), threading.Event()

    def answers_late(handler: Handler) -> None:
        asked.set()
        dropped.wait(30)
        answers(200)(handler)

    receiver.behaviour = answers_late
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(incident(0, text="x" * 400))
        assert asked.wait(30)
        for number in range(1, total):
            ship.write(incident(number, text="x" * 400))
        dropped.set()
        tally = ship.all_passed()
    assert tally.dropped["journal"] + tally.sent == total


def test_a_journal_that_somebody_removed_is_sent_from_its_new_beginning(tmp_path: Path, receiver: Receiver) -> None:
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(incident(1), incident(2))
        ship.all_passed()
        for path in ship.folder.iterdir():
            path.unlink()
        ship.write(incident(3))
        ship.all_passed()
        assert receiver.ids == ["i1", "i2", "i3"]
        assert any("replaced or truncated" in told for told in ship.said)


def test_a_line_that_was_cut_short_is_passed_over_and_one_too_long_is_counted(
    tmp_path: Path, receiver: Receiver
) -> None:
    with shipping(tmp_path, receiver.url, batch=10) as ship:
        ship.write(incident(1), '{"kind":"incident","id":', incident(2), incident(3, text="x" * (3 << 20)), incident(4))
        tally = ship.all_passed()
    assert receiver.ids == ["i1", "i2", "i4"]
    assert tally.dropped == {"unreadable": 1}


def test_an_output_that_is_stopped_goes_on_from_its_place(tmp_path: Path, receiver: Receiver) -> None:
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(incident(1))
        ship.all_passed()
        place = ship.place
    assert place is not None
    ship.write(incident(2))
    again = Ship(tmp_path / "journal", receiver.url)
    again.delivery._position = place
    again.delivery.wake(again.journal.end)
    again.delivery.start()
    again.all_passed()
    again.delivery.stop(5.0)
    assert receiver.ids == ["i1", "i2"]


def test_secrets_of_a_journal_that_keeps_them_do_not_leave_the_node(tmp_path: Path, receiver: Receiver) -> None:
    token = "ghp_" + "a1B2" * 10
    with shipping(tmp_path, receiver.url) as ship:
        ship.write(
            incident(1, text=f"failed with {token}", excerpt=[token], captures={"seq": token}, path=f"/x/{token}")
        )
        ship.all_passed()
    (request,) = receiver.requests
    assert token.encode() not in request.body
    assert request.json["incidents"][0]["excerpt"] == ["[redacted]"]


def test_no_secret_of_the_configuration_is_told(tmp_path: Path, receiver: Receiver) -> None:
    token = "Zm9vYmFyc2VjcmV0"
    (tmp_path / "headers").write_text(f"# of the gateway\nAuthorization: Bearer {token}\nX-Scope-OrgID: gpu\n")
    (tmp_path / "url").write_text(f"http://127.0.0.1:{receiver.port}/hooks/{token}?key={token}\n")
    receiver.next_ones = [answers(401, token.encode()[:4]), answers(302, Location=f"http://h/{token}"), hangs]
    settings = {"url": None, "url_file": tmp_path / "url", "headers_file": tmp_path / "headers", "timeout": "300ms"}
    ship = Ship(tmp_path / "journal", **settings)
    ship.delivery.start()
    ship.write(incident(1))
    ship.all_passed()
    (tmp_path / "url").write_text(f"ftp://{token}")
    ship.write(incident(2))
    eventually(lambda: ship.taken().failed["settings"] or None)
    (tmp_path / "url").unlink()
    ship.delivery.stop(5.0)
    assert receiver.requests[0].headers["authorization"] == f"Bearer {token}"
    assert receiver.requests[0].headers["x-scope-orgid"] == "gpu"
    assert receiver.requests[0].path == f"/hooks/{token}?key={token}"
    assert len(ship.said) >= 4
    assert token not in "".join(ship.said) + repr(ship.delivery._settings)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_tls_with_a_private_authority_and_a_certificate_of_ours(tmp_path: Path, authority: trustme.CA) -> None:
    import ssl

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours = authority.issue_cert("gpu-07")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = {name: tmp_path / f"{name[: name.index('_')]}.pem" for name in ("ca_file", "cert_file", "key_file")}
    with receiving(server) as receiver, shipping(tmp_path, receiver.url, tls=tls) as ship:
        ship.write(incident(1))
        assert ship.all_passed().sent == 1
        assert receiver.ids == ["i1"]


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_a_certificate_that_is_not_the_receivers_is_believed_by_nobody(
    tmp_path: Path, authority: trustme.CA, name: str
) -> None:
    import ssl

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(server)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trusted = {"tls": {"ca_file": tmp_path / "ca.pem"}} if name == "other.example" else {}
    with receiving(server) as receiver, shipping(tmp_path, receiver.url, **trusted) as ship:
        ship.write(incident(1))
        eventually(lambda: ship.taken().failed["tls"] >= 2 or None)
        assert receiver.requests == []
        assert "TLS: " in ship.said[0]


def test_a_delivery_that_waits_ends_at_once(tmp_path: Path) -> None:
    ship = Ship(tmp_path / "journal", "http://127.0.0.1:1/", retry={"first": "1h", "most": "1h"})
    ship.delivery.start()
    ship.write(incident(1))
    eventually(lambda: ship.taken().failed["connect"] or None)
    ship.delivery.stop(60.0)  # of an hour
    assert "output-webhook" not in {thread.name for thread in threading.enumerate()}


def test_retries_leave_the_random_numbers_of_others_alone(tmp_path: Path) -> None:
    before = random.getstate()
    with shipping(tmp_path, "http://127.0.0.1:1/") as ship:
        ship.write(incident(1))
        eventually(lambda: ship.taken().failed["connect"] >= 3 or None)
    assert random.getstate() == before


def test_an_empty_journal_has_a_beginning_and_an_end(tmp_path: Path) -> None:
    assert start_position(tmp_path) == end_position(tmp_path, JournalEnd(1, 0)) == JournalPosition(1, 0, 0)
