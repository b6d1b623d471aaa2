"""One number, one place: what pages, API, CSV, report, chat, correlation and metrics say of the same window of a fleet."""

import csv
import html
import io
import json
import pickle
import re
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from exporter.cli.main import main
from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import PEER_FAILURE
from exporter.fleet.history.store import Store
from exporter.fleet.service.fleet_metrics import snapshot_of
from exporter.fleet.service.refresh import FleetStatus
from tests.fleet.service.test_pages import View

DAY = 86400.0
LISTS = {"causes": "cause", "nodes": "node", "jobs": "job", "incidents": "id", "unknowns": "template"}


def extra(newest: float) -> Iterator[dict[str, Any]]:
    """Beside simulated crashes: each kind of record that some view could count and another one not."""
    at = newest - 2 * DAY

    def incident(number: int, signature: str = "cuda_launch_failure", **fields: Any) -> dict[str, Any]:
        return {
            "kind": "incident", "id": f"extra{number}", "time": rfc3339(at + number), "node": f"n{number % 3:06}",
            "signature": signature, "root_cause": "unknown", "role": "root", "verdict": "unclear", "severity": "error",
        } | fields  # fmt: skip

    whole = {"job": {"id": "900", "user": "ada", "account": "lab"}}
    yield incident(0, root_cause="nvlink_down", verdict="infrastructure", domain="hardware", **whole)
    yield incident(
        1, root_cause="nvlink_down", verdict="infrastructure", domain="hardware", **whole
    )  # another node of its job
    yield incident(2, "nccl_timeout", role="cascade", caused_by="extra0", **whole)
    yield incident(3, "nccl_remote_exit", root_cause=PEER_FAILURE, job={"id": "901", "user": "bob"})
    yield incident(4, "srun_task_exit", role="context", severity="info", job={"id": "902", "user": "bob"})
    yield incident(5, job=None)
    for number, (kind, template) in enumerate(3 * [("traceback", "A <n>"), ("fatal", "A <n>"), ("fatal", "B")], 6):
        captures = {"kind": kind, "type": "", "template": template}
        yield incident(number, "unrecognised_crash", captures=captures, text=template, job={"id": f"{903 + number}"})
    yield incident(20, "unrecognised_crash", role="context", captures={"kind": "fatal", "template": "B"})
    ended = {"kind": "job_end", "node": "n000000", "job": {"id": "900"}, "outcome": "explained"}
    yield ended | {"time": rfc3339(at + 30), "started": rfc3339(at - 7 * 3600)}
    yield incident(40, root_cause="nvlink_down", time=rfc3339(newest - 20 * DAY))  # before the window


class Views:
    """All views of one window of the fleet."""

    def __init__(self, folder: Path) -> None:
        journal = folder / "journal"
        simulated = [
            "--nodes",
            "300",
            "--window",
            "28d",
            "--causes",
            "1",
            "--rate",
            "60",
            "--seed",
            "5",
            "--lemon",
            "30",
        ]
        assert main(["simulate", str(journal), *simulated]) == 0
        self._flags = ["--journal", str(journal), "--lost.price", "2"]
        for file in journal.iterdir():
            file.write_text(file.read_text().replace('"facts": {', '"facts": {"gpu_count": "8", '))
        newest = datetime.fromisoformat(self._asked("correlate", "json")["window"]["end"]).timestamp()
        (journal / "extra.jsonl").write_text("".join(json.dumps(record) + "\n" for record in extra(newest)))
        self.report = self._asked("report", "json")
        self.chat, self.document = self._text("report", "md"), html.unescape(self._text("report", "html"))
        self.table = list(csv.DictReader(io.StringIO(self._text("report", "csv"))))
        self.correlation = self._asked("correlate", "json")
        self.store = Store(folder / "store.duckdb")
        self.store.read_once(journal)
        assert main(["correlate", *self._flags, "--window", "7d", "--format=pickle", f"--output={folder}/result"]) in (
            0,
            1,
        )
        result, lost = pickle.loads((folder / "result").read_bytes())
        self._status = FleetStatus(result=result, lost=lost, refreshes=1)
        self._pages = View(self.store, self._status)
        window = self.report["window"]
        self._window = {"start": window["start"], "end": window["end"]}

    def _text(self, command: str, form: str) -> str:
        with redirect_stdout(io.StringIO()) as out:
            assert main([command, *self._flags, "--window", "7d", "--format", form]) in (0, 1)
        return out.getvalue()

    def _asked(self, command: str, form: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._text(command, form))
        return answer

    def page(self, path: str, /, **given: str) -> str:
        status, text, _ = self._pages.get(f"{path}?{urlencode({**self._window, **given})}")
        assert status == 200, text
        return text

    def rows(self, path: str, table: str) -> list[dict[str, Any]]:
        """A page's table."""
        rows: list[dict[str, Any]] = json.loads(self.page(path, table=table))["rows"]
        return rows

    def api(self, name: str, **given: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.page(f"/api/v1/{name}", **{"limit": "1000", **given}))
        return answer

    def tile(self, what: str) -> str:
        match = re.search(rf'<span class="figure">([^<]*)</span> {what}', self.page("/"))
        assert match, what
        return match[1]

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        families = snapshot_of(0.0, self._status, label_values=1000, build=("", "")).families
        return dict(next(family.samples for family in families if family.name == f"gpufault_fleet_{name}"))


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    made = Views(tmp_path_factory.mktemp("fleet"))
    with closing(made.store):
        yield made


