"""Requests to reload: served together, not too often, and by a thread that may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from exporter.core.text.problems import InvalidInput, Problem
from exporter.process import main_loop
from exporter.process.main_loop import ReloadRequests


def served(requests: ReloadRequests[int], applied: list[int], *, until: Callable[[], bool]) -> list[list[str]]:
    """What the main loop tells while it goes round."""
    told: list[list[str]] = []
    deadline = time.monotonic() + 60.0
    while not until():
        requests.answer(applied.append, told.append)
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return told


def test_requests_that_come_while_one_is_loaded_are_served_together_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main_loop, "REST_SECONDS", 0.0)
    go, loads, applied = threading.Event(), iter(range(100)), list[int]()

    def load() -> int:
        go.wait(60.0)
        return next(loads)

    requests = ReloadRequests(lambda: None, load)
    requests.request()
    requests.answer(applied.append, lambda _: None)
    for _ in range(50):
        requests.request()
    assert applied == [], "the main loop waits for nothing"
    go.set()
    served(requests, applied, until=lambda: len(applied) == 2)
    requests.answer(applied.append, lambda _: None)
    assert applied == [0, 1]


def test_reloads_leave_time_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_loop, "REST_SECONDS", 3600.0)
    requests, applied = ReloadRequests(lambda: None, lambda: 1), list[int]()
    requests.request()
    served(requests, applied, until=lambda: bool(applied))
    for _ in range(100):
        requests.request()
        requests.answer(applied.append, lambda _: None)
    assert applied == [1]


def test_whoever_asks_is_told_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> int:
        raise InvalidInput([Problem("a.yaml", 1, 2, "node", "wrong")])

    requests = ReloadRequests(lambda: None, load)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(requests.request_and_wait)
        told = served(requests, [], until=asked.done)
    assert told == [["a.yaml:1:2: node: wrong"]] == [asked.result()]


def test_loading_that_never_ends_is_told_and_later_requests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_loop, "REST_SECONDS", 0.0)
    go, applied = threading.Event(), list[int]()

    def load() -> int:
        go.wait(60.0)
        return 1

    requests = ReloadRequests(lambda: None, load, deadline=0.01)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            asked = pool.submit(requests.request_and_wait)
            told = served(requests, applied, until=asked.done)
            assert "does not answer" in asked.result()[0]
            assert told == [asked.result()]
        go.set()
        asked = pool.submit(requests.request_and_wait)
        requests_after = ReloadRequests.request  # the file answers again
        served(requests, applied, until=asked.done)
    assert requests_after is ReloadRequests.request
