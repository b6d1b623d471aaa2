"""The real daemon and its outputs: at least once, whatever is killed, reloaded or away, and counted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Node, eventually, gpufault, make_node
from tests.outputs.receivers import Receiver, Request, answers, hangs, receiving

pytestmark = pytest.mark.heavy

__all__ = ["make_node"]

QUICK = {"first": "10ms", "most": "100ms"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def webhook(receiver: Receiver, **settings: Any) -> dict[str, Any]:
    return {"webhook": {"url": receiver.url, "retry": QUICK, "timeout": "2s", **settings}}


def crash(node: Node, number: int) -> None:
    """A crash of its own: each log is a job's, so it is an incident of its own too."""
    (node.logs / f"job-{number}.log").write_text(f"e2e crash seq={number} of a\n")


def sent(node: Node, output: str = "webhook") -> float | None:
    return node.value(f'gpufault_output_records_sent_total{{output="{output}"}}')


def test_an_incident_reaches_the_webhook_as_the_journal_has_it(
    make_node: Callable[..., Node], receiver: Receiver
) -> None:
    node = make_node(outputs=webhook(receiver))
    node.start()
    crash(node, 1)
    (request,) = receiver.got(1)
    (record,) = eventually(lambda: node.records() or None)
    assert request.json["incidents"] == [record]
    assert record["late"] is False
    assert request.headers["idempotency-key"] == f"{record['id']}.1"
    eventually(lambda: sent(node) == 1.0 or None)
    assert node.value('gpufault_output_up{output="webhook"}') == 1.0
    assert node.value('gpufault_output_lag_seconds{output="webhook"}') == 0.0
    assert (node.value('gpufault_output_last_success_timestamp_seconds{output="webhook"}') or 0) > 1.7e9
    assert node.value('gpufault_output_failures_total{output="webhook",reason="connect"}') == 0.0
    assert node.value('gpufault_output_records_dropped_total{output="webhook",reason="journal"}') == 0.0


def test_a_crash_that_is_old_when_it_is_read_is_marked(make_node: Callable[..., Node], receiver: Receiver) -> None:
    node = make_node(outputs=webhook(receiver))
    node.start()
    (node.logs / "old.log").write_text("2020-01-01T00:00:00Z e2e crash seq=1 of a\n")
    (request,) = receiver.got(1)
    (incident,) = request.json["incidents"]
    assert incident["time"] == "2020-01-01T00:00:00.000Z"
    assert incident["late"] is True
    assert incident["recorded_time"] > "2023"


def test_a_kill_between_sending_and_committing_repeats_the_same_incident(
    make_node: Callable[..., Node], receiver: Receiver
) -> None:
    node = make_node(outputs=webhook(receiver))
    node.start()

    def kill(_request: Request) -> None:
        receiver.before_answer = lambda _request: None
        node.kill()

    receiver.before_answer = kill
    crash(node, 1)
    receiver.got(1)
    eventually(lambda: (node.process is not None and node.process.poll() is not None) or None)
    node.start()
    receiver.got(2)
    crash(node, 2)
    first, again, other = receiver.got(3)
    assert first.json["incidents"] == again.json["incidents"]
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
    assert first.ids != other.ids
    eventually(lambda: sent(node) == 2.0 or None)


@pytest.mark.heavy
def test_nothing_is_lost_through_kills_of_both_sides(make_node: Callable[..., Node], receiver: Receiver) -> None:
    receivers = {"webhook": receiver}
    with receiving() as collector:
        otlp = {"otlp": {"url": collector.url, "encoding": "json", "retry": QUICK, "timeout": "1s", "batch": 3}}
        receivers["otlp"] = collector
        node = make_node(outputs={**webhook(receiver, batch=4, timeout="1s"), **otlp})
        node.start()
        dice = random.Random(5)
        number = 0
        written = threading.Event()
        for _ in range(15):
            for behaving in receivers.values():
                behaving.next_ones = [dice.choice([answers(503), answers(500), hangs, answers(200)]) for _ in range(4)]
            for _ in range(dice.randrange(1, 6)):
                number += 1
                crash(node, number)
            written.wait(dice.random() * 1.5)
            node.kill()
            node.start()
        for behaving in receivers.values():
            behaving.next_ones = []
        eventually(lambda: len({record["id"] for record in node.records()}) == number or None, 60)
        ids = {record["id"] for record in node.records()}
        eventually(lambda: ids == set(receiver.ids) or None, 60)
        eventually(lambda: ids == otlp_ids(collector) or None, 60)
        records = {json.dumps(record, sort_keys=True) for record in node.records()}
        came = {json.dumps(i, sort_keys=True) for request in receiver.requests for i in request.json["incidents"]}
        assert came == records  # repeated, perhaps, and never changed


