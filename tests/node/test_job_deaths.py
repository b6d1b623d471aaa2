"""Which failed jobs the logs explain, counted once each, over restarts too."""

from __future__ import annotations

from typing import Any

from exporter.core.decoding.job_files import NodeJob
from exporter.node.job_ends import MAX_JOBS, WAIT_SECONDS, Crashes, CrashesOf, JobDeaths

NOW = 1_700_000_000.0
LATER = NOW + WAIT_SECONDS


def note(deaths: JobDeaths, job: str, signature: str = "xid_31", **more: str) -> None:
    deaths.note({"job": {"id": job, **more}, "signature": signature})


def end(job: str = "7", code: int | None = 1, **more: Any) -> NodeJob:
    return NodeJob(**{"raw_id": job, "id": job, "ended": NOW, "exit_code": code, "signal": 0, **more})


def begun() -> JobDeaths:
    deaths = JobDeaths({})
    deaths.ended([], NOW)
    return deaths


def rows(deaths: JobDeaths) -> dict[str, str]:
    return {key: text for key, text in deaths.unsaved().items() if text is not None}


def nothing(_: NodeJob) -> Crashes:
    return Crashes()


def outcomes(deaths: JobDeaths, unsettled: CrashesOf = nothing) -> list[tuple[str, str]]:
    return [(death.job.id, death.outcome) for death in deaths.due(LATER, unsettled)]


def test_a_death_is_explained_by_a_signature_by_an_unrecognised_crash_only_or_by_nothing() -> None:
    deaths = begun()
    note(deaths, "1")
    note(deaths, "1", "unrecognised_crash")
    note(deaths, "2", "unrecognised_crash")
    deaths.note({"job": None, "signature": "xid_31"})
    deaths.ended([end("1"), end("2"), end("3"), end("4", code=0), end("5", code=None), end("6", 0, signal=9)], NOW)
    assert deaths.due(NOW, nothing) == []  # their last lines are still being read
    assert outcomes(deaths) == [("1", "explained"), ("2", "unrecognised"), ("3", "no_line"), ("6", "signal")]
    assert outcomes(deaths) == []


def test_an_incident_that_settles_after_the_end_counts() -> None:
    deaths = begun()
    deaths.ended([end("7")], NOW)
    note(deaths, "7")
    assert outcomes(deaths) == [("7", "explained")]


def test_a_task_of_an_array_has_two_names() -> None:
    deaths = begun()
    note(deaths, "103")
    note(deaths, "100_4", raw_id="104")
    deaths.ended([end("103", id="100_3"), end("104", id="104")], NOW)
    assert [outcome for _, outcome in outcomes(deaths)] == ["explained", "explained"]


def test_a_job_on_several_nodes_counts_on_its_first() -> None:
    deaths = begun()
    deaths.ended([end(is_first_node=False)], NOW)
    assert outcomes(deaths) == []


def test_what_was_counted_is_not_counted_again_after_a_restart() -> None:
    deaths = begun()
    note(deaths, "7")
    deaths.ended([end()], NOW)
    waiting = JobDeaths(rows(deaths))
    waiting.ended([end()], NOW)  # the file is still there
    assert outcomes(waiting) == [("7", "explained")]
    assert outcomes(deaths) == [("7", "explained")]
    counted = JobDeaths(rows(deaths))
    counted.ended([end()], NOW)
    assert outcomes(counted) == []
    counted.ended([end(ended=NOW + 60)], NOW)  # it was requeued and failed again
    assert outcomes(counted) == [("7", "explained")]


def test_jobs_that_ended_before_the_very_first_start_do_not_count() -> None:
    deaths = JobDeaths({})
    deaths.ended([end("7")], NOW)
    assert outcomes(deaths) == []


def test_what_is_remembered_is_bounded_and_rows_of_another_version_go() -> None:
    deaths = begun()
    for number in range(MAX_JOBS + 3):
        note(deaths, str(number))
    assert len(rows(deaths)) == MAX_JOBS + 1
    other = JobDeaths({"begun": "1", "job 7": "{", "end 7 1.0": "x"})
    assert other.unsaved() == {"job 7": None, "end 7 1.0": None}


def test_a_record_names_the_job_its_end_and_what_explains_it() -> None:
    deaths = begun()
    note(deaths, "7")
    deaths.ended([end(user="ada", started=NOW - 3600)], NOW)
    [death] = deaths.due(LATER, nothing)
    assert death.record("gpu-7", LATER) == {
        "kind": "job_end", "time": "2023-11-14T22:13:20.000Z", "node": "gpu-7",
        "job": {"id": "7", "user": "ada", "kind": "slurm"}, "exit_code": 1, "signal": 0, "outcome": "explained",
        "started": "2023-11-14T21:13:20.000Z", "recorded_time": "2023-11-14T22:13:28.000Z",
        "signatures": ["xid_31"],
    }  # fmt: skip


def test_what_has_not_settled_yet_explains_a_death_too() -> None:
    deaths = begun()
    deaths.ended([end("1"), end("2"), end("3"), end("4", code=137)], NOW)
    unsettled = {"1": Crashes(["torch_oom"]), "2": Crashes(["unrecognised_crash"]), "3": Crashes(by_signal=True)}
    assert outcomes(deaths, lambda job: unsettled.get(job.id, Crashes())) == [
        ("1", "explained"), ("2", "unrecognised"), ("3", "signal"), ("4", "signal"),
    ]  # fmt: skip
