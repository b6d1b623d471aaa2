"""The daemon as its users meet it: a process, a configuration, logs and /metrics."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from .conftest import Node, eventually, gpufault

INCIDENTS = 'gpufault_incidents_total{root_cause="e2e_cause",signature="e2e_crash"}'
LINES = 'gpufault_lines_matched_total{signature="e2e_crash",source="job"}'
KERNEL_LINES = 'gpufault_lines_matched_total{signature="e2e_crash",source="kernel"}'
MakeNode = Callable[..., Node]


def equals(node: Node, series: str, value: float) -> bool | None:
    return node.value(series) == value or None


def test_a_crash_is_counted_once_and_its_series_was_there_before(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    assert node.value(INCIDENTS.replace("e2e_cause", "unknown")) == 0
    with (node.logs / "slurm-4711.log").open("a") as log:
        for rank in range(8):
            log.write(f"{rank}: e2e crash seq=1 of train\n")
    eventually(lambda: equals(node, INCIDENTS, 1))
    assert node.value(LINES) == 8
    record = eventually(lambda: next(iter(node.records()), None))
    assert (record["signature"], record["root_cause"], record["lines"]) == ("e2e_crash", "e2e_cause", 8)
    assert record["job"]["id"] == "4711"
    assert record["ranks"] == [str(rank) for rank in range(8)]
    assert node.get("/-/ready").startswith("gpufault is ready")
    assert node.value("gpufault_last_commit_timestamp_seconds") == pytest.approx(time.time(), abs=10)


def test_counters_survive_kill_9_and_go_on_without_a_reset(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    log = node.logs / "a.log"
    log.write_text("e2e crash seq=1 of a\n")
    eventually(lambda: equals(node, INCIDENTS, 1))
    node.kill()
    with log.open("a") as more:
        more.write("e2e crash seq=2 of a\n")
    node.start()
    assert (node.value(LINES) or 0) >= 1
    eventually(lambda: equals(node, LINES, 2))


def test_the_very_first_start_begins_at_the_end_of_what_is_there(make_node: MakeNode) -> None:
    node = make_node()
    (node.logs / "old.log").write_text("e2e crash seq=1 of old\n")
    node.start()
    (node.logs / "new.log").write_text("e2e crash seq=2 of new\n")
    eventually(lambda: equals(node, LINES, 1))
    with (node.logs / "old.log").open("a") as more:
        more.write("e2e crash seq=3 of old\n")
    eventually(lambda: equals(node, LINES, 2))


def test_what_comes_after_the_first_look_is_read_by_the_next_process_too(make_node: MakeNode) -> None:
    node = make_node()
    (node.logs / "old.log").write_text("e2e crash seq=1 of old\n")
    node.start()
    node.kill()  # before it had a second to commit
    (node.logs / "new.log").write_text("e2e crash seq=2 of new\n")
    node.start()
    eventually(lambda: equals(node, LINES, 1))


def test_kernel_lines_come_through_a_fifo_and_user_written_ones_do_not_count(
    make_node: MakeNode, tmp_path: Path
) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    node = make_node([{"kind": "kmsg", "path": str(fifo)}])
    node.start()
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1000
    with fifo.open("wb", buffering=0) as kernel:
        kernel.write(b"12,6,%d,-;e2e crash seq=1 of forged\n" % now)  # facility 1: written by a user
        kernel.write(b"4,7,%d,-;e2e crash seq=2 of kernel\n" % now)
    eventually(lambda: equals(node, KERNEL_LINES, 1))
    eventually(lambda: equals(node, INCIDENTS, 1))


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg may not be written here")
def test_inject_proves_the_path_through_the_real_kernel_log(make_node: MakeNode) -> None:
    node = make_node([{"kind": "kmsg"}])
    node.start()
    done = subprocess.run(
        [gpufault(), "inject", "--kmsg", "--config.file", str(node.config), "--url", f"http://{node.address}/metrics"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("seen: /dev/kmsg")
    assert node.value('gpufault_incidents_total{root_cause="unknown",signature="gpufault_test_line"}') is None


def test_reload_takes_a_good_configuration_and_refuses_a_bad_one(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    good = json.loads(node.config.read_text())
    node.config.write_text(json.dumps({**good, "nonsense": 1}))
    status, answer = node.post("/-/reload")
    assert (status, "nonsense" in answer) == (500, True)
    assert node.value("gpufault_config_last_reload_successful") == 0
    (node.logs / "a.log").write_text("e2e crash seq=1 of a\n")
    eventually(lambda: equals(node, LINES, 1))
    node.config.write_text(json.dumps({**good, "incidents": {"settle": "200ms"}}))
    assert node.post("/-/reload")[0] == 200
    assert node.value("gpufault_config_last_reload_successful") == 1
    with (node.logs / "a.log").open("a") as more:
        more.write("e2e crash seq=2 of a\n")
    eventually(lambda: equals(node, LINES, 2))


def test_when_a_reload_answers_its_sources_have_been_looked_at(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    config = json.loads(node.config.read_text())
    records = node.folder / "records"
    records.touch()
    config["sources"].append({"kind": "kmsg", "mode": "file", "path": str(records)})
    node.config.write_text(json.dumps(config))
    assert node.post("/-/reload")[0] == 200
    with urllib.request.urlopen(f"http://{node.address}/-/ready", timeout=30) as ready:
        assert ready.read() == b"gpufault is ready.\n"
    for source in ("files", f"kmsg:{records}"):
        assert node.value(f'gpufault_source_up{{source="{source}"}}') == 1


def test_a_local_time_is_that_of_the_season(make_node: MakeNode) -> None:
    """In a zone whose summer began yesterday and ends in a month."""
    today = time.gmtime().tm_yday - 1
    node = make_node()
    node.wrap = ("env", f"TZ=AAA0BBB,J{(today - 1) % 365 + 1}/0,J{(today + 30) % 365 + 1}/0")
    node.start()
    there = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 3600))
    (node.logs / "a.log").write_text(f"{there},000 ERROR e2e crash seq=1 of a\n")
    record = eventually(lambda: next(iter(node.records()), None))
    assert record["time_source"] == "log"
    assert datetime.fromisoformat(record["time"]).timestamp() == pytest.approx(time.time(), abs=60)


def test_a_reload_that_the_state_refuses_shows_nothing_that_is_not_stored(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    with contextlib.closing(sqlite3.connect(node.folder / "state/state.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (node.logs / "a.log").write_text("e2e crash seq=1 of a\n")
        eventually(lambda: node.value("gpufault_state_up") == 0 or None)
        assert node.post("/-/reload")[0] == 500
        assert node.value("gpufault_config_last_reload_successful") == 0
        assert node.value(LINES) is None
    eventually(lambda: equals(node, LINES, 1))


def test_what_was_lost_is_still_told_after_a_kill(make_node: MakeNode, tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    node = make_node([{"kind": "kmsg", "path": str(fifo)}])
    lost = f'gpufault_source_lost_records_total{{source="kmsg:{fifo}"}}'
    node.start()
    assert node.value(lost) == 0
    for number in (7, 10, 20):
        fifo.write_bytes(b"4,%d,%d,-;e2e crash seq=1 of kernel\n" % (number, number))
    eventually(lambda: equals(node, lost, 2 + 9))
    node.kill()
    node.start()
    assert node.value(lost) == 2 + 9
    fifo.write_bytes(b"4,22,22,-;e2e crash seq=1 of kernel\n")
    eventually(lambda: equals(node, lost, 2 + 9 + 1))


def test_a_reload_that_is_asked_for_while_it_starts_does_not_end_it(make_node: MakeNode) -> None:
    node = make_node()
    process = node.spawn()
    eventually(lambda: (node.folder / "state" / "lock").exists() or None)
    process.send_signal(signal.SIGHUP)
    eventually(lambda: b"configuration applied" in node.log.read_bytes() or None)
    assert process.poll() is None


@pytest.mark.parametrize("how", ["reloads", "is killed"])
def test_an_incident_whose_signature_a_pack_has_lost_is_counted(make_node: MakeNode, how: str) -> None:
    node = make_node(incidents={"settle": "1h", "window": "1h"})
    pack = node.folder / "packs" / "other.yaml"
    pack.write_text(
        "pack: other\nsignatures:\n  - {id: other_crash, title: Other, vendor: any, layer: host, severity: error,"
        " sources: [job], patterns: ['another crash of number \\d+']}\n"
    )
    node.start()
    (node.logs / "a.log").write_text("another crash of number 1\n")
    eventually(lambda: equals(node, 'gpufault_incidents_open{signature="other_crash"}', 1))
    pack.unlink()
    if how == "reloads":
        assert node.post("/-/reload")[0] == 200
        eventually(lambda: [record["signature"] for record in node.records()] == ["other_crash"] or None)
    for _ in range(2):
        node.kill()
        node.start()
        assert node.value('gpufault_incidents_total{root_cause="unknown",signature="other_crash"}') == 1


@pytest.mark.parametrize("asked", ["POST", "SIGHUP"])
def test_a_pack_that_fails_its_check_is_refused_whole_and_the_one_before_stays(make_node: MakeNode, asked: str) -> None:
    node = make_node()
    node.start()
    assert node.value("gpufault_config_last_reload_successful") == 1
    pack = node.folder / "packs" / "e2e.yaml"
    good = pack.read_text()
    second = good.partition("root_causes:")[0].replace("e2e_crash", "e2e_second").replace("e2e crash", "e2e second")
    pack.with_name("second.yaml").write_text(second + "    examples: ['e2e second of nothing']\n")
    pack.write_text(good.replace("title: A line", "title: Another line"))

    def reload() -> str:
        if asked == "SIGHUP":
            assert node.process is not None
            node.process.send_signal(signal.SIGHUP)
            return eventually(
                lambda: next((line for line in node.log.read_text().splitlines() if "second.yaml:" in line), None)
            )
        return node.post("/-/reload")[1]

    assert (
        "second.yaml:11:16: signatures[0].examples[0]: example does not match e2e_second: no line contains" in reload()
    )
    eventually(lambda: equals(node, "gpufault_config_last_reload_successful", 0))
    (node.logs / "a.log").write_text("e2e second seq=1 of a\ne2e crash seq=1 of a\n")
    eventually(lambda: equals(node, LINES, 1))
    metrics = node.get("/metrics")
    assert "Another line" not in metrics
    assert 'signature="e2e_second"' not in metrics
    pack.with_name("second.yaml").write_text(second + "    examples: ['e2e second seq=1 of something']\n")
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    eventually(lambda: equals(node, "gpufault_config_last_reload_successful", 1))
    assert "Another line" in node.get("/metrics")
    (node.logs / "b.log").write_text("e2e second seq=1 of b\n")
    eventually(lambda: equals(node, LINES.replace("e2e_crash", "e2e_second"), 1))


def test_a_damaged_state_file_is_set_aside_and_the_daemon_goes_on(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    assert node.stop() == 0
    state = node.folder / "state" / "state.sqlite"
    state.write_bytes(b"not a database, but long enough to be looked at" * 100)
    node.start()
    assert node.value("gpufault_state_set_aside_total") == 1
    assert list(state.parent.glob("state.damaged-*.sqlite"))
    (node.logs / "a.log").write_text("e2e crash seq=1 of a\n")
    eventually(lambda: equals(node, LINES, 1))


def test_a_second_daemon_on_the_same_state_is_refused_with_a_reason(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    command = [gpufault(), "run", "--config.file", str(node.config), "--web.listen-address", "127.0.0.1:0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 3
    assert "another gpufault is running" in second.stderr


def test_a_daemon_does_not_hold_what_only_reads_its_configuration(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    assert node.process is not None
    libraries = Path(f"/proc/{node.process.pid}/maps")
    assert "hyperscan" in libraries.read_text()
    assert not [name for name in ("pydantic_core", "_yaml") if name in libraries.read_text()]
    node.process.send_signal(signal.SIGHUP)
    eventually(lambda: "configuration applied" in node.log.read_text() or None)
    assert not [name for name in ("pydantic_core", "_yaml") if name in libraries.read_text()]