def test_root_incidents(views: Views) -> None:
    number = views.report["totals"]["incidents"]
    assert number > 100
    assert views.tile("root incidents") == f"{number:,}"
    assert views.api("incidents", role="root")["total"] == number
    assert sum(row["incidents"] for row in views.api("causes")["causes"]) == number
    assert sum(row["incidents"] for row in views.api("nodes")["nodes"]) == number
    assert sum(int(row["incidents"]) for row in views.table) == number
    assert views.correlation["incidents"] == number
    assert views.metric("incidents") == {(): number}
    for text in (views.page("/"), views.document, views.chat):
        assert f"{number:,} root incidents on " in text


def test_nodes(views: Views) -> None:
    nodes, crashed = views.report["nodes"], views.report["totals"]["nodes_crashed"]
    listed = views.api("nodes")["nodes"]
    assert (len(listed), sum(row["incidents"] > 0 for row in listed)) == (nodes, crashed)
    assert views.correlation["nodes"] == nodes
    assert views.metric("nodes") == {(): nodes}
    for text in (views.page("/"), views.document, views.chat):
        assert f"{crashed} of {nodes} nodes" in text


def test_jobs(views: Views) -> None:
    jobs = views.report["totals"]["jobs"]
    listed = views.api("jobs")
    assert listed["total"] == jobs == len(listed["jobs"])
    assert f"{jobs:,} jobs hit" in views.chat
    assert f"{jobs:,} jobs" in views.page("/jobs")
    (two_nodes,) = (row for row in listed["jobs"] if row["job"] == "900")
    assert (two_nodes["incidents"], two_nodes["nodes"]) == (2, 2)
    assert "2 root incidents" in views.page("/jobs/900")


def test_each_cause(views: Views) -> None:
    causes = [cause for cause in views.report["causes"] if cause["incidents"]]
    listed = {row["cause"]: row for row in views.api("causes")["causes"]}
    shown = {row["Cause"]: row for row in views.rows("/", "causes")}
    assert {cause["id"] for cause in causes} == listed.keys()
    assert set(shown) <= listed.keys()
    for cause, exported in zip(causes, views.table, strict=False):
        row = listed[cause["id"]]
        numbers = {key: cause[key] for key in ("incidents", "nodes", "jobs")}
        assert {key: row[key] for key in numbers} == numbers
        assert {key: int(exported[key]) for key in numbers} == numbers
        assert row["before"] == cause["incidents_before"] == int(exported["incidents_before"])
        assert row["domain"] == cause["domain"] == exported["domain"]
        if cause["id"] in shown:
            on_page = shown[cause["id"]]
            assert (on_page["Root incidents"], on_page["Nodes"]) == (cause["incidents"], cause["nodes"])
            assert on_page["GPU-hours"] == cause["lost_gpu_hours"]
        page = views.page(f"/causes/{quote(cause['id'], safe='')}")
        assert f"{numbers['incidents']:,} root incident" in page
        assert f"on {numbers['nodes']:,} node" in page
    lead = causes[0]
    assert f"{lead['incidents']:,} on {lead['nodes']} nodes" in views.chat


