"""Matches that come one after another share commits; a crash of a few lines is committed at once."""

from __future__ import annotations

from exporter.daemon.commit_pace import BURST_SECONDS, INTERVAL_SECONDS, CommitPace


def commits(times: list[float]) -> list[float]:
    """When matches at these times would be committed."""
    pace, done = CommitPace(), list[float]()
    for time in times:
        if pace.seconds_left(time) <= 0:
            pace.committed(time)
            done.append(time)
    return done


def test_the_first_matches_after_a_rest_are_committed_at_once() -> None:
    assert commits([1000.0, 1000.001, 1000.002]) == [1000.0, 1000.001, 1000.002]


def test_a_storm_is_committed_ten_times_a_second() -> None:
    storm = [1000.0 + number / 1000 for number in range(10_000)]
    assert 100 <= len(commits(storm)) <= 100 + BURST_SECONDS / INTERVAL_SECONDS + 1


def test_no_match_of_a_storm_waits_longer_than_an_interval() -> None:
    pace, waits = CommitPace(), list[float]()
    for number in range(1000):
        now = 1000.0 + number / 1000
        waits.append(pace.seconds_left(now))
        if waits[-1] <= 0:
            pace.committed(now)
    assert max(waits) < 1.01 * INTERVAL_SECONDS


def test_a_clock_that_was_set_back_does_not_hold_up_commits() -> None:
    pace = CommitPace()
    pace.committed(2000.0)
    pace.committed(1000.0)
    assert pace.seconds_left(1000.0) < 1.5 * INTERVAL_SECONDS
