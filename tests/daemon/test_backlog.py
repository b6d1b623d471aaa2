"""A round that leaves much to read is followed by the next one at once."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.daemon.poll_scheduler import BEHIND_BYTES, ROUND_BYTES, PollScheduler


def is_behind_after(*sizes: int, descriptor: int | None = None) -> bool:
    chunks: list[Any] = [SimpleNamespace(data=bytes(size)) for size in sizes]
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: descriptor, poll=lambda _now: chunks)
    rounds = PollScheduler(lambda _source, _chunk: True, lambda _source, _error: None, lambda: None, time.time)
    rounds.read([source])
    return rounds.is_behind


@pytest.mark.parametrize(
    ("sizes", "descriptor", "is_behind"),
    [
        ((), None, False),
        ((100, 100), None, False),
        ((100, BEHIND_BYTES), None, True),
        ((ROUND_BYTES // 16,) * 16, None, True),
        ((100,), 7, True),
    ],
)
def test_a_long_log_many_logs_or_a_journal_may_have_more(
    sizes: tuple[int, ...], descriptor: int | None, is_behind: bool
) -> None:
    assert is_behind_after(*sizes, descriptor=descriptor) == is_behind


def test_a_round_that_read_little_is_not_behind_because_of_an_earlier_one() -> None:
    chunks: list[Any] = [SimpleNamespace(data=bytes(BEHIND_BYTES))]
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: None, poll=lambda _now: chunks)
    rounds = PollScheduler(lambda _source, _chunk: True, lambda _source, _error: None, lambda: None, time.time)
    rounds.read([source])
    chunks.clear()
    rounds.read([source])
    assert not rounds.is_behind
