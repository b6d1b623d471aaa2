"""The simulated fleet for the pages: the same for a seed, and what is planted in it is on the first page."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.config import packs
from exporter.demo import review_case, review_crashes
from exporter.fleet.history.store import Store
from exporter.fleet.service.refresh import FleetStatus
from exporter.fleet.statistics.findings import Correlation
from tests.fleet.service.test_pages import View

DAY = 86400.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review") / "journals"
    review_crashes.write_review(review_case.simulate_review(review_case.plan()), folder)
    return folder


@pytest.fixture(scope="module")
def correlation(folder: Path) -> Correlation:
    output = folder.parent / "result"
    assert main(["correlate", f"--journal={folder}", "--format=pickle", f"--output={output}"]) == 1
    result: Correlation = pickle.loads(output.read_bytes())[0]
    return result


def test_one_seed_is_one_fleet_and_another_is_another(tmp_path: Path) -> None:
    def text(seed: int, name: str) -> bytes:
        plan = review_case.plan(nodes=60, days=14, seed=seed)
        review_crashes.write_review(review_case.simulate_review(plan), tmp_path / name)
        return b"".join(file.read_bytes() for file in sorted((tmp_path / name).iterdir()))

    assert text(5, "a") == text(5, "b") != text(6, "c")


def test_a_fleet_may_end_at_a_given_time(tmp_path: Path) -> None:
    flags = ["--case=review", "--nodes=40", "--window=14d", "--end=2026-11-20T00:00:00Z"]
    assert main(["simulate", *flags, str(tmp_path / "journals")]) == 0
    lines = (tmp_path / "journals/journal-000001.jsonl").read_text(encoding="utf-8").splitlines()
    times = sorted(json.loads(line)["time"] for line in lines)
    assert (times[0], times[-1]) == ("2026-11-06T00:00:00.000Z", "2026-11-20T00:00:00.000Z")


def test_faults_open_and_a_reboot_clears_them(folder: Path) -> None:
    lines = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())).splitlines()
    records = [json.loads(line) for line in lines if '"kind": "heartbeat"' not in line]
    faults = sorted((each for each in records if each["kind"] == "fault"), key=lambda each: each["time"])
    boots = {(each["node"], each["time"]) for each in records if each.get("boot")}
    ends = [each for each in records if each["kind"] == "job_end"]
    opened = [each["signature"] for each in faults if each["state"] == "open"]
    cleared = [each for each in faults if each["state"] == "cleared"]
    assert 0.9 * len(opened) < len(cleared) <= len(opened)
    assert all((each["node"], each["time"]) in boots for each in cleared)
    assert set(opened) <= {name for name, crash in review_crashes.CRASHES.items() if crash.kernel}
    assert all(each["started"] < each["time"] for each in ends)
    assert {each["outcome"] for each in ends} == {"explained", "unrecognised"}


def test_the_planted_rollout_library_and_node_are_found(correlation: Correlation) -> None:
    found = {finding.signature: finding for finding in correlation.findings}
    rollout = found.pop("nv_xid_74_nvlink_error")
    assert rollout.rollout is not None
    assert [fact.fact for fact in rollout.facts] == ["driver_version", "fabricmanager_version"]
    library = found.pop("nccl_watchdog_timeout")
    assert [fact.fact for fact in library.facts] == ["nccl_version", "torch_version"]
    assert library.status == "confirmed"
    assert library.tie_breakers
    assert found == {}
    assert [bad.node for bad in correlation.outlier_nodes] == ["n0412"]


def test_the_first_page_shows_it_without_a_click(folder: Path, correlation: Correlation, tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb")
    store.read_once(folder)
    text = View(store, FleetStatus(result=correlation, result_time=time.time())).get("/")[1]
    store.close()
    for told in (
        "driver_version", "580.95.05", "nccl_version", "2.26.2", "n0412", "12 nodes were not seen for a day",
        "Triton or LLVM could not compile a GPU kernel", "KeyError: &#39;optimizer.state.N.exp_avg&#39;",
        "GPU-hours lost",
    ):  # fmt: skip
        assert told in text, told


def test_each_record_names_causes_that_the_catalogue_has(folder: Path) -> None:
    catalogue = packs.load()
    seen = set()
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            if '"kind": "incident"' not in line:
                continue
            record = json.loads(line)
            assert record["signature"] in catalogue.signatures
            assert record["root_cause"] in (*catalogue.root_causes, "unknown")
            seen.add((record["signature"], record["role"]))
            assert record["job"]["user"]
    assert {name for name, role in seen if role == "root"} == set(review_crashes.CRASHES)
    assert ("nccl_remote_closed", "cascade") in seen
