"""Which incidents are faults that someone has to mend, how they are kept, and which of them concern a job."""

from dataclasses import replace

import pytest

from exporter import packs
from exporter.core.catalogue import Catalogue
from exporter.core.faults import KEPT, Fault, Faults, concerning, fault_of
from exporter.core.model import Diagnosis, Incident, Job
from tests.helpers import NOW, catalogue_of, match

CATALOGUE = catalogue_of(
    """
signatures:
  - {id: gpu_lost, patterns: ['GPU lost'], severity: critical}
  - {id: gpu_slow, patterns: ['GPU slow']}
root_causes:
  - {id: power, signatures: [gpu_lost, gpu_slow], verdict: infrastructure, needs_operator: true}
  - {id: setting, signatures: [gpu_lost], verdict: infrastructure}
"""
)
FAULT = Fault(
    time=NOW, last_time=NOW, count=1, signature="gpu_lost", root_cause="power", title="a cause",
    gpu=None, job=None, remediation="Mend it.", incident="1",
)  # fmt: skip


def diagnosis(
    signature: str = "gpu_lost", seconds: float = 0.0, job: str | None = None, **changed: object
) -> Diagnosis:
    shown = match(
        signature, seconds, source="kernel", gpu="0000:c1:00.0", job=Job(id=job, kind="slurm") if job else None
    )
    incident = Incident(
        scope="kernel boot", signature=signature, gpu="0000:c1:00.0", matches=(shown,), lines=1,
        last_time=shown.time, first_read=shown.time, last_read=shown.time,
    )  # fmt: skip
    told = Diagnosis(
        incident=incident, id="1", role="root", root_cause="power", caused_by=None, verdict="infrastructure"
    )
    return replace(told, **changed)


def fault(told: Diagnosis, catalogue: Catalogue = CATALOGUE) -> Fault | None:
    return fault_of(told, catalogue, NOW + 60, settled=True)


def test_a_critical_incident_whose_cause_needs_an_operator_is_a_fault() -> None:
    assert fault(diagnosis()) == replace(FAULT, gpu="0000:c1:00.0")


@pytest.mark.parametrize(
    "harmless",
    [
        diagnosis("gpu_slow"),
        diagnosis(root_cause="setting"),
        diagnosis(root_cause="unknown"),
        diagnosis(verdict="unclear"),
        diagnosis(role="cascade"),
    ],
    ids=["not critical", "no operator needed", "cause unknown", "only a job says so", "a consequence"],
)
def test_any_other_incident_is_none(harmless: Diagnosis) -> None:
    assert fault(harmless) is None


def test_a_log_that_claims_a_time_to_come_is_believed_up_to_now() -> None:
    found = fault(diagnosis(seconds=1e9))
    assert found is not None
    assert found.time == NOW + 60


def test_the_same_fault_again_counts_and_is_as_young_as_its_last_incident() -> None:
    faults = Faults({})
    for number, seconds in enumerate((5.0, 0.0, 9.0)):
        faults.add(replace(FAULT, time=NOW + seconds, last_time=NOW + seconds, incident=str(number)))
    assert list(faults) == [replace(FAULT, last_time=NOW + 9, count=3, incident="2")]


def test_faults_outlive_the_process_and_rows_of_another_version_go() -> None:
    faults = Faults({})
    faults.add(FAULT)
    faults.add(replace(FAULT, gpu="0000:c1:00.0", settled=False))
    rows = dict(faults.unsaved())
    faults.saved()
    assert faults.unsaved() == {}
    stored = {key: text for key, text in rows.items() if text is not None}
    again = Faults({**stored, "old": '{"colour": "red"}', "torn": '{"time":'})
    assert list(again) == list(faults)
    assert again.unsaved() == {"old": None, "torn": None}


def test_of_too_many_faults_those_seen_last_are_kept() -> None:
    faults = Faults({})
    for number in range(KEPT + 1):
        faults.add(replace(FAULT, job=str(number), last_time=NOW - number))
    assert [f.job for f in faults] == [str(number) for number in range(KEPT)]
    assert [key for key, text in faults.unsaved().items() if text is None] == [replace(FAULT, job=str(KEPT)).key]


def test_a_job_is_concerned_by_its_own_faults_and_by_those_of_the_node() -> None:
    of_node, of_job = replace(FAULT, last_time=NOW + 5), replace(FAULT, job="7_1")
    faults = [of_job, of_node, replace(FAULT, job="9")]
    assert concerning(faults, since=NOW, jobs=["8", "7_1"]) == [of_node, of_job]
    assert concerning(faults, since=NOW, jobs=["10"]) == [of_node]
    assert concerning(faults, since=NOW + 1) == [of_node]
    assert concerning(faults, since=NOW + 6) == []


def test_every_cause_that_needs_an_operator_can_explain_something_critical() -> None:
    catalogue = packs.load([])
    critical = {s.id for s in catalogue.signatures.values() if s.severity == "critical"}
    needy = {cause.id for cause in catalogue.root_causes.values() if cause.needs_operator}
    of_critical = {cause.id for signature in critical for cause in catalogue.causes_of(signature)}
    assert needy
    assert needy <= of_critical
