"""A shortened list of the chat review says how many of its rows are missing."""

from __future__ import annotations

import pytest

from exporter.fleet.report.markdown import _section


@pytest.mark.parametrize(("count", "shown", "more"), [(3, 3, []), (4, 2, ["- and 2 more"]), (11, 2, ["- and 9 more"])])
def test_rows_shown_and_rows_counted_are_all_rows(count: int, shown: int, more: list[str]) -> None:
    rows = [f"row {number}" for number in range(count)]
    assert _section("Next", rows, 3) == ["", "**Next**", *(f"- {row}" for row in rows[:shown]), *more]
