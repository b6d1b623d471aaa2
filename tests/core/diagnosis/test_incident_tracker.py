"""From matches to diagnoses: when an incident is told of, what of it is told, and that it is told once."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from exporter.core.diagnosis import stored_incidents
from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.stored_incidents import dump_entry, load_entry
from exporter.core.model import ContextLine, LogContext
from tests.support.matches import NOW, WINDOW, catalogue_of, entries, match

CATALOGUE = catalogue_of("""
signatures:
  - {id: gpu_fault, patterns: ['aaaa'], follows: [xid_79]}
  - {id: xid_79, sources: [kernel], patterns: ['bbbb']}
  - {id: nccl_abort, role: cascade, patterns: ['cccc']}
  - {id: cache_warning, role: context, patterns: ['dddd']}
root_causes:
  - {id: bad_cable, signatures: [xid_79], verdict: infrastructure, when: {fact: cable, equals: bad}}
  - {id: bad_code, signatures: [gpu_fault], when: {fact: cable, equals: good}}
""")
FACTS = {"cable": "bad"}


def facts_at(time: float) -> Mapping[str, str]:
    """The cable went bad at NOW."""
    return FACTS if time >= NOW else {"cable": "good"}


def casebook(stored: Mapping[str, str] | None = None) -> IncidentTracker:
    return IncidentTracker(CATALOGUE, "node", window=WINDOW, settle=15.0, stored=stored)


def told(diagnoses: list[Diagnosis]) -> list[tuple[str, str, str]]:
    return [(d.incident.signature, d.role, d.root_cause) for d in diagnoses]


def test_a_settled_incident_is_reported_once() -> None:
    book = casebook()
    book.add([match("xid_79", 0, source="kernel")])
    assert told(book.settle(NOW + 14, facts_at)) == []
    assert book.open_by_signature() == {"xid_79": 1}
    assert told(book.settle(NOW + 15, facts_at)) == [("xid_79", "root", "bad_cable")]
    assert told(book.settle(NOW + 16, facts_at)) == []
    assert book.open_by_signature() == {}


def test_a_kernel_line_two_seconds_later_decides_the_cause() -> None:
    book = casebook()
    book.add([match("gpu_fault", 0), match("nccl_abort", 1)])
    book.add([match("xid_79", 2, source="kernel")])
    assert book.settle(NOW + 15, facts_at) == []  # the job's wait for the kernel's, which may not have said all
    diagnoses = book.settle(NOW + 17, facts_at)
    assert told(diagnoses) == [
        ("gpu_fault", "cascade", "bad_cable"),
        ("nccl_abort", "cascade", "bad_cable"),
        ("xid_79", "root", "bad_cable"),
    ]
    root = diagnoses[2]
    assert [d.caused_by for d in diagnoses] == [root.id, root.id, None]
    assert {d.verdict for d in diagnoses} == {"infrastructure"}  # a consequence is judged by its root


def test_a_jobs_line_never_hurries_the_kernels() -> None:
    """Lines that keep coming from a job would else choose when the kernel's incidents are told of, and so of what."""
    book = casebook()
    book.add([match("gpu_fault", 0)])
    book.add([match("xid_79", 1, source="kernel", read_at=NOW + 14.5)])
    assert book.settle(NOW + 15, facts_at) == []
    assert told(book.settle(NOW + 29.5, facts_at)) == [
        ("gpu_fault", "cascade", "bad_cable"),
        ("xid_79", "root", "bad_cable"),
    ]


def test_a_job_waits_for_the_kernel_no_longer_than_twice_the_time() -> None:
    book = casebook()
    book.add([match("gpu_fault", 0)])
    book.add([match("xid_79", 1, source="kernel", read_at=NOW + 20)])
    assert book.settle(NOW + 29, facts_at) == []
    assert told(book.settle(NOW + 30, facts_at)) == [("gpu_fault", "cascade", "bad_cable")]
    assert told(book.settle(NOW + 35, facts_at)) == [("xid_79", "root", "bad_cable")]


def test_the_facts_as_of_the_first_line_decide() -> None:
    book = casebook()
    book.add([match("gpu_fault", -1, read_at=NOW), match("gpu_fault", 1)])
    assert told(book.settle(NOW + 15, facts_at)) == [("gpu_fault", "root", "bad_code")]


def test_where_a_log_has_no_stamps_the_facts_as_of_reading_decide() -> None:
    book = casebook()
    book.add([match("gpu_fault", time=12.5, time_source="observed", read_at=NOW - 1)])  # the kernel's clock, say
    assert told(book.settle(NOW + 15, facts_at)) == [("gpu_fault", "root", "bad_code")]


def test_evidence_that_comes_late_changes_no_cause() -> None:
    book = casebook()
    book.add([match("gpu_fault", 0)])
    assert told(book.settle(NOW + 15, facts_at)) == [("gpu_fault", "root", "unknown")]
    book.add([match("xid_79", 16, source="kernel"), match("nccl_abort", 17)])
    late = book.settle(NOW + 32, facts_at)
    assert told(late) == [("xid_79", "root", "bad_cable"), ("nccl_abort", "cascade", "unknown")]


