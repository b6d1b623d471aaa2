"""Trends of causes, and last week against the week before, from journals small enough to count by hand."""

from pathlib import Path

import pytest

from exporter.fleet.observations import Window
from exporter.fleet.review.trends import compared, is_clear, sums, trends, week_on_week
from exporter.fleet.review.window_review import review_of
from tests.fleet.review.fleets import DAY, START, TITLES, WEEK, crash, history, journal, watched


def records() -> list[dict[str, object]]:
    return [
        *watched("ab"), crash("a", 15), crash("a", 22), crash("b", 27), crash("b", 26, root_cause="nvlink"),
        crash("b", 25, role="cascade"),
    ]  # fmt: skip


def test_causes_are_counted_in_equal_spans(tmp_path: Path) -> None:
    db = history(journal(tmp_path, records()))
    found = trends(db, Window(start=WEEK.end - 14 * DAY, end=WEEK.end), 2)
    assert found == {("signature", "xid"): [1, 2], ("cause", "nvlink"): [0, 1]}
    assert week_on_week(db, WEEK.end) == {("signature", "xid"): (2, 1), ("cause", "nvlink"): (1, 0)}
    assert sums(week_on_week(db, WEEK.end)) == (3, 1)


@pytest.mark.parametrize(("days", "unit"), [(7, "on the week before"), (21, "(last 7 days on the 7 before)"), (10, "")])
def test_what_is_compared_depends_on_how_far_the_records_reach(tmp_path: Path, days: int, unit: str) -> None:
    db = history(journal(tmp_path, records()))
    window = Window(start=WEEK.end - days * DAY, end=WEEK.end)
    assert window.start > START or days == 21
    found = review_of(db, window, None, TITLES, compare=days == 7)
    counts, told = compared(db, found)
    assert told == unit
    assert (("signature", "xid") in counts) == bool(unit)


def test_a_change_is_clear_only_beyond_chance() -> None:
    assert not is_clear(4, 2)
    assert not is_clear(0, 0)
    assert is_clear(24, 8)
    assert is_clear(8, 24)
