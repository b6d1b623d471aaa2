"""Which incidents are faults that someone has to mend, how they are kept, and which of them concern a job."""

import json
from dataclasses import asdict, replace

import pytest

from exporter.config import packs
from exporter.core.catalogue.loader import Catalogue
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.fault_history import MAX_FAULTS, FaultHistory
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.node_faults import Fault, fault_json, fault_of, select_faults
from exporter.core.diagnosis.records import rfc3339
from exporter.core.model import Incident, Job, Moment
from tests.support.matches import NOW, catalogue_of, match

CATALOGUE = catalogue_of(
    """
signatures:
  - {id: gpu_lost, patterns: ['GPU lost'], severity: critical}
  - {id: gpu_slow, patterns: ['GPU slow']}
root_causes:
  - {id: power, signatures: [gpu_lost, gpu_slow], verdict: infrastructure, needs_operator: true, when: {reported_by: kernel}}
  - {id: setting, signatures: [gpu_lost], verdict: infrastructure, when: {reported_by: kernel}}
"""
)
FAULT = Fault(
    time=NOW, last_time=NOW, count=1, signature="gpu_lost", root_cause="power", title="a cause",
    gpu=None, job=None, remediation="Mend it.", incident="1",
)  # fmt: skip


def diagnosis(
    signature: str = "gpu_lost",
    seconds: float = 0.0,
    job: str | None = None,
    stamped: float | None = None,
    **changed: object,
) -> Diagnosis:
    shown = match(
        signature,
        seconds,
        source="kernel",
        gpu="0000:c1:00.0",
        job=Job(id=job, kind="slurm") if job else None,
        origin="this",
        boot_seconds=stamped,
    )
    incident = Incident(
        scope="kernel boot", signature=signature, gpu="0000:c1:00.0", matches=(shown,), lines=1,
        last_time=shown.time, first_read=shown.time, last_read=shown.time,
    )  # fmt: skip
    told = Diagnosis(
        incident=incident, id="1", role="root", root_cause="power", caused_by=None, verdict="infrastructure",
        severity="critical", action="run_diagnostics",
    )  # fmt: skip
    return replace(told, **changed)


def at(seconds: float, *, boot: str = "this", ahead: float = 0.0) -> Moment:
    """So many seconds after NOW, on a node that booted 1,000 s before it, by a clock that is so far ahead."""
    return Moment(time=NOW + seconds + ahead, boot=boot, boot_seconds=1000.0 + seconds)


def fault(told: Diagnosis, catalogue: Catalogue = CATALOGUE) -> Fault | None:
    return fault_of(told, catalogue, at(60), settled=True)


def test_a_critical_incident_whose_cause_needs_an_operator_is_a_fault() -> None:
    assert fault(diagnosis()) == replace(FAULT, gpu="0000:c1:00.0", boot="this", boot_seconds=1000.0)
    assert fault(diagnosis(action="reboot")) == replace(
        FAULT, gpu="0000:c1:00.0", boot="this", boot_seconds=1000.0, action="reboot"
    )


def test_what_a_vendor_asks_for_is_a_fault_whatever_brought_the_gpu_there() -> None:
    found = fault(diagnosis(role="cascade", verdict="workload", root_cause="unknown", action="reset_gpu"))
    assert found is not None
    assert (found.title, found.root_cause, found.action) == ("a crash", "unknown", "reset_gpu")


@pytest.mark.parametrize(
    "harmless",
    [
        diagnosis(action=None),
        diagnosis(action="ignore"),
        diagnosis(action="restart_job"),
    ],
    ids=["nothing asked", "to be ignored", "the job alone"],
)
def test_any_other_incident_is_none(harmless: Diagnosis) -> None:
    assert fault(harmless) is None


def test_a_log_that_claims_a_time_to_come_is_believed_up_to_now() -> None:
    found = fault(diagnosis(seconds=1e9))
    assert found is not None
    assert found.time == NOW + 60


def test_the_same_fault_again_counts_and_is_as_young_as_its_last_incident() -> None:
    faults = FaultHistory({})
    for number, seconds in enumerate((5.0, 0.0, 9.0)):
        faults.add(replace(FAULT, time=NOW + seconds, last_time=NOW + seconds, incident=str(number)), at(9))
    assert list(faults) == [replace(FAULT, last_time=NOW + 9, count=3, incident="2", openings=(NOW + 5,))]


def test_faults_outlive_the_process_and_rows_of_another_version_go() -> None:
    faults = FaultHistory({})
    faults.add(FAULT, at(0))
    faults.add(replace(FAULT, gpu="0000:c1:00.0", settled=False, boot="this", boot_seconds=9.0), at(0))
    rows = dict(faults.unsaved())
    faults.saved()
    assert faults.unsaved() == {}
    stored = {key: text for key, text in rows.items() if text is not None}
    again = FaultHistory({**stored, "old": '{"colour": "red"}', "torn": '{"time":'})
    assert list(again) == list(faults)
    assert again.unsaved() == {"old": None, "torn": None}


