"""GPU-hours that crashed jobs lost, from journals small enough to count by hand."""

from pathlib import Path
from typing import Any

import pytest

from exporter.config.fleet import LostConfig
from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.review.lost_hours import LostHours, lost_by_cause, lost_hours
from tests.fleet.review.fleets import DAY, START, WEEK, crash, history, journal, watched

PRICED = LostConfig(assumed_hours=0.5, price=2.0, currency="EUR")


def ran(job: str, node: str, day: float, hours: float) -> dict[str, Any]:
    """The record of a job that failed on a node at a day, after so many hours."""
    times = {"time": rfc3339(START + day * DAY), "started": rfc3339(START + day * DAY - hours * 3600)}
    return {"kind": "job_end", **times, "node": node, "job": {"id": job, "kind": "slurm"}, "outcome": "explained"}


def lost(folder: Path, *records: dict[str, Any], config: LostConfig = PRICED) -> LostHours | None:
    return lost_hours(history(journal(folder, [*watched("abc"), *records])), WEEK, config)


@pytest.mark.parametrize(
    ("records", "measured", "assumed"),
    [
        pytest.param([crash("a", 22, job={"id": "1"}), ran("1", "a", 22.01, 6)], 48, 0, id="by its run time"),
        pytest.param([crash("a", 22, job={"id": "1"}), crash("b", 22, job={"id": "1"}), ran("1", "a", 22.01, 6)], 48, 4,
                     id="a node's start is not another's"),
        pytest.param([crash("a", 22, job={"id": "1"})], 0, 4, id="without a start"),
        pytest.param([crash("a", 22), crash("a", 23)], 0, 4, id="without a job"),
        pytest.param([crash("a", 22, job={"id": "1"}), crash("a", 22.001, "y", job={"id": "1"}), ran("1", "a", 22.01, 6)],
                     48, 0, id="a job's two incidents"),
        pytest.param([crash("a", 22, job={"id": "1"}), ran("1", "a", 21, 3), ran("1", "a", 22.01, 6)], 48, 0,
                     id="a requeued job's last run"),
        pytest.param([crash("a", 22, job={"id": "1"}), ran("1", "a", 22.01, 24 * 365)], 8 * 720, 0, id="a start years ago"),
        pytest.param([crash("a", 15, job={"id": "1"}), ran("1", "a", 15.01, 6)], 0, 0, id="before the window"),
        pytest.param([crash("a", 22, role="cascade", job={"id": "1"}), ran("1", "a", 22.01, 6)], 0, 0, id="a consequence"),
    ],
)  # fmt: skip
def test_a_crash_loses_the_run_of_its_job(
    tmp_path: Path, records: list[dict[str, Any]], measured: float, assumed: float
) -> None:
    hours = lost(tmp_path, *records)
    assert hours is not None
    assert (hours.measured, hours.assumed) == (pytest.approx(measured, rel=1e-3), assumed)


def test_without_a_number_of_gpus_nothing_is_told(tmp_path: Path) -> None:
    db = history(journal(tmp_path, [*watched("a", facts={"os": "x"}), crash("a", 22)]))
    assert lost_hours(db, WEEK, PRICED) is lost_by_cause(db, WEEK, PRICED) is None


def test_the_sentence_names_what_is_assumed_and_the_cost() -> None:
    assert LostHours(48.0, 4.0, PRICED).sentence == (
        "52 GPU-hours lost (at most 48 by run times, 4 assumed at 0.5 h a GPU and crash; 104 EUR)"
    )
    assert LostHours(48.0, 0.0, LostConfig()).sentence == "48 GPU-hours lost (at most, by run times)"
    assert LostHours(0.0, 4.0, LostConfig()).sentence == "4 GPU-hours lost (4 assumed at 1 h a GPU and crash)"


def test_causes_count_a_job_once_each(tmp_path: Path) -> None:
    records = [crash("a", 22, job={"id": "1"}), crash("a", 22.001, "y", job={"id": "1"}), ran("1", "a", 22.01, 6)]
    by_cause = lost_by_cause(history(journal(tmp_path, [*watched("a"), *records])), WEEK, PRICED)
    assert by_cause is not None
    assert {key: round(hours.hours) for key, hours in by_cause.items()} == {
        ("signature", "xid"): 48,
        ("signature", "y"): 48,
    }