def otlp_ids(collector: Receiver) -> set[str]:
    with collector.lock:
        bodies = [request.json for request in collector.requests]
    return {
        attribute["value"]["stringValue"]
        for body in bodies
        for resource in body["resourceLogs"]
        for log in resource["scopeLogs"][0]["logRecords"]
        for attribute in log["attributes"]
        if attribute["key"] == "gpufault.id"
    }


def test_a_receiver_that_hangs_holds_up_neither_the_loop_nor_metrics_nor_the_end(
    make_node: Callable[..., Node], receiver: Receiver
) -> None:
    receiver.behaviour = hangs
    node = make_node(outputs=webhook(receiver, timeout="60s"))
    node.start()
    crash(node, 1)
    receiver.got(1)
    for number in range(2, 6):
        crash(node, number)
        counted = f'gpufault_incidents_total{{root_cause="e2e_cause",signature="e2e_crash"}} {number}.0'
        eventually(lambda: counted in node.get("/metrics") or None)  # noqa: B023 (called at once)
    assert (node.value('gpufault_output_lag_seconds{output="webhook"}') or 0.0) > 0.0
    assert node.get("/-/ready") == "gpufault is ready.\n"
    assert node.stop() == 0
    receiver.behaviour = answers(200)
    receiver.closing.set()
    node.start()
    eventually(lambda: len(set(receiver.ids)) == 5 or None)


def reload(node: Node, **outputs: Any) -> None:
    """Write the configuration with other outputs, and wait until it is applied."""
    config = json.loads(node.config.read_text())
    node.config.write_text(json.dumps({**config, "outputs": outputs}))
    taken = node.log.read_text().count('event="configuration applied"')
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    eventually(lambda: node.log.read_text().count('event="configuration applied"') > taken or None)


def test_a_reload_moves_to_another_receiver_without_a_loss(make_node: Callable[..., Node], receiver: Receiver) -> None:
    receiver.behaviour = answers(503)
    node = make_node(outputs=webhook(receiver))
    node.start()
    for number in range(3):
        crash(node, number)
    eventually(lambda: len(node.records()) == 3 or None)
    with receiving() as other:
        reload(node, **webhook(other))
        crash(node, 3)
        eventually(lambda: len(set(other.ids)) == 4 or None)
        eventually(lambda: sent(node) == 4.0 or None)
        assert len(other.ids) == 4


def test_an_output_that_was_taken_out_and_put_in_again_begins_anew(
    make_node: Callable[..., Node], receiver: Receiver
) -> None:
    node = make_node(outputs=webhook(receiver))
    node.start()
    crash(node, 1)
    receiver.got(1)
    reload(node)
    assert node.value('gpufault_output_up{output="webhook"}') is None
    crash(node, 2)
    eventually(lambda: len(node.records()) == 2 or None)
    reload(node, **webhook(receiver))
    crash(node, 3)
    eventually(lambda: len(set(receiver.ids)) == 2 or None)
    third = node.records()[-1]["id"]
    assert receiver.ids[-1] == third
    reload(node)
    reload(node, **webhook(receiver, start="beginning"))
    eventually(lambda: len(set(receiver.ids)) == 3 or None)


def test_a_dry_run_sends_nothing(make_node: Callable[..., Node], receiver: Receiver, tmp_path: Path) -> None:
    path = tmp_path / "gpufault.prom"
    node = make_node(outputs={**webhook(receiver, start="beginning"), "textfile": {"path": str(path)}})
    crash(node, 1)
    config = json.loads(node.config.read_text())
    config["sources"][0]["start"] = "beginning"
    node.config.write_text(json.dumps(config))
    command = [gpufault(), "run", "--dry-run", "--once", "--config.file", str(node.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'gpufault_incidents_total{root_cause="e2e_cause",signature="e2e_crash"} 1.0' in done.stdout
    assert "gpufault_output_" not in done.stdout
    assert receiver.requests == []
    assert not path.exists()
