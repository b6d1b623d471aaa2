"""What the daemon warns of: once each, however many there are, and never for the last time."""

from __future__ import annotations

from exporter.process.own_log import MAX_PER_MINUTE, MAX_REMEMBERED, RateLimitedLog


class Hour:
    """A clock that a test moves, and what was said by it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.heard: list[str] = []
        self.say = RateLimitedLog(self.heard.append, lambda: self.now)


def test_a_message_is_said_once() -> None:
    hour = Hour()
    for _ in range(3):
        hour.say("the disk is full")
        hour.now += 100.0
    assert hour.heard == ["the disk is full"]


def test_there_is_always_something_to_be_said_after_ten_thousand_messages() -> None:
    hour = Hour()
    for number in range(20_000):
        hour.say(f"'{number}.log' is no text")
        hour.now += 2.0
    hour.say("the disk is full")
    assert len(hour.heard) == 20_001
    assert hour.heard[-1] == "the disk is full"


def test_a_flood_of_messages_is_cut_short_and_that_is_said() -> None:
    hour = Hour()
    for number in range(5000):
        hour.say(f"'{number}.log' is no text")
    assert len(hour.heard) == MAX_PER_MINUTE
    hour.now += 60.0
    hour.say("the disk is full")
    assert hour.heard[MAX_PER_MINUTE:] == [
        f"suppressed {5000 - MAX_PER_MINUTE} more warnings in a minute; /metrics has the counts",
        "the disk is full",
    ]


def test_what_was_not_said_in_a_flood_is_said_later_and_a_clock_set_back_silences_nobody() -> None:
    hour = Hour()
    for number in range(MAX_PER_MINUTE + 1):
        hour.say(str(number))
    hour.now -= 5000.0
    hour.say(str(MAX_PER_MINUTE))
    assert hour.heard[-1] == str(MAX_PER_MINUTE)


def test_what_was_said_long_ago_may_be_said_again() -> None:
    hour = Hour()
    for number in (*range(MAX_REMEMBERED + 1), 0):
        hour.say(str(number))
        hour.now += 2.0
    assert hour.heard.count("0") == 2