def test_an_incident_that_grew_after_its_report_is_journalled_again_unchanged() -> None:
    book = casebook()
    book.add([match("xid_79", 0, source="kernel"), match("gpu_fault", 0)])
    first = book.settle(NOW + 15, facts_at)
    book.add([match("xid_79", 30, source="kernel")])
    assert book.settle(NOW + 60, facts_at) == []
    assert book.close_expired(NOW + 90, facts_at) == []
    (grown,) = book.close_expired(NOW + 91, facts_at)
    root = next(d for d in first if d.role == "root")
    assert grown.incident.lines == 2
    assert (grown.id, grown.root_cause, grown.role, grown.verdict, grown.evidence, grown.remediation) == (
        root.id, root.root_cause, root.role, root.verdict, root.evidence, root.remediation,
    )  # fmt: skip
    assert book.incidents() == []


def test_what_did_not_grow_goes_in_silence() -> None:
    book = casebook()
    book.add([match("xid_79", 0, source="kernel")])
    book.settle(NOW + 15, facts_at)
    assert book.close_expired(NOW + 61, facts_at) == []
    assert book.incidents() == []


def test_a_context_line_is_never_an_incident_of_its_own() -> None:
    book = casebook()
    book.add([match("cache_warning", 0)])
    assert book.settle(NOW + 15, facts_at) == []
    book.add([match("cache_warning", 20)])
    assert book.close_expired(NOW + 100, facts_at) == []
    assert book.incidents() == []


def test_at_the_end_all_incidents_are_reported() -> None:
    book = casebook()
    book.add([match("xid_79", 0, source="kernel")])
    assert told(book.settle(NOW, facts_at, everything=True)) == [("xid_79", "root", "bad_cable")]


def restarted(book: IncidentTracker, stored: dict[str, str]) -> IncidentTracker:
    """A new process, with what this one stored on top of what was stored before."""
    for number, text in book.unsaved().items():
        if text is None:
            stored.pop(number, None)
        else:
            stored[number] = json.loads(json.dumps(text))
    book.saved()
    assert book.unsaved() == {}
    return casebook(stored)


def test_a_restart_before_an_incident_settled_loses_nothing() -> None:
    book = casebook()
    book.add([match("gpu_fault", 0)])
    book = restarted(book, {})
    book.add([match("gpu_fault", 5), match("xid_79", 2, source="kernel")])
    diagnoses = book.settle(NOW + 17, facts_at)
    assert told(diagnoses) == [("gpu_fault", "cascade", "bad_cable"), ("xid_79", "root", "bad_cable")]
    assert diagnoses[0].incident.lines == 2


def test_a_restart_after_it_settled_tells_nothing_twice() -> None:
    stored: dict[str, str] = {}
    book = casebook()
    book.add([match("xid_79", 0, source="kernel")])
    (first,) = book.settle(NOW + 15, facts_at)
    book = restarted(book, stored)
    book.add([match("xid_79", 20, source="kernel")])
    assert book.settle(NOW + 60, facts_at) == []
    book = restarted(book, stored)
    (grown,) = book.close_expired(NOW + 100, facts_at)
    assert (grown.id, grown.root_cause, grown.incident.lines) == (first.id, "bad_cable", 2)
    restarted(book, stored)
    assert stored == {}


def test_what_is_stored_is_what_comes_back() -> None:
    context = LogContext(
        facts={"torch": "2.6"}, marks={"cache_warning": ContextLine(path="/p", line=3, text="t", captures={"a": "b"})}
    )
    (entry,) = entries(
        match("gpu_fault", 0, context=context, rank="3", captures={"x": "y"}, gpu="0000:01:00.0"),
        match("gpu_fault", 1, process={"nccl_version": "2.21.5"}, context=context, text="\ud800 half a character"),
        match("gpu_fault", 2),
    )
    assert load_entry(entry.number, dump_entry(entry)) == entry
    assert dump_entry(entry).count("torch") == 1  # contexts that matches share are written once


def test_a_growing_incident_stores_each_match_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[float] = []
    dump_match = stored_incidents.dump_match
    monkeypatch.setattr(stored_incidents, "dump_match", lambda one: encoded.append(one.time) or dump_match(one))
    book = casebook()

    def stored_after(*seconds: float) -> str | None:
        book.add([match("gpu_fault", second, rank=str(second)) for second in seconds])
        (text,) = book.unsaved().values()
        book.saved()
        return text

    stored_after(*range(1, 11))
    encoded.clear()
    text = stored_after(11, 12)
    assert encoded == []
    assert text
    assert [load_entry(1, text).incident] == book.incidents()
    assert book.incidents()[0].lines == 12
    text = stored_after(0)  # replaces one of those kept
    assert text
    assert [load_entry(1, text).incident] == book.incidents()


def test_what_cannot_be_read_or_is_not_wanted_any_more_is_dropped_and_removed() -> None:
    (kept,) = entries(match("xid_79", source="kernel"))
    (gone,) = entries(match("of_an_older_catalogue"))
    stored = {
        "1": dump_entry(kept),
        "2": dump_entry(gone),
        "3": "{}",
        "4": "not JSON",
        "5": '{"contexts": 7}',
        "six": "{}",
    }
    book = casebook(stored)
    assert [i.signature for i in book.incidents()] == ["xid_79"]
    assert book.unsaved() == dict.fromkeys(["2", "3", "4", "5", "six"])
    book.saved()
    assert book.unsaved() == {}
