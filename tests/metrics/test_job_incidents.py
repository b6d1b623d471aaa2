"""The series of jobs that crashed: which incidents count, for how long, and how many series there are."""

from __future__ import annotations

from typing import Any

from exporter.metrics.job_incidents import MAX_LABEL, MAX_TIMES, SECONDS, JobIncidents

NOW = 1_700_000_000.0


def record(job: str | None = "7", *, kind: str = "slurm", user: str | None = "kim", **changed: Any) -> dict[str, Any]:
    named = {"id": job, "user": user, "kind": kind} if job else None
    return {"job": named, "role": "root", "late": False, "signature": "s", "root_cause": "c", **changed}


def test_a_job_has_a_series_for_an_hour() -> None:
    jobs = JobIncidents({})
    jobs.add(record(), NOW)
    jobs.add(record(), NOW + 60)
    key = ("7", "kim", "", "", "s", "c")
    assert jobs.values(NOW + 61, 50) == {key: 2.0}
    assert jobs.values(NOW + SECONDS, 50) == {key: 1.0}
    assert jobs.values(NOW + SECONDS + 60, 50) == {}
    assert list(jobs.unsaved().values()) == [None]


def test_a_pod_has_its_namespace_beside_it() -> None:
    jobs = JobIncidents({})
    jobs.add(record("ml/train-0", kind="kubernetes", user=None), NOW)
    assert list(jobs.values(NOW, 50)) == [("ml/train-0", "", "ml", "train-0", "s", "c")]


def test_neither_consequences_nor_old_incidents_nor_those_without_a_job_count() -> None:
    jobs = JobIncidents({})
    for one in (record(None), record(role="cascade"), record(late=True)):
        jobs.add(one, NOW)
    assert jobs.values(NOW, 50) == {}


def test_of_too_many_series_those_with_the_latest_incidents_stay() -> None:
    jobs = JobIncidents({})
    for number in (*range(60), 0):
        jobs.add(record(str(number)), NOW)
    kept = [key[0] for key in jobs.values(NOW, 50)]
    assert kept == [*(str(number) for number in range(11, 60)), "0"]
    assert jobs.values(NOW, 0) == {}


def test_labels_and_counts_are_bounded() -> None:
    jobs = JobIncidents({})
    for _ in range(MAX_TIMES + 5):
        jobs.add(record("x" * 9999), NOW)
    assert jobs.values(NOW, 50) == {("x" * MAX_LABEL, "kim", "", "", "s", "c"): float(MAX_TIMES)}


def test_they_outlive_the_process_and_rows_of_another_version_go() -> None:
    jobs = JobIncidents({})
    jobs.add(record(), NOW)
    rows = {key: text for key, text in jobs.unsaved().items() if text}
    again = JobIncidents({**rows, "torn": "[1", "old": "{}"})
    assert again.values(NOW + 1, 50) == jobs.values(NOW + 1, 50)
    assert again.unsaved() == {"torn": None, "old": None}
