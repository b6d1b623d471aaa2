"""What a file's time tells when the clock that gave it was set back."""

from __future__ import annotations

import pytest

from exporter.sources.files.register import MINUTE_NS, SECOND_NS, SetBack

NOON = 1_800_000_000 * SECOND_NS
HOUR = 3600 * SECOND_NS


@pytest.mark.parametrize(
    ("times", "stamp", "since"),
    [
        ([], -5 * HOUR, -5 * HOUR),
        ([], HOUR, -MINUTE_NS),  # it was set back while nobody looked
        ([], MINUTE_NS, MINUTE_NS),  # a server's clock is ahead
        ([HOUR], HOUR // 2, HOUR // 2),
        ([-HOUR], 0, -HOUR - MINUTE_NS),
        ([-HOUR], -2 * HOUR, -2 * HOUR),
        ([-HOUR, HOUR], HOUR, HOUR),  # of later times, each is over once
        ([-HOUR, -HOUR // 2, -2 * HOUR], 0, -2 * HOUR - MINUTE_NS),
        ([-HOUR, 9 * HOUR, 8 * HOUR], 0, 0),  # the last one counts
        ([-SECOND_NS // 2], 0, 0),
    ],
)
def test_what_was_written_later_may_have_an_earlier_time(times: list[int], stamp: int, since: int) -> None:
    clock = SetBack(NOON)
    for time in times:
        clock.observe(NOON + time)
    assert clock.since(NOON + stamp) - NOON == since
