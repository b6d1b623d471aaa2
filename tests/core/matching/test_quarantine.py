"""A rule that runs out of time on one log is off for that log alone, and for a while."""

from __future__ import annotations

from exporter.core.matching.pipeline import Pipeline, Processed
from exporter.core.matching.quarantine import MAX_LOGS, MAX_TIMEOUTS, SECONDS, Quarantine, Quarantined
from exporter.core.matching.verdict_cache import ANALYSE_AFTER
from exporter.core.model import Chunk
from tests.support.matches import catalogue_of

NOW = 1_000_000.0


def run_out(quarantine: Quarantine, log: str, now: float = NOW, times: int = MAX_TIMEOUTS) -> None:
    quarantine.begin(log, f"/{log}", now)
    for _ in range(times):
        quarantine.ran_out("slow", "slow")


def test_it_holds_for_one_log_and_for_a_while() -> None:
    quarantine = Quarantine()
    run_out(quarantine, "a.log")
    assert quarantine.is_off("slow")
    assert quarantine.begun() == (Quarantined("slow", "/a.log", NOW + SECONDS),)
    assert quarantine.begun() == (), "told once"
    quarantine.begin("b.log", "/b.log", NOW)
    assert not quarantine.is_off("slow")
    quarantine.begin("a.log", "/a.log", NOW + SECONDS - 1)
    assert quarantine.is_off("slow")
    assert quarantine.at(NOW + SECONDS) == ()
    quarantine.begin("a.log", "/a.log", NOW + SECONDS)
    assert not quarantine.is_off("slow")
    assert quarantine.timeouts == {"slow": MAX_TIMEOUTS}, "the count is of the node, and stays"


def test_timeouts_far_apart_are_no_reason() -> None:
    quarantine = Quarantine()
    for number in range(2 * MAX_TIMEOUTS):
        run_out(quarantine, "a.log", NOW + number * SECONDS, times=1)
        assert not quarantine.is_off("slow")


def test_it_ends_when_the_clock_is_set_back_and_when_the_log_is_gone() -> None:
    quarantine = Quarantine()
    run_out(quarantine, "a.log")
    quarantine.begin("a.log", "/a.log", NOW - 1)
    assert not quarantine.is_off("slow")
    run_out(quarantine, "a.log")
    quarantine.forget("a.log")
    assert quarantine.at(NOW) == ()


def test_its_memory_is_bounded_and_what_is_forgotten_is_tried_again() -> None:
    quarantine = Quarantine()
    for number in range(MAX_LOGS + 9):
        run_out(quarantine, f"{number}.log")
    assert len(quarantine.at(NOW)) == MAX_LOGS
    quarantine.begin("0.log", "/0.log", NOW)
    assert not quarantine.is_off("slow")


SLOW = """
signatures:
  - {id: slow_one, patterns: ['(x+x+)+[yw]+ GPU fault']}
  - {id: gpu_fault, patterns: ['GPU fault']}
"""
HOSTILE = b"x" * 5000 + b"z GPU fault\n"


def process(pipeline: Pipeline, log: str, data: bytes, now: float = NOW) -> Processed:
    path = f"/{log}"
    chunk = Chunk(
        log=log, origin=path, path=path, source="job", format="plain", offset=0, line=1, data=data, read_at=now
    )
    return pipeline.process(chunk)


def signatures(done: Processed) -> list[str]:
    return [match.signature for match in done.matches]


def test_what_a_line_shows_while_a_rule_is_off_is_not_remembered_for_other_logs() -> None:
    pipeline = Pipeline(catalogue_of(SLOW))
    done = process(pipeline, "mallory.log", HOSTILE * MAX_TIMEOUTS)
    assert [one.id for one in done.quarantined] == ["slow_one"]
    flood = b"".join(b"xxy GPU fault %d\n" % number for number in range(2 * ANALYSE_AFTER))
    assert set(signatures(process(pipeline, "mallory.log", flood))) == {"gpu_fault"}
    assert sorted(set(signatures(process(pipeline, "alice.log", flood)))) == ["gpu_fault", "slow_one"]
    assert sorted(set(signatures(process(pipeline, "mallory.log", flood, NOW + SECONDS)))) == ["gpu_fault", "slow_one"]


def test_searches_that_are_slow_without_running_out_of_time_are_charged_to_their_log() -> None:
    """A line can lead to a hundred rules, none of which takes 50 ms."""
    quarantine = Quarantine()
    quarantine.begin("a", "/a.log", 0.0)
    for number in range(100):
        quarantine.took(f"rule {number}", f"rule {number}", 0.029)
    assert quarantine.off == frozenset()
    quarantine.took("quick", "quick", 0.0001)
    for number in range(10):
        quarantine.took(f"rule {number}", f"rule {number}", 0.029)
    assert "rule 0" in quarantine.off
    assert "quick" not in quarantine.off
    assert quarantine.at(599.0)
    assert quarantine.at(601.0) == ()
    quarantine.begin("b", "/b.log", 1.0)
    assert quarantine.off == frozenset()


def test_ten_minutes_later_a_log_has_its_time_anew() -> None:
    quarantine = Quarantine()
    for minute in range(30):
        quarantine.begin("a", "/a.log", minute * 60.0)
        quarantine.took("rule", "rule", 0.25)
        assert quarantine.off == frozenset()
