"""Stories of fleets, on a few seeds each; benchmarks/fleet_stories.py tells all of them on many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.core.decoding.jobs import party

from .stories import STORIES

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml"
SHARED_EVENTS = (
    "an array, users known",
    "an array, users unknown",
    "300 jobs at once, users unknown",
    "a switch outage, jobs known",
    "pods as jobs",
)


@pytest.mark.parametrize("story", SHARED_EVENTS)
def test_one_event_that_takes_many_jobs_makes_no_finding(story: str) -> None:
    verdict = STORIES[story].verdict(1)

    assert not [said for said in verdict.false if said.startswith("fault_0")]
    assert verdict.false_confirmed == ()


def test_a_cause_is_found_beside_an_array() -> None:
    verdict = STORIES["an array beside a cause"].verdict(0)

    assert verdict.found
    assert verdict.true_confirmed
    assert verdict.false == ()


def test_a_fact_given_out_by_rack_is_found_where_racks_are_alike() -> None:
    assert STORIES["a BIOS given out by rack"].verdict(0).found


@pytest.mark.parametrize(
    ("job", "of"),
    [
        ("100_3", "100"),
        ("100[3].server", "100"),
        ("100", "100"),
        ("ml/train-worker-12", "ml/train-worker"),
        ("web/embed-7d9f8b6c5d-x2k4q", "web/embed-7d9f8b6c5d"),
        ("0b3-1f", "0b3-1f"),
    ],
)
def test_tasks_and_pods_belong_to_one_party(job: str, of: str) -> None:
    assert party(job) == of


def test_the_rules_for_pages_have_the_same_party_for_pods() -> None:
    pattern = re.search(r'"party", "job \$1", "exported_job", "(\(\.\+/.*)"', RULES.read_text())
    assert pattern is not None

    for pod in ("ml/train-worker-12", "web/embed-7d9f8b6c5d-x2k4q", "ml/one", "a/b-0-0-x"):
        match = re.fullmatch(pattern[1], pod)
        assert match is not None
        assert match[1] == party(pod)
