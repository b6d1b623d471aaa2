"""Incidents: which matches belong together, found fast in a storm."""

from __future__ import annotations

import itertools
import random

import pytest

from exporter.core.diagnosis import incidents
from exporter.core.diagnosis.incidents import MAX_KEPT_MATCHES, MAX_RANKS, condense, gpu_of, merge
from exporter.core.diagnosis.open_incidents import MAX_OPEN, Entry, OpenIncidents, Reported, group
from exporter.core.model import Incident, Match
from tests.support.matches import NOW, WINDOW, match


def one(*matches: Match) -> Incident:
    (incident,) = condense(matches, WINDOW)
    return incident


def spans(found: list[Incident]) -> list[tuple[str, float, float, int]]:
    """Of each incident its signature, from when to when it was (seconds after NOW), and how many lines it has."""
    return [(i.signature, i.first.time - NOW, i.last_time - NOW, i.lines) for i in found]


def told(number: int = 0) -> Reported:
    return Reported(f"id{number}", f"id{number}", "root", "unknown", 1)


# What belongs together


def test_matches_are_one_incident_while_the_silence_between_them_is_short() -> None:
    times = (0, 60, 119, 180, 180)
    assert spans(group([match("gpu_fault", t) for t in times], WINDOW)) == [
        ("gpu_fault", 0, 119, 3),
        ("gpu_fault", 180, 180, 2),
    ]


def test_a_match_between_two_incidents_makes_them_one() -> None:
    late = [match("gpu_fault", t) for t in (0, 100, 50)]
    assert spans(group(late, WINDOW)) == [("gpu_fault", 0, 100, 3)]


def test_what_keeps_incidents_apart() -> None:
    apart = [
        match("gpu_fault", job="1"),
        match("gpu_fault", job="2"),
        match("gpu_fault", job=None, path="/a.log"),
        match("gpu_fault", job=None, path="/b.log"),
        match("ring_gone", job="1"),
        match("gpu_fault", source="kernel", origin="boot 1"),
        match("gpu_fault", source="kernel", origin="boot 2"),
        match("gpu_fault", source="kernel", origin="boot 2", gpu="0000:01:00.0"),
        match("gpu_fault", source="kernel", origin="boot 2", gpu="0000:02:00.0"),
    ]
    assert len(group(apart, WINDOW)) == len(apart)


def test_what_does_not_keep_incidents_apart() -> None:
    together = [
        match("gpu_fault", path="/a.log", rank="0"),
        match("gpu_fault", path="/b.log", rank="1"),
        match("gpu_fault", gpu="0000:01:00.0"),  # a job's incident is the job's, whichever GPU it names
    ]
    (incident,) = group(together, WINDOW)
    assert (incident.lines, incident.ranks, gpu_of(incident)) == (3, frozenset({"0", "1"}), "0000:01:00.0")


def test_an_incident_keeps_its_first_matches_and_counts_all() -> None:
    matches = [match("gpu_fault", n, captures={"n": str(n), **({"late": "x"} if n > 10 else {})}) for n in range(50)]
    random.Random(1).shuffle(matches)
    incident = one(*matches)
    assert [m.captures["n"] for m in incident.matches] == [str(n) for n in range(MAX_KEPT_MATCHES)]
    assert (incident.lines, incident.captures()) == (50, {"n": "0"})


def test_an_incident_names_a_bounded_number_of_ranks() -> None:
    ranks = one(*(match("gpu_fault", rank=str(n)) for n in range(MAX_RANKS + 9))).ranks
    assert len(ranks) == MAX_RANKS


def test_an_incident_is_as_old_as_the_first_reading_of_it() -> None:
    incident = one(match("gpu_fault", 5, read_at=NOW + 30), match("gpu_fault", 9, read_at=NOW + 20))
    assert (incident.first_read, incident.last_read) == (NOW + 20, NOW + 30)


def test_merging_knows_no_order() -> None:
    a, b, c = (one(*(match("gpu_fault", t + n, rank=str(n)) for n in range(8))) for t in (0, 10, 20))
    results = {
        merge(merge(x, y), z) == merge(z, merge(y, x)) == merge(merge(a, b), c)
        for x, y, z in itertools.permutations((a, b, c))
    }
    assert results == {True}


# What is near


@pytest.mark.parametrize(
    ("other", "is_near"),
    [
        (match("ring_gone", 60), True),
        (match("ring_gone", 60.5), False),
        (match("ring_gone", -60), True),
        (match("ring_gone", job="8"), False),  # another job
        (match("ring_gone", source="kernel"), True),
        (match("ring_gone", source="kernel", gpu="0000:01:00.0"), True),
        (match("ring_gone", source="kernel", gpu="0000:02:00.0"), False),  # another GPU
    ],
)
def test_one_incident_may_explain_another_that_is_near(other: Match, is_near: bool) -> None:
    a, b = one(match("gpu_fault", gpu="0000:01:00.0")), one(other)
    assert incidents.may_explain(a, b, WINDOW) is incidents.may_explain(b, a, WINDOW) is is_near


