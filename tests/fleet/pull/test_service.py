"""`gpufault fleet` that pulls: what its pages, its API and its metrics show, and what it correlates."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import main
from exporter.core.diagnosis.records import rfc3339
from tests.e2e.conftest import eventually
from tests.fleet.pull.nodes import Nodes, incident, name_of, serving_nodes
from tests.fleet.running import Fleet

pytestmark = pytest.mark.heavy  # the service is a process, and each refresh another one


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with serving_nodes(tmp_path / "nodes", segment_bytes=1 << 20) as running:
        running.folder.mkdir()
        yield running


def fill(nodes: Nodes, count: int) -> None:
    """A day of each node; the nodes with an odd number crash, and have another driver."""
    now = time.time()
    for number in range(count):
        facts = {"driver_version": "1" if number % 2 else "2", "gpu_count": "4"}
        day = [
            {"kind": "heartbeat", "time": rfc3339(now - 3600 * hour), "hours": 1.0, "gpu_busy_hours": 4.0}
            for hour in range(47, -1, -1)
        ]
        records: list[dict[str, Any]] = [{"kind": "facts", "time": rfc3339(now - 48 * 3600), "facts": facts}, *day]
        for crash in range(4 if number % 2 else 0):
            at, job = (
                rfc3339(now - 7000 * (crash + 1) - 731 * number),
                {"id": f"{number}-{crash}", "user": f"u{number % 5}"},
            )
            records.append({"kind": "incident", "time": at, "id": f"{number}-{crash}", "signature": "s", "job": job})
        nodes.add(number).append([json.dumps({**record, "node": name_of(number)}) for record in records])


def test_what_is_pulled_is_shown_and_correlated(nodes: Nodes, tmp_path: Path) -> None:
    fill(nodes, 40)
    nodes.target_file({"targets": ["127.0.0.1:1"], "labels": {"node": "absent"}})
    service = Fleet(
        tmp_path, f"--pull.files={nodes.folder}/*.json", "--pull.interval=2s", "--refresh.interval=5s",
        f"--store.file={tmp_path}/store.duckdb", "--window=7d",
    )  # fmt: skip
    try:
        eventually(lambda: service.metric('pull_targets{state="ok"}') == 40, seconds=60)
        assert service.metric("pull_records_total") == 40 * 49 + 80
        assert service.metric('pull_targets{state="unreachable"}') == 1
        assert service.metric("pull_discovery_successful") == 1
        # The counters tell of a pull before the store does.
        found = eventually(lambda: service.json("targets?state=unreachable")["targets"] or None, seconds=60)
        assert [(row["node"], row["what"], row["pulled"]) for row in found] == [("absent", "Connection refused", None)]
        assert "Connection refused" in service.ask("/quality")[1]
        eventually(lambda: service.json("incidents?limit=1")["total"] == 80, seconds=60)

        def complete() -> Any:
            status, text, _ = service.ask("/api/v1/correlation")
            result = json.loads(text)
            return result if status == 200 and result["incidents"] == 80 else None

        result = eventually(complete, seconds=120)
        assert (result["nodes"], result["gaps"]) == (40, [])
        (finding,) = result["findings"]
        assert (finding["facts"][0]["fact"], finding["facts"][0]["value"]) == ("driver_version", "1")
        nodes.journals[1].append(
            [json.dumps({"kind": "incident", "time": time.time(), "node": "n1", "id": "new", "signature": "s"})]
        )
        eventually(lambda: service.json("incidents?node=n1&limit=1")["total"] == 5, seconds=60)
    finally:
        service.process.terminate()
        assert service.process.wait(30) == 0


def test_top_reads_a_fleet_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "j").mkdir()
    record = {"time": rfc3339(time.time()), "signature": "nv_xid_79_fallen_off_bus"}
    (tmp_path / "j/a.jsonl").write_text(incident("n1", 1, **record) + "\n" + incident("n2", 2, **record) + "\n")
    service = Fleet(tmp_path, f"--journal={tmp_path}/j")
    try:
        eventually(lambda: service.json("incidents")["total"] == 2, seconds=60)
        assert main(["top", f"http://{service.address}", "--once"]) == 0
    finally:
        service.process.terminate()
        service.process.wait(30)
    shown = " ".join(capsys.readouterr().out.split())
    assert "n1 (1), n2 (1)" in shown
    assert "nv_xid_79" not in shown
