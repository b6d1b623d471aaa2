"""The numbers of a review, from journals small enough to count by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.diagnosis.records import rfc3339
from exporter.fleet.report.document import to_json
from exporter.fleet.report.html_report import as_html, sections
from exporter.fleet.report.markdown import as_markdown
from exporter.fleet.review.review_contents import NOT_CORRELATED, Deaths, Review
from exporter.fleet.review.window_review import review_of
from tests.fleet.review.fleets import DAY, START, TITLES, WEEK, crash, history, journal, watched


def review(folder: Path, records: list[dict[str, object]], *, compare: bool = True) -> Review:
    return review_of(history(journal(folder, records)), WEEK, None, TITLES, compare=compare)


def test_a_cause_is_counted_with_its_nodes_jobs_and_hours(tmp_path: Path) -> None:
    cause = {"root_cause": "nvlink", "verdict": "infrastructure"}
    found = review(
        tmp_path,
        [
            *watched(["a", "b", "c"]),
            crash("a", 22, job={"id": "1"}, **cause),
            crash("b", 22.1, job={"id": "1"}, **cause),
            crash("b", 25, job={"id": "2"}, **cause),
            crash("c", 15, **cause),
        ],
    )
    (row,) = found.causes
    assert (row.kind, row.id, row.title, row.verdict) == ("cause", "nvlink", "An NVLink failed", "infrastructure")
    assert (row.incidents, row.nodes, row.jobs, row.before, row.lost_gpu_hours) == (3, 2, 2, 1, 24.0)
    assert row.trend == (None, None, None, None, 0, 0, 1, 3)
    assert (found.totals.incidents, found.totals.origins, found.totals.nodes_crashed) == (3, 2, 2)
    assert found.totals.lost is not None
    assert found.totals.lost.hours == 24.0
    assert found.nodes == 3


def test_the_page_shows_a_cause_that_is_gone_only_where_chance_does_not_explain_it(tmp_path: Path) -> None:
    often = [crash(node, 15 + at / 10, "often_before") for node in "abc" for at in range(9)]
    records = [crash("a", 22, "now"), crash("a", 15, "once_before"), *often]
    found = review(tmp_path, [*watched("abc"), *records])
    [rows] = [each.rows for each in sections(found, {}) if each.title == "Why jobs crashed"]
    assert [cause.id for cause in found.causes] == ["now", "often_before", "once_before"]
    assert [row[0].striptags().removesuffix("cause unknown") for row in rows] == ["now", "often_before"]


def ended(job: str, outcome: str, node: str = "a", day: float = 22.0) -> dict[str, Any]:
    time = rfc3339(START + day * DAY)
    return {"kind": "job_end", "time": time, "node": node, "job": {"id": job, "kind": "slurm"}, "outcome": outcome}


def test_failed_jobs_are_counted_once_by_what_explains_them_on_any_node(tmp_path: Path) -> None:
    records = [
        ended("1", "explained"),
        ended("1", "no_line", node="b"),  # its second node
        ended("2", "no_line"),
        crash("b", 21.9, job={"id": "2"}),  # its log was read elsewhere
        ended("3", "no_line"),
        crash("a", 21.9, "srun_task_exit", severity="info", job={"id": "3"}),
        crash("a", 3.0, job={"id": "3"}),  # long before
        ended("4", "unrecognised"),
        ended("5", "explained", day=3.0),  # before the window
        ended("6", "of another version"),
    ]
    found = review(tmp_path, [*watched("ab"), *records])
    assert found.deaths == Deaths(explained=2, unrecognised=1, no_line=1)
    assert to_json(found)["failed_jobs"] == {"explained": 2, "unrecognised": 1, "no_line": 1}
    assert (
        "50% of 4 failed jobs have a line that a signature matches, 1 unrecognised, 1 without any line."
        in as_markdown(found, {})
    )
    assert "no line that says why" in as_html(found, {})


def test_without_hooks_no_failed_jobs_are_known(tmp_path: Path) -> None:
    found = review(tmp_path, watched("ab"))
    assert found.deaths is None
    assert to_json(found)["failed_jobs"] is None
    assert "failed job" not in as_markdown(found, {})


def test_consequences_are_not_counted(tmp_path: Path) -> None:
    records = [crash("a", 22), crash("a", 22.1, role="cascade"), crash("b", 22.2, root_cause="peer_failure")]
    assert review(tmp_path, [*watched("ab"), *records]).totals.incidents == 1


def test_a_crash_without_a_cause_counts_for_its_signature(tmp_path: Path) -> None:
    found = review(tmp_path, [*watched("a"), crash("a", 22), crash("a", 23, root_cause=None)])
    assert [(row.kind, row.id, row.incidents) for row in found.causes] == [("signature", "xid", 2)]
    assert found.totals.without_cause == 2


def test_an_exact_interval_compares_with_the_window_before(tmp_path: Path) -> None:
    records = [crash("a", 21 + i / 10) for i in range(12)] + [crash("b", 14 + i / 10) for i in range(4)]
    found = review(tmp_path, [*watched("ab"), *records])
    assert found.change is not None
    # Clopper and Pearson's interval of 12 of 16, as odds: scipy.stats.binomtest(12, 16).proportion_ci()
    assert (found.change.value, found.change.low, found.change.high) == pytest.approx((3.0, 0.9097, 12.737), rel=2e-3)
    assert "no clear change from the week before" in found.sentence


def test_twice_the_crashes_in_twice_the_hours_is_no_change(tmp_path: Path) -> None:
    late = [each for each in watched("b") if each["kind"] != "heartbeat" or str(each["time"]) >= "2026-06-22"]
    records = [crash("ab"[i % 2], 21.1 + i / 4) for i in range(20)] + [crash("a", 14.1 + i / 4) for i in range(10)]
    found = review(tmp_path, [*watched("a"), *late, *records])
    assert found.change is not None
    assert found.change.value == pytest.approx(1.0, abs=0.01)


def test_without_an_earlier_window_nothing_is_compared_and_nothing_is_new(tmp_path: Path) -> None:
    beats = [each for each in watched("a") if each["kind"] != "heartbeat" or str(each["time"]) >= "2026-06-22"]
    found = review(tmp_path, [*beats, crash("a", 22)])
    assert (found.before, found.change, found.totals_before, found.novelties) == (None, None, None, ())
    assert found.sentence == "1 root incident on 1 of 1 node."


def test_new_and_returning_signatures_are_named(tmp_path: Path) -> None:
    records = [
        crash("a", 22, "fresh"),
        crash("a", 2, "back"),
        crash("a", 23, "back"),
        crash("a", 19, "usual"),
        crash("a", 24, "usual"),
    ]
    found = review(tmp_path, [*watched("a"), *records])
    assert {n.signature: n.quiet_seconds for n in found.novelties} == {"fresh": None, "back": 21 * DAY}
    assert "New: “fresh”." in found.sentence


def test_a_node_that_stopped_reporting_is_silent(tmp_path: Path) -> None:
    found = review(tmp_path, [*watched("a"), *watched("b", days=24), *watched("c", days=10)])
    assert [(s.node, s.last_seen) for s in found.silent] == [("b", START + 24 * DAY - 1)]


def test_unrecognised_crashes_are_grouped_and_new_ones_marked(tmp_path: Path) -> None:
    def one(node: str, day: float, template: str) -> dict[str, object]:
        return crash(
            node, day, "unrecognised_crash", captures={"template": template}, text=f"{template} 3", path="x", line=4
        )

    records = [one("a", 2, "old"), one("a", 22, "old"), one("a", 23, "new"), one("b", 24, "new")]
    found = review(tmp_path, [*watched("ab"), *records]).unrecognised
    assert [(u.template, u.count, u.nodes, u.is_new, u.examples) for u in found] == [
        ("new", 2, 2, True, ("new 3",)),
        ("old", 1, 1, False, ("old 3",)),
    ]


def test_days_of_the_chart_add_up_to_the_totals(tmp_path: Path) -> None:
    records = [crash("a", 21.5), crash("a", 27.9, verdict="workload"), crash("a", 27.99, verdict="nonsense")]
    found = review(tmp_path, [*watched("a"), *records]).over_time
    by = dict(found.by_verdict)
    assert (by["unclear"][21], by["workload"][-1], by["unclear"][-1]) == (1, 1, 1)
    assert sum(map(sum, by.values())) == 3
    assert len(found.edges) == 29


def test_a_fleet_without_crashes_gets_one_sentence(tmp_path: Path) -> None:
    found = review(tmp_path, watched("ab"))
    assert found.sentence == "No root incident on 2 nodes."
    assert (found.causes, found.change) == ((), None)


def test_an_incomplete_fleet_is_not_called_fine(tmp_path: Path) -> None:
    db = history(journal(tmp_path, watched("ab")))
    correlation = replace(NOT_CORRELATED, complete=False)
    assert review_of(db, WEEK, correlation, TITLES).sentence == "No root incident on 2 nodes, as far as was seen."