def test_between_a_job_and_the_kernel_the_time_of_reading_decides_only_while_they_run() -> None:
    unstamped, kernel = one(match("gpu_fault", time_source="observed")), one(match("ring_gone", source="kernel"))
    same_log = one(match("ring_gone"))
    assert incidents.may_explain(unstamped, kernel, WINDOW)
    assert not incidents.may_explain(unstamped, kernel, WINDOW, live=False)
    assert incidents.may_explain(unstamped, same_log, WINDOW, live=False)


# Open incidents


def opened(*matches: Match, live: bool = True) -> OpenIncidents:
    found = OpenIncidents(WINDOW, live=live)
    for incident in condense(matches, WINDOW):
        found.join(incident)
    return found


def signatures(entries: list[Entry]) -> list[str]:
    return [entry.incident.signature for entry in entries]


def test_neighbours_are_given_in_the_order_of_their_first_lines() -> None:
    found = opened(
        match("last_one", 50), match("gpu_fault", 10), match("kernel_one", 5, source="kernel"),
        match("too_late", 71), match("other_job", 10, job="8"), match("first_one", 0),
    )  # fmt: skip
    (entry,) = (e for e in found if e.incident.signature == "gpu_fault")
    assert signatures(found.nearby(entry)) == ["first_one", "kernel_one", "last_one"]


def test_an_incident_is_due_when_its_first_line_was_read_long_enough_ago() -> None:
    found = opened(match("gpu_fault", 0), match("ring_gone", 0, job="8", read_at=NOW + 5))
    assert signatures(found.due(NOW + 14.9, 15.0, found.nearby)) == []
    assert signatures(found.due(NOW + 15, 15.0, found.nearby)) == ["gpu_fault"]
    assert signatures(found.due(NOW + 20, 15.0, found.nearby)) == ["gpu_fault", "ring_gone"]
    found.mark_reported(found.due(NOW + 15, 15.0, found.nearby)[0], told())
    assert signatures(found.due(NOW + 20, 15.0, found.nearby)) == ["ring_gone"]
    assert signatures(found.due(NOW, float("-inf"), found.nearby)) == ["ring_gone"]


def test_neighbours_of_neighbours_are_due_together() -> None:
    chain = [match(f"link_{n}", 50 * n, read_at=NOW + n) for n in range(4)]
    found = opened(*chain, match("too_far", 400, read_at=NOW + 4))
    assert signatures(found.due(NOW + 15, 15.0, found.nearby)) == ["link_0", "link_1", "link_2", "link_3"]


def test_reported_incidents_do_not_settle_others() -> None:
    found = opened(match("gpu_fault", 0))
    found.mark_reported(found.due(NOW + 15, 15.0, found.nearby)[0], told())
    found.join(one(match("ring_gone", 16)))
    assert found.due(NOW + 20, 15.0, found.nearby) == []


def test_a_clock_set_back_does_not_silence_incidents() -> None:
    found = opened(match("gpu_fault", 0))
    assert signatures(found.due(NOW - 3600, 15.0, found.nearby)) == ["gpu_fault"]
    found.mark_reported(found.due(NOW - 3600, 15.0, found.nearby)[0], told())
    assert signatures(found.expired(NOW - 3600)) == ["gpu_fault"]


def test_a_settled_incident_grows_and_stays_reported() -> None:
    found = opened(match("gpu_fault", 0))
    found.mark_reported(found.due(NOW + 15, 15.0, found.nearby)[0], told())
    found.join(one(match("gpu_fault", 40)))
    (entry,) = found
    assert (entry.reported, entry.incident.lines) == (told(), 2)


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_that_turn_out_to_be_one_the_smaller_id_lives_on(first: int) -> None:
    found = opened(match("gpu_fault", 0), match("gpu_fault", 100))
    for number, entry in enumerate(found.due(NOW + 200, 15.0, found.nearby)):
        found.mark_reported(entry, told(number ^ first))
    found.join(one(match("gpu_fault", 50)))
    (entry,) = found
    assert (entry.reported, entry.incident.lines, len(found)) == (told(0), 3, 1)


def test_an_incident_is_let_go_when_nothing_can_join_it_any_more() -> None:
    found = opened(match("gpu_fault", 0), match("waiting", 0, job="8"))
    found.mark_reported(next(iter(found)), told())
    found.join(one(match("gpu_fault", 50)))
    assert signatures(found.expired(NOW + 110)) == []
    (gone,) = found.expired(NOW + 110.1)
    found.remove(gone)
    assert signatures(list(found)) == ["waiting"]


