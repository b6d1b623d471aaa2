"""Incidents of finished logs without a time of their own take that of the next one in their log."""

from __future__ import annotations

import random

from exporter.core.decoding.timestamps import LOOK_BACK
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.incidents import condense
from exporter.core.diagnosis.times_by_place import timed_by_place
from exporter.core.model import Incident, Match
from tests.support.matches import NOW, WINDOW, catalogue_of, match

CATALOGUE = catalogue_of("""
signatures:
  - {id: gpu_fault, patterns: ['aaaa']}
  - {id: nccl_abort, role: cascade, patterns: ['cccc']}
""")


def at(line: int, signature: str = "gpu_fault", **fields: object) -> Match:
    """An unstamped line of a job's log that was read long after it was written."""
    given = {"line": line, "offset": line * 10, "read_at": NOW + 9000, "time": NOW + 9000, "time_source": "observed"}
    return match(signature, **{**given, **fields})  # type: ignore[arg-type]


def stamped(line: int, **fields: object) -> Match:
    return at(line, "nccl_abort", **{"time": NOW, "time_source": "log", **fields})


def incidents(*matches: Match) -> list[Incident]:
    found = [condense([each], WINDOW)[0] for each in matches]
    random.Random(len(found)).shuffle(found)
    return found


def times(*matches: Match) -> dict[int, tuple[float, str]]:
    return {new.first.line: (new.first.time, new.first.time_source) for _, new in timed_by_place(incidents(*matches))}


def test_an_incident_without_a_time_takes_that_of_the_next_in_its_log() -> None:
    assert times(at(7), stamped(9), stamped(20, time=NOW + 50)) == {7: (NOW, "inherited")}


def test_not_that_of_one_before_it() -> None:
    assert times(stamped(5), at(7)) == {}


def test_not_that_of_another_log() -> None:
    assert times(at(7), stamped(9, path="/other.log")) == {}


def test_not_that_of_one_farther_away_than_a_chain_of_tracebacks() -> None:
    assert times(at(7), at(8), stamped(8 + LOOK_BACK)) == {8: (NOW, "inherited")}


def test_lines_of_the_kernel_keep_their_own_clock() -> None:
    assert times(at(7, source="kernel"), stamped(9, source="kernel")) == {}


def test_a_traceback_before_the_launchers_line_is_one_event_with_it() -> None:
    tracker = IncidentTracker(CATALOGUE, "node", window=WINDOW, settle=15.0)
    tracker.add([at(7), stamped(9)])
    tracker.give_times()
    diagnoses = tracker.settle(NOW, lambda _: {}, everything=True)
    assert [(d.incident.signature, d.role) for d in diagnoses] == [("gpu_fault", "root"), ("nccl_abort", "cascade")]
