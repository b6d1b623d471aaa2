"""Lines without a time lie between their neighbours: one crash is one incident, and years come from the log itself."""

from __future__ import annotations

import json
import random

import pytest

from exporter.core.decoding.timestamps import MAX_LINES_BACK
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.incidents import condense, timed_by_neighbour
from exporter.core.matching.pipeline import Pipeline
from exporter.core.matching.stored_matches import dump_match, load_match
from exporter.core.model import Incident, Match
from tests.support.matches import NOW, WINDOW, Tail, catalogue_of, match

CATALOGUE = catalogue_of(r"""
signatures:
  - {id: fault, patterns: ['GPU fault']}
  - {id: abort, patterns: ['abort called'], follows: [fault]}
  - {id: exited, role: cascade, patterns: ['task \d+: exited']}
""")
BEFORE = "2023-03-04 11:21:31,114 INFO start\n"
BEHIND = "2023-03-04 11:24:01,250 INFO teardown\n"
HOURS_LATER = "2023-03-04 15:24:01,250 INFO step 7\n"
FAULT, EXITED = "GPU fault\n", "task 3: exited\n"
FILLER = "frame of a stack\n"


def read(*lines: str, sizes: random.Random | None = None) -> list[Match]:
    log, text, at = Tail(Pipeline(CATALOGUE, engine="python", window=60.0)), "".join(lines).encode(), 0
    while at < len(text):
        size = sizes.randrange(1, 200) if sizes else len(text)
        log.offer(text[at : at + size])
        at += size
    log.offer(b"", "final")
    return log.matches


def roots(matches: list[Match], *, live: bool = False) -> list[str]:
    tracker = IncidentTracker(CATALOGUE, "n1", window=60.0, settle=15.0)
    if live:
        for match in matches:
            tracker.add([match])
        found = tracker.settle(NOW + 60, lambda _: {})
    else:
        tracker.join(condense(matches, 60.0))
        tracker.give_times()
        found = list(tracker.diagnose_all(lambda _: {}, lambda incident, _: incident.first.line))
    return [diagnosis.incident.signature for diagnosis in found if diagnosis.role == "root"]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    "behind",
    [
        BEHIND + "2023-03-04 11:24:03,000 task 3: exited\n",  # a minute after the line before the fault
        BEHIND + EXITED,  # it has the time of the line before it
        FILLER * 90 + BEHIND + FILLER * 60 + EXITED,
        "E0304 11:24:03.400000 140 api.py:869] task 3: exited\n",  # no year
    ],
)
def test_a_crash_whose_line_has_no_time_is_one_incident(behind: str, *, live: bool) -> None:
    assert roots(read(BEFORE, FAULT, behind), live=live) == ["fault"]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    "behind",
    [
        BEHIND + HOURS_LATER + EXITED,  # the fault was over at the first of them
        FILLER * 200 + BEHIND + EXITED,  # too far to tell
    ],
)
def test_what_lies_behind_another_time_is_another_crash(behind: str, *, live: bool) -> None:
    assert roots(read(BEFORE, FAULT, behind), live=live) == ["fault", "exited"]


def test_the_time_of_an_incident_stays_the_earliest_that_its_lines_may_have() -> None:
    fault, exited = read(BEFORE, FAULT, BEHIND, EXITED)
    assert (fault.time_source, exited.time_source) == ("inherited", "inherited")
    assert exited.untimed == (fault.time, exited.time)
    assert load_match(json.loads(json.dumps(dump_match(exited)))).untimed == exited.untimed


@pytest.mark.parametrize("seed", range(10))
def test_it_does_not_matter_how_a_log_arrives(seed: int) -> None:
    rng = random.Random(seed)
    lines = rng.choices([BEFORE, BEHIND, HOURS_LATER, FAULT, EXITED, "abort called\n", FILLER * 40], k=40)
    whole = [(m.line, m.signature, m.time, m.untimed) for m in read(*lines)]
    assert [(m.line, m.signature, m.time, m.untimed) for m in read(*lines, sizes=rng)] == whole


@pytest.mark.parametrize(
    "behind", ["E0304 11:24:03.400000 140 api.py:8] GPU fault\n", "INFO 03-04 11:24:03 [w.py:1] GPU fault\n"]
)
def test_a_year_comes_from_the_logs_other_lines(behind: str) -> None:
    (fault,) = read(BEFORE, behind)
    (other,) = read(
        BEFORE.replace("2023-03-04", "2022-12-30"), behind.replace("0304", "0102").replace("03-04", "01-02")
    )
    assert round(fault.time - 1677929043.0, 1) in (0.0, 0.4)  # 2023-03-04T11:24:03Z
    assert round(other.time - 1672658643.0, 1) in (0.0, 0.4)  # 2023-01-02: the nearest
    assert fault.time_source == "log"


def test_a_log_without_any_year_has_that_of_its_last_change() -> None:
    (fault,) = read("INFO 03-04 11:24:03 [w.py:1] GPU fault\n")
    assert 0 <= NOW + 86400 - fault.time < 366 * 86400


# Incidents of finished logs

TRACEBACKS = catalogue_of("""
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
    return {
        new.first.line: (new.first.time, new.first.time_source) for _, new in timed_by_neighbour(incidents(*matches))
    }


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ((at(7), stamped(9), stamped(20, time=NOW + 50)), {7: (NOW, "inherited")}),
        ((stamped(5), at(7)), {}),  # the one before it
        ((at(7), stamped(9, path="/other.log")), {}),
        ((at(7), at(8), stamped(8 + MAX_LINES_BACK)), {8: (NOW, "inherited")}),  # a chain of tracebacks is shorter
        ((at(7, source="kernel"), stamped(9, source="kernel")), {}),  # the kernel has its own clock
    ],
)
def test_an_incident_without_a_time_takes_that_of_the_next_in_its_log(
    matches: tuple[Match, ...], expected: dict[int, tuple[float, str]]
) -> None:
    assert times(*matches) == expected


def test_a_traceback_before_the_launchers_line_is_one_event_with_it() -> None:
    tracker = IncidentTracker(TRACEBACKS, "node", window=WINDOW, settle=15.0)
    tracker.add([at(7), stamped(9)])
    tracker.give_times()
    diagnoses = tracker.settle(NOW, lambda _: {}, everything=True)
    assert [(d.incident.signature, d.role) for d in diagnoses] == [("gpu_fault", "root"), ("nccl_abort", "cascade")]
