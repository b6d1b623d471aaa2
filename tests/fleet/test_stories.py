"""Stories of fleets, on a few seeds each; benchmarks/fleet_stories.py tells all of them on many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.core.decoding.jobs import party
from exporter.fleet.statistics.continuous import is_threshold
from exporter.fleet.statistics.correlation import correlate
from exporter.fleet.statistics.design import family_of
from exporter.fleet.statistics.silences import SILENT
from exporter.probes import FACTS

from .small import WEEK, fleet
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


def test_nodes_that_go_dark_without_a_record_are_a_finding() -> None:
    verdict = STORIES["nodes go dark with a driver"].verdict(70000)

    assert verdict.found
    assert verdict.true_confirmed
    assert verdict.false == ()


@pytest.mark.parametrize("story", [name for name in STORIES if name.startswith("holes in heartbeats")])
def test_holes_in_heartbeats_that_are_not_the_nodes_faults_make_no_finding(story: str) -> None:
    verdict = STORIES[story].verdict(70000)

    assert not [said for said in verdict.false if said.startswith(SILENT)]
    assert verdict.false_confirmed == ()


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


@pytest.mark.parametrize("story", ["vm.zone_reclaim_mode", "30 values on 1,000 nodes", "12 levels, 1.3 times each"])
def test_a_fact_is_found_whatever_its_name_and_values(story: str) -> None:
    verdict = STORIES[story].verdict(100)

    assert verdict.found
    assert verdict.false == ()


def test_a_number_with_levels_is_one_finding() -> None:
    first, _ = STORIES["12 levels, 1.3 times each"].weeks(100)

    assert [(f.facts[0].fact, is_threshold(f.facts[0].value)) for f in first.findings] == [("age_years", True)]


def test_no_fact_of_a_node_is_taken_for_a_place_but_serial_numbers() -> None:
    assert [name for name in FACTS if family_of(name) == "location"] == []
    assert family_of("gpu_serial.0000:c1:00.0") == "location"


@pytest.mark.parametrize(
    "name", ["rack", "leaf_switch", "u_rack_id", "net.switch", "node_name", "hostname", "Data_Zone"]
)
def test_a_place_is_told_by_the_last_word(name: str) -> None:
    assert family_of(name) == "location"


@pytest.mark.parametrize(
    "name", ["switch_firmware", "node_image", "board_rev", "vm.zone_reclaim_mode", "host_kernel", "arrow"]
)
def test_a_setting_of_a_place_is_configuration(name: str) -> None:
    assert family_of(name) == "configuration"


def test_values_of_too_few_nodes_are_named_as_left_out() -> None:
    facts = [(f"n{i:03}", 0, {"checksum": f"x{i}" if i < 90 else "usual", "os": str(i % 2)}) for i in range(300)]
    found = correlate(fleet(facts, [(f"n{i:03}", 1 + i / 1000, "crash", str(i)) for i in range(20)]), WEEK)

    (gap,) = found.gaps
    assert (gap.kind, gap.count) == ("values_left_out", 90)
    assert "checksum (90)" in gap.message
    assert found.complete


def test_where_nodes_crash_weekly_all_crashes_count() -> None:
    first, second = STORIES["48 nodes that crash weekly, 4 times on 12"].weeks(100)
    finding = first.findings[0]

    assert (finding.facts[0].fact, finding.counts, finding.rates) == ("cooling", "crashes", None)
    assert finding.ratio.low < 4 < finding.ratio.high
    assert second.findings[0].status == "confirmed"


def test_nodes_that_differ_among_themselves_are_no_finding() -> None:
    assert STORIES["48 nodes that crash weekly"].verdict(100).false == ()
