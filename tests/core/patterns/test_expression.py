"""A search runs out of time by what the pattern takes, and not by what other threads do meanwhile, or the machine."""

from __future__ import annotations

import threading
import time
from unittest.mock import Mock

import pytest
import regex

from exporter.core.patterns import expression
from exporter.core.patterns.expression import TIMEOUT_SECONDS, TRIES, Expression, search_in_time

TURNS = 10  # of the other thread; about every second one meets a search


def out_of_time(times: int) -> Mock:
    """A pattern whose first searches run out of time."""
    found = regex.search("GPU fault", "GPU fault")
    return Mock(search=Mock(side_effect=[*[TimeoutError] * times, found]))


def test_what_is_found_at_the_last_try_counts() -> None:
    one = Expression("GPU fault")
    one._compiled = out_of_time(TRIES - 1)
    assert one.find("GPU fault")


def test_a_pattern_that_runs_out_of_time_again_and_again_is_slow() -> None:
    slow = out_of_time(TRIES)
    with pytest.raises(TimeoutError):
        search_in_time(slow, "GPU fault")
    assert slow.search.call_count == TRIES


class Hog:
    """A thread that keeps the interpreter for longer than a search may take, as a collection of garbage does, in each turn."""

    def __init__(self) -> None:
        self.turns = 0
        self._count = int(1.5 * TIMEOUT_SECONDS / _cpu_of(1_000_000) * 1_000_000)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Hog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            sum(range(self._count))
            self.turns += 1


def _cpu_of(count: int) -> float:
    started = time.thread_time()
    sum(range(count))
    return time.thread_time() - started


def test_the_time_of_another_thread_is_not_that_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "TRIES", 1)
    compiled = regex.compile(r"line seq=\d*1 ends")
    with Hog() as hog:
        while hog.turns < TURNS:
            assert search_in_time(compiled, "line seq=121 ends")
