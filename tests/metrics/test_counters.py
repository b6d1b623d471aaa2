"""Counters: what was counted, what of it is not stored yet, and what a later version makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.model import SourceKind
from exporter.metrics.counters import METRICS, OTHER, Counters, node_info_labels
from tests.support.matches import NOW, entries, match

INCIDENTS, LINES, GPUS = "gpufault_incidents_total", "gpufault_lines_matched_total", "gpufault_gpu_incidents_total"
VERDICTS = "gpufault_incident_verdicts_total"


def diagnosed(source: SourceKind = "kernel", **what: Any) -> Diagnosis:
    """The diagnosis of an incident that one line shows."""
    (entry,) = entries(match("gpu_fault", source=source))
    rest = {"id": "1", "role": "root", "root_cause": "bad_gpu", "caused_by": None, "verdict": "infrastructure"}
    return Diagnosis(incident=entry.incident, **{**rest, **what})


def test_counts_add_up() -> None:
    counters = Counters({})
    counters.add(LINES, "gpu_fault", "job")
    counters.add(LINES, "gpu_fault", "job", by=3)
    counters.add(LINES, "gpu_fault", "kernel")
    assert counters.families() == {LINES: {("gpu_fault", "job"): 4.0, ("gpu_fault", "kernel"): 1.0}}


def test_a_root_incident_is_counted_by_verdict_and_by_who_reported_it() -> None:
    counters = Counters({})
    for diagnosis in (diagnosed(), diagnosed(), diagnosed("job", verdict="unclear", root_cause="unknown")):
        counters.count_incident(diagnosis, NOW, late=False, gpu=None, gpu_on_node=True)
    assert counters.families()[VERDICTS] == {
        ("gpu_fault", "bad_gpu", "infrastructure", "kernel", "unknown"): 2.0,
        ("gpu_fault", "unknown", "unclear", "job", "unknown"): 1.0,
    }
    assert counters.families()[INCIDENTS] == {("gpu_fault", "bad_gpu"): 2.0, ("gpu_fault", "unknown"): 1.0}


def test_the_latest_root_incident_of_a_counter_is_its_exemplar() -> None:
    counters = Counters({})
    for number, job in enumerate((None, "7", "x" * 500)):
        counters.count_incident(diagnosed(id=str(number)), NOW, late=False, gpu=None, gpu_on_node=True, job=job)
    counters.count_incident(diagnosed(role="cascade", id="9"), NOW, late=False, gpu=None, gpu_on_node=True)
    [(labels, exemplar)] = counters.exemplars(INCIDENTS).items()
    assert labels == ("gpu_fault", "bad_gpu")
    assert exemplar.labels == {"incident": "2", "job": "x" * 64}
    assert counters.exemplars(VERDICTS) == {}


def test_neither_a_consequence_nor_a_late_incident_counts_for_alerts() -> None:
    counters = Counters({})
    counters.count_incident(diagnosed(role="cascade", caused_by="2"), NOW, late=False, gpu=None, gpu_on_node=True)
    counters.count_incident(diagnosed(), NOW, late=True, gpu=None, gpu_on_node=True)
    assert not counters.families().keys() & {VERDICTS, INCIDENTS}


def test_a_series_exists_before_its_first_event_and_is_not_set_back() -> None:
    counters = Counters({})
    counters.add(INCIDENTS, "gpu_fault", "bad_cable")
    counters.start_at_zero([(INCIDENTS, ("gpu_fault", "bad_cable")), (INCIDENTS, ("gpu_fault", "unknown"))])
    assert counters.families()[INCIDENTS] == {("gpu_fault", "bad_cable"): 1.0, ("gpu_fault", "unknown"): 0.0}


def test_only_what_changed_is_to_be_stored() -> None:
    counters = Counters({})
    counters.add(INCIDENTS, "gpu_fault", "unknown")
    counters.start_at_zero([(LINES, ("gpu_fault", "job"))])
    assert counters.unsaved() == {(INCIDENTS, '["gpu_fault", "unknown"]'): 1.0, (LINES, '["gpu_fault", "job"]'): 0.0}
    counters.saved()
    assert counters.unsaved() == {}
    counters.start_at_zero([(LINES, ("gpu_fault", "job"))])
    assert counters.unsaved() == {}
    counters.add(LINES, "gpu_fault", "job")
    assert counters.unsaved() == {(LINES, '["gpu_fault", "job"]'): 1.0}


def test_what_was_stored_is_counted_on() -> None:
    counters = Counters({})
    counters.add(INCIDENTS, "gpu_fault", "unknown")
    counters.add("gpufault_last_incident_timestamp_seconds", "gpu_fault", by=5.0)
    again = Counters(counters.unsaved())
    assert again.unsaved() == {}
    again.add(INCIDENTS, "gpu_fault", "unknown")
    assert again.families()[INCIDENTS] == {("gpu_fault", "unknown"): 2.0}
    assert again.families()["gpufault_last_incident_timestamp_seconds"] == {("gpu_fault",): 5.0}


def test_what_another_version_stored_and_this_one_does_not_show_is_left_out() -> None:
    stored = {("gpufault_gone_total", "[]"): 1.0, ("gpufault_state_up", "[]"): 1.0, (LINES, '["gpu_fault"]'): 1.0}
    assert Counters(stored).families() == {}


@pytest.mark.parametrize(("name", "labels"), [(LINES, ("gpu_fault",)), ("gpufault_state_up", ())])
def test_a_count_that_no_metric_declares_is_our_bug(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        Counters({}).add(name, *labels)


def test_a_node_has_a_handful_of_gpus_and_a_storm_shares_one_label() -> None:
    counters = Counters({}, label_values=2)
    assert [counters.gpu_label(gpu) for gpu in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    assert counters.families()["gpufault_label_values_refused_total"] == {("gpu",): 2.0}


def test_an_address_that_no_gpu_of_the_node_has_uses_no_place_up() -> None:
    counters = Counters({}, label_values=1)
    assert [counters.gpu_label(gpu, on_node=False) for gpu in ("x", "y")] == [OTHER, OTHER]
    assert counters.gpu_label("a") == "a"


def test_gpus_are_known_again_after_a_restart() -> None:
    counters = Counters({(GPUS, '["a", "x"]'): 1.0, (GPUS, '["other", "x"]'): 1.0}, label_values=2)
    assert [counters.gpu_label(gpu) for gpu in ("b", "c", "a")] == ["b", OTHER, "a"]


def test_a_fact_that_is_not_known_joins_as_unknown() -> None:
    labels = dict(
        zip(METRICS["gpufault_node_info"].labels, node_info_labels({"gpu_model": "MI300X", "os": ""}), strict=True)
    )
    assert labels["gpu_model"] == "MI300X"
    assert labels["os"] == labels["rocm_version"] == "unknown"


def test_every_metric_is_declared_as_prometheus_wants_it() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("gpufault_") or name in ("problem_counter", "problem_gauge")  # NPD's own names
        assert (metric.kind == "counter") == name.endswith("_total")
        assert metric.help.endswith(".")
        assert len(set(metric.labels)) == len(metric.labels)