def test_each_node(views: Views) -> None:
    for row in views.api("nodes", sort="-incidents", limit="3")["nodes"]:
        page = views.page(f"/nodes/{row['node']}")
        assert f"{row['incidents']:,} root incident" in page
        assert views.api("incidents", role="root", node=row["node"])["total"] == row["incidents"]


def test_unknown_causes(views: Views) -> None:
    totals = views.report["totals"]
    share = f"{totals['without_cause'] / totals['incidents']:.0%}"
    assert views.tile("without a known cause") == share
    assert f"cause unknown for {share}" in views.chat
    assert share in views.document


def test_lost_gpu_hours(views: Views) -> None:
    totals = views.report["totals"]
    hours, measured, cost = (totals[f"lost_{key}"] for key in ("gpu_hours", "gpu_hours_measured", "cost"))
    assert 0 < measured < hours
    assert cost == 2 * hours
    lost = views.correlation["lost_gpu_hours"]
    assert (lost["hours"], lost["measured_hours"], lost["cost"]) == (hours, measured, cost)
    assert views.metric("lost_gpu_hours") == {(): hours}
    assert views.tile("GPU-hours lost") == f"{hours:,.0f}"
    assert f"{hours:,.0f} GPU-hours lost" in views.chat
    assert f"{hours:,.0f}" in views.document


def test_findings(views: Views) -> None:
    findings = views.correlation["findings"]
    assert views.report["correlation"] == views.correlation
    assert sum(views.metric("findings").values()) == len(findings) > 0
    (lead, *_) = findings
    ratio = f"{lead['rate_ratio']:.2g}" if lead["rate_ratio"] < 10 else f"{lead['rate_ratio']:,.0f}"
    for text in (views.page("/"), views.page("/findings"), views.document, views.chat):
        assert ratio in text
    (value, *_) = views.metric("finding_rate_ratio").values()
    assert value == pytest.approx(lead["rate_ratio"], abs=1e-4)  # the JSON has four digits


def test_nodes_at_risk(views: Views) -> None:
    exposed = views.correlation["exposed"]
    assert [len(row["nodes"]) for row in exposed] == [row["count"] for row in exposed]
    assert sorted(views.metric("exposed_nodes").values()) == sorted(row["count"] for row in exposed)
    most = max(row["count"] for row in exposed)
    assert views.tile("nodes at risk, not affected yet") == f"{most:,}"
    assert f"{most} nodes" in views.chat
    assert f">{most}<" in views.document


def test_unusually_bad_nodes(views: Views) -> None:
    bad = views.correlation["lemons"]
    assert bad
    assert sum(views.metric("lemons").values()) == len(bad)
    for node in bad:
        assert f"{node['incidents']} in {node['jobs']} jobs" in views.page("/findings")
        assert node["node"] in views.document
        assert views.metric("lemon_incidents")[node["kind"], node["name"], node["node"]] == node["incidents"]


def test_unrecognised_crashes(views: Views) -> None:
    expected = sorted((c["template"], c["crashes"], c["nodes"], c["jobs"]) for c in views.report["unrecognised"])
    assert len(expected) == 3
    listed = views.api("unknowns")["unknowns"]
    assert sorted((r["template"], r["incidents"], r["nodes"], r["jobs"]) for r in listed) == expected
    shown = views.rows("/unknowns", "unknowns")
    assert sorted((r["Line"], r["Crashes"], r["Nodes"], r["Jobs"]) for r in shown) == expected


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_the_same_as_page_json_and_csv(views: Views, name: str) -> None:
    answer = views.api(name)
    rows = list(csv.DictReader(io.StringIO(views.page(f"/api/v1/{name}", format="csv", limit="1000"))))
    key = LISTS[name]
    assert [row[key] for row in rows] == [str(row[key]) for row in answer[name]]
    assert answer["total"] >= len(rows)