def test_of_too_many_faults_those_seen_last_are_kept() -> None:
    faults = FaultHistory({})
    for number in range(MAX_FAULTS + 1):
        faults.add(replace(FAULT, job=str(number), last_time=NOW - number), at(0))
    assert [f.job for f in faults] == [str(number) for number in range(MAX_FAULTS)]
    assert [key for key, text in faults.unsaved().items() if text is None] == [replace(FAULT, job=str(MAX_FAULTS)).key]


def test_a_job_is_concerned_by_its_own_faults_and_by_those_of_the_node() -> None:
    of_node, of_job = replace(FAULT, last_time=NOW + 5), replace(FAULT, job="7_1")
    faults = [of_job, of_node, replace(FAULT, job="9")]
    assert select_faults(faults, at(10), since=NOW, jobs=["8", "7_1"]) == [of_node, of_job]
    assert select_faults(faults, at(10), since=NOW, jobs=["10"]) == [of_node]
    assert select_faults(faults, at(10), since=NOW + 1) == [of_node]
    assert select_faults(faults, at(10), since=NOW + 6) == []


def test_a_fault_seen_while_the_clock_was_ahead_ages_by_the_clock_of_its_boot() -> None:
    ahead = 400 * 86400.0
    seen = fault_of(diagnosis(seconds=ahead, stamped=1000.0), CATALOGUE, at(60, ahead=ahead), settled=True)
    assert seen is not None
    later = at(120)  # the clock has been set right
    assert seen.seen_since(later.time - 125, later)
    assert not seen.seen_since(later.time - 115, later)
    assert seen.seen_since(None, later)
    assert fault_json(seen, later)["last_time"] == rfc3339(NOW)


def test_a_fault_seen_while_the_clock_was_behind_is_of_this_boot() -> None:
    seen = fault_of(diagnosis(seconds=-1e9, stamped=1000.0), CATALOGUE, at(60), settled=True)
    assert seen is not None
    assert seen.seen_since(None, at(60))
    assert seen.seen_since(NOW - 1, at(60))


def test_a_kernel_stamp_of_a_time_to_come_is_believed_up_to_now() -> None:
    seen = fault_of(diagnosis(stamped=9e6), CATALOGUE, at(60), settled=True)
    assert seen is not None
    assert not seen.seen_since(at(120).time - 1, at(120))
    assert seen.seen_since(None, at(120))


def test_a_fault_of_an_earlier_boot_goes_by_its_wall_time_unless_that_is_in_the_future() -> None:
    earlier = replace(FAULT, boot="earlier", boot_seconds=9e9, last_time=NOW - 2000)
    assert not earlier.seen_since(None, at(0))
    assert earlier.seen_since(NOW - 2001, at(0))
    assert not earlier.seen_since(NOW - 1999, at(0))
    wrong = replace(earlier, last_time=NOW + 3600)
    assert not wrong.seen_since(NOW - 2001, at(0))
    assert not wrong.seen_since(NOW + 3599, at(3601))  # the time has come, and it was still before this boot


def test_a_fault_stored_without_its_boot_goes_by_its_wall_time_up_to_now() -> None:
    [old] = FaultHistory({"key": json.dumps({**asdict(FAULT), "boot": "", "boot_seconds": 0.0})})
    assert old.seen_since(None, at(0))
    assert old.seen_since(NOW - 1, at(0))
    assert not old.seen_since(NOW + 1, at(5))
    assert not replace(old, last_time=NOW + 3600).seen_since(None, at(0))


def test_of_two_sightings_the_one_of_this_boot_is_the_last() -> None:
    faults = FaultHistory({})
    faults.add(replace(FAULT, boot="this", boot_seconds=990.0, last_time=NOW - 10, incident="this"), at(0))
    faults.add(replace(FAULT, boot="earlier", last_time=NOW - 1, incident="earlier"), at(0))
    faults.add(replace(FAULT, last_time=NOW + 9e6, incident="future"), at(0))
    assert [(f.incident, f.count) for f in faults] == [("this", 3)]


def test_every_cause_that_needs_an_operator_can_explain_something_critical() -> None:
    catalogue = packs.load([])
    critical = {s.id for s in catalogue.signatures.values() if s.severity == "critical"}
    needy = {cause.id for cause in catalogue.root_causes.values() if cause.needs_operator}
    of_critical = {cause.id for signature in critical for cause in catalogue.causes_of(signature)}
    assert needy
    assert needy <= of_critical


def test_a_fault_goes_on_for_as_long_as_lines_join_its_incident() -> None:
    book = IncidentTracker(CATALOGUE, "node", window=60.0, settle=15.0)
    faults = FaultHistory({})
    book.add([match("gpu_lost", 0, source="kernel", gpu="0000:c1:00.0")])
    for diagnosis in book.settle(NOW + 15, lambda _: {}):
        faults.add_settled(diagnosis, CATALOGUE, at(15))
    for seconds in range(30, 1800, 30):
        book.add([match("gpu_lost", seconds, source="kernel", gpu="0000:c1:00.0")])
        assert book.settle(NOW + seconds, lambda _: {}) == []
        faults.refresh(book, lambda _: {}, CATALOGUE, [], at(seconds))
    (fault,) = faults
    assert (fault.count, fault.last_time) == (1, NOW + 1770)
    assert select_faults(faults, at(1800), since=NOW + 1200) == [fault]
