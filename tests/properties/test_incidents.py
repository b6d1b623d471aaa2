"""Incidents and their causes depend on what happened, not on how and when we learnt of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.diagnosis.assessment import Diagnosis
from exporter.core.diagnosis.incident_tracker import IncidentTracker
from exporter.core.diagnosis.incidents import within_window
from exporter.core.diagnosis.open_incidents import group
from exporter.core.model import LogContext, Match
from tests.support.matches import NOW, WINDOW, catalogue_of, match

SETTLE = 15.0
FACTS = {"rocm": "6.2"}
CATALOGUE = catalogue_of("""
signatures:
  - {id: gpu_fault, sources: [job, kernel], patterns: ['aaaa']}
  - {id: cuda_error, patterns: ['bbbb'], follows: [xid_79, gpu_fault]}
  - {id: xid_79, sources: [kernel], patterns: ['cccc']}
  - {id: second_view, sources: [job, kernel], role: confirmation, patterns: ['dddd']}
  - {id: nccl_abort, role: cascade, patterns: ['eeee'], follows: ['cuda_*']}
  - {id: warning, role: context, patterns: ['ffff']}
  - {id: ring_a, patterns: ['gggg'], follows: [ring_b]}
  - {id: ring_b, patterns: ['hhhh'], follows: [second_view, ring_a, warning]}
root_causes:
  - {id: bad_stack, signatures: ['*_fault', ring_a], when: {all: [{fact: rocm, version: '<7'}, {match: warning}]}}
  - {id: bad_rank, signatures: [cuda_error], when: {capture: rank, equals: '1'}}
  - {id: bad_node, signatures: [gpu_fault, xid_79], verdict: infrastructure, when: {match: second_view},
     supported_by: [{fact: torch, equals: '2.6'}]}
""")
IN_JOBS = [s.id for s in CATALOGUE.signatures.values() if "job" in s.sources]
IN_KERNEL = [s.id for s in CATALOGUE.signatures.values() if "kernel" in s.sources]


@st.composite
def matches(draw: st.DrawFn, at: st.SearchStrategy[float]) -> list[Match]:
    """Matches of one node, each at an offset of its own."""
    found = []
    for number in range(draw(st.integers(1, 14))):
        of_job = draw(st.booleans())
        found.append(
            match(
                draw(st.sampled_from(IN_JOBS if of_job else IN_KERNEL)),
                draw(at),
                source="job" if of_job else "kernel",
                job=draw(st.sampled_from(["1", "2", None])),
                path=draw(st.sampled_from(["/a.log", "/b.log"])) if of_job else "/dev/kmsg",
                offset=number,
                line=number + 1,
                gpu=draw(st.sampled_from([None, "0000:01:00.0", "0000:02:00.0"])),
                captures=draw(st.sampled_from([{}, {"rank": "1"}, {"rank": "2"}])),
                context=draw(st.sampled_from([LogContext(), LogContext(facts={"torch": "2.6"})])),
                text=f"line {number}",
                read_at=NOW,
            )
        )
    return found


# The hazard of windows is their edge: distances of a window, and a little less and more.
SECONDS = st.sampled_from([0.0, 1.0, 10.0, 30.0, 59.9, 60.0, 60.1, 90.0, 119.9, 120.0, 180.0])


def casebook(stored: dict[str, str] | None = None, *, live: bool = True) -> IncidentTracker:
    return IncidentTracker(CATALOGUE, "node", window=WINDOW, settle=SETTLE, stored=stored, live=live)


def told(diagnoses: Sequence[Diagnosis]) -> list[tuple[object, ...]]:
    """All that a diagnosis tells, whenever it was told."""
    return sorted(
        (
            d.id, d.incident.signature, d.role, d.root_cause, d.caused_by or "", d.verdict, d.evidence,
            d.incident.lines, d.incident.last_time, tuple(m.offset for m in d.incident.matches),
        )
        for d in diagnoses
    )  # fmt: skip


def settled(found: Sequence[Match]) -> list[tuple[object, ...]]:
    """What comes of matches that arrive all at once, in their order."""
    book = casebook()
    book.add(sorted(found, key=lambda m: m.order))
    return told(book.settle(NOW + SETTLE, lambda _: FACTS))


@given(st.data(), matches(SECONDS))
def test_any_order_of_arrival_and_any_restart_gives_the_same_incidents(data: st.DataObject, found: list[Match]) -> None:
    arriving = data.draw(st.permutations(found))
    book, stored = casebook(), dict[str, str]()
    while arriving:
        batch = data.draw(st.integers(1, len(arriving)))
        book.add(arriving[:batch])
        arriving = arriving[batch:]
        if data.draw(st.booleans()):  # killed
            for number, text in book.unsaved().items():
                if text is None:
                    stored.pop(number, None)
                else:
                    stored[number] = json.loads(json.dumps(text))
            book = casebook(dict(stored))
    assert told(book.settle(NOW + SETTLE, lambda _: FACTS)) == settled(found)


@given(matches(SECONDS))
def test_matches_belong_together_exactly_while_no_silence_parts_them(found: list[Match]) -> None:
    incidents = group(found, WINDOW)
    assert sum(incident.lines for incident in incidents) == len(found)
    for a in incidents:
        times = sorted(m.time for m in a.matches)
        assert all(later - earlier <= WINDOW for earlier, later in itertools.pairwise(times))
        assert not any(within_window(a, b, WINDOW) for b in incidents if b is not a and b.key == a.key)


@given(matches(SECONDS))
def test_every_episode_has_a_root_and_every_consequence_a_reported_one(found: list[Match]) -> None:
    book = casebook()
    book.add(found)
    diagnoses = book.settle(NOW + SETTLE, lambda _: FACTS)
    roots = {d.id for d in diagnoses if d.role == "root"}
    assert len({d.id for d in diagnoses}) == len(diagnoses)
    assert all(d.caused_by in roots if d.role == "cascade" else d.caused_by is None for d in diagnoses)
    shown = {m.signature for m in found} - {"warning"}
    assert bool(roots) == bool(shown)


@given(st.lists(matches(st.floats(0, 10).map(lambda seconds: round(seconds, 2))), min_size=1, max_size=3))
def test_a_daemon_tells_of_the_same_incidents_as_a_scan(episodes: list[list[Match]]) -> None:
    """Where an episode is over before its first incident settles, that is: what comes later changes no count."""
    found = [
        match(
            m.signature, m.time - NOW + 300 * number, source=m.source, job=m.job, path=m.path, origin=m.origin, gpu=m.gpu,
            offset=1000 * number + m.offset, captures=m.captures, context=m.context, text=m.text,
        )
        for number, episode in enumerate(episodes)
        for m in episode
    ]  # fmt: skip
    scan = casebook(live=False)
    scan.add(found)
    offline = scan.settle(NOW, lambda _: FACTS, everything=True)
    daemon, online = casebook(), []
    arriving = sorted(found, key=lambda m: m.time)
    for second in range(300 * len(episodes) + 100):
        now = NOW + second
        daemon.add([m for m in arriving if now - 1 < m.time <= now])
        online += daemon.settle(now, lambda _: FACTS)
        assert daemon.close_expired(now, lambda _: FACTS) == []  # nothing grew after it was told of
    assert told(online) == told(offline)
    assert daemon.incidents() == []