def test_in_a_storm_the_oldest_incidents_settle_and_close_early() -> None:
    found = opened(*(match("gpu_fault", 0, job=str(n), read_at=NOW + n / 1e6) for n in range(MAX_OPEN + 3)))
    early = found.due(NOW + 1, 15.0, found.nearby)
    assert [e.incident.first.job.id for e in early if e.incident.first.job] == ["0", "1", "2"]
    for entry in found.due(NOW + 20, 15.0, found.nearby):
        found.mark_reported(entry, told())
    gone = found.expired(NOW + 20)
    assert sorted(e.incident.first.job.id for e in gone if e.incident.first.job) == ["0", "1", "2"]


def test_unsaved_is_what_changed_since_it_was_saved() -> None:
    found = opened(match("gpu_fault", 0), match("ring_gone", 0))
    a, b = found
    assert found.unsaved() == {a.number: a, b.number: b}
    found.saved()
    assert found.unsaved() == {}
    found.mark_reported(a, told())
    found.remove(b)
    assert found.unsaved() == {a.number: Entry(a.number, a.incident, told()), b.number: None}


def test_numbers_go_on_behind_those_that_were_stored() -> None:
    stored = [Entry(7, one(match("gpu_fault")))]
    found = OpenIncidents(WINDOW, stored)
    assert found.unsaved() == {}
    found.join(one(match("ring_gone")))
    assert sorted(entry.number for entry in found) == [7, 8]


def test_an_incident_of_a_century_is_found_at_both_its_ends() -> None:
    """Times are what users write: a stamp a minute, for a hundred years, is one incident."""
    found = OpenIncidents(WINDOW)
    year = 365 * 86400.0
    long_one = merge(one(match("gpu_fault", 0)), one(match("gpu_fault", 100 * year)))
    found.join(long_one)
    found.join(one(match("ring_gone", 50 * year)))
    found.join(one(match("gpu_fault", 100 * year + 59)))
    found.join(one(match("gpu_fault", -59)))
    entry, other = found
    assert spans([entry.incident]) == [("gpu_fault", -59, 100 * year + 59, 4)]
    assert found.nearby(entry) == [other]
    assert found.nearby(other) == [entry]


def test_what_is_found_is_what_a_search_through_all_would_find() -> None:
    rng = random.Random(7)
    for _ in range(30):
        matches = [
            match(
                rng.choice(["gpu_fault", "ring_gone"]),
                rng.choice([rng.uniform(0, 600), 60.0 * rng.randrange(10)]),
                source=rng.choice(["job", "kernel"]),
                job=rng.choice(["1", "2"]),
                gpu=rng.choice([None, "0000:01:00.0", "0000:02:00.0"]),
            )
            for _ in range(25)
        ]
        found = OpenIncidents(WINDOW)
        for m in matches:
            found.join(one(m))
        everything = list(found)
        for a, b in itertools.combinations(everything, 2):
            assert a.incident.key != b.incident.key or not incidents.within_window(a.incident, b.incident, WINDOW)
        for a in everything:
            expected = [b for b in everything if b is not a and incidents.may_explain(a.incident, b.incident, WINDOW)]
            assert found.nearby(a) == sorted(expected, key=lambda e: e.order)


def test_a_fault_of_every_gpu_is_held_against_those_of_its_own_gpu_alone() -> None:
    found = OpenIncidents(WINDOW)
    gpus = [f"0000:{number:02x}:00.0" for number in range(200)]
    for offset, gpu in enumerate([*gpus, None]):
        for signature in ("gpu_fault", "ring_gone"):
            found.join(one(match(signature, 0.0, source="kernel", gpu=gpu, offset=offset)))
    assert {len(found.nearby(entry)) for entry in found if entry.incident.gpu} == {3}
    assert {len(found.nearby(entry)) for entry in found if not entry.incident.gpu} == {401}
    (fault,) = [e for e in found if e.incident.gpu == gpus[0] and e.incident.signature == "gpu_fault"]
    assert len(found._rows_around(fault.incident, (fault.incident.scope, gpus[0]))) == 2


@pytest.mark.parametrize("apart", [True, False])
def test_thousands_of_incidents_are_joined_and_closed_in_linear_time(apart: bool) -> None:
    """A bound on work, not on time: how often two incidents are compared."""
    looked = 0

    class Counted(OpenIncidents):
        def _around(self, incident: Incident, key: incidents.IndexKey, silence: float) -> list[Entry]:
            nonlocal looked
            around = super()._around(incident, key, silence)
            looked += len(around)
            return around

    found = Counted(WINDOW)
    count = MAX_OPEN
    for n in range(count):
        seconds = n * 61.0 if apart else 0.0  # one log that goes back for days, or all jobs of a node at once
        found.join(one(match("gpu_fault", seconds, job="1" if apart else str(n), read_at=NOW)))
    due = found.due(NOW + 15, 15.0, found.nearby)
    assert len(due) == count
    for entry in due:
        found.mark_reported(entry, told())
    for entry in found.expired(NOW + 100):
        found.remove(entry)
    assert len(found) == 0
    assert looked < 10 * count
