"""Recorded machines, played to a real daemon: each crash is its own job's, and no healthy card is condemned.

tests/lab/record.py makes a recording on a machine with a GPU; `make lab` runs it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.recorded_machine import Outcome, RecordedMachine

RECORDINGS = sorted((Path(__file__).parent / "recordings").iterdir())
DECIDED_SECONDS = 15.0  # after the end of a job

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda folder: folder.name)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedMachine, Outcome]:
    machine = RecordedMachine(request.param, tmp_path_factory.mktemp(request.param.name))
    with pytest.MonkeyPatch.context() as monkeypatch:
        return machine, machine.play(monkeypatch)


def test_each_crash_is_counted_once_for_its_job(played: tuple[RecordedMachine, Outcome]) -> None:
    machine, outcome = played
    found = {job["job"]: [r["signature"] for r in outcome.of_job(job["job"])] for job in machine.jobs}
    assert found == {job["job"]: [job["signature"]] if job["signature"] else [] for job in machine.jobs}
    assert [r["text"] for r in outcome.incidents(role="root") if r["job"] is None] == []


def test_the_counters_have_the_same_numbers(played: tuple[RecordedMachine, Outcome]) -> None:
    machine, outcome = played
    expected = Counter(job["signature"] for job in machine.jobs if job["signature"])
    counted: Counter[str] = Counter()
    for (signature, *_), value in outcome.metrics["gpufault_incidents_total"].items():
        counted[signature] += int(value)
    assert +counted == expected


def test_each_cause_and_verdict_is_the_programs(played: tuple[RecordedMachine, Outcome]) -> None:
    machine, outcome = played
    for job in machine.jobs:
        for record in outcome.of_job(job["job"]):
            assert record["root_cause"] == job.get("cause", record["root_cause"]), job["key"]
            assert record["verdict"] in (job.get("verdict", "unclear"), "unclear"), job["key"]


def test_each_xid_is_joined_with_the_job_of_its_process(played: tuple[RecordedMachine, Outcome]) -> None:
    machine, outcome = played
    for job in machine.jobs:
        if xid := job.get("xid"):
            of_job = [r for r in outcome.incidents() if r["job"] and r["job"]["id"] == job["job"]]
            assert any(r["signature"].startswith(f"nv_xid_{xid}_") for r in of_job), job["key"]
    jobs = {r["id"]: r["job"]["id"] for r in outcome.incidents() if r["job"]}
    for record in outcome.incidents(role="cascade"):
        assert jobs.get(record["id"]) in (None, jobs.get(record["caused_by"])), record["text"]


def test_no_card_is_condemned(played: tuple[RecordedMachine, Outcome]) -> None:
    _, outcome = played
    assert outcome.faults == []
    assert outcome.metrics.get("gpufault_node_fault", {}) == {}
    assert not any(outcome.metrics["gpufault_exposure"].values())


def test_each_death_is_decided_soon_after_it(played: tuple[RecordedMachine, Outcome]) -> None:
    machine, outcome = played
    deaths = outcome.deaths()
    assert deaths.keys() == {job["job"] for job in machine.jobs if job["code"]}
    for job in machine.jobs:
        if job["code"]:
            record, decided = deaths[job["job"]]
            assert decided - job["end"] < DECIDED_SECONDS, job["key"]
            by_signal = job["signature"] in ("shell_signal_exit", "segfault_user")
            unrecognised = job["signature"] == "unrecognised_crash"
            assert record["outcome"] == ("signal" if by_signal else "unrecognised" if unrecognised else "explained"), (
                job["key"]
            )
