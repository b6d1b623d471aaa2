"""News of files waits for a round's time; signals, requests and records that may be overwritten do not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.daemon.sleep import ROUND_SECONDS, Sleep

LONG = 30.0


class Pipe:
    """A source with a descriptor."""

    def __init__(self, *, overwritten: bool) -> None:
        self.overwritten = overwritten
        self.read, self.write = os.pipe()

    def fileno(self) -> int:
        return self.read


@pytest.fixture
def kernel() -> Iterator[Pipe]:
    pipe = Pipe(overwritten=True)
    yield pipe
    os.close(pipe.read)
    os.close(pipe.write)


def took(sleep: Sleep, sources: Any = (), seconds: float = LONG) -> float:
    begun = time.monotonic()
    sleep.until_news(sources, seconds)
    return time.monotonic() - begun


@pytest.fixture
def sleep() -> Sleep:
    """One that files have just woken."""
    sleep = Sleep()
    sleep.news.wake()
    sleep.until_news([], LONG)
    return sleep


def test_files_that_have_news_again_wait_for_the_rest_of_the_round(sleep: Sleep) -> None:
    begun = sleep._woken
    sleep.news.wake()
    sleep.until_news([], LONG)
    assert ROUND_SECONDS <= time.monotonic() - begun < LONG


def test_news_after_a_rest_is_not_held_up(sleep: Sleep) -> None:
    sleep._woken -= ROUND_SECONDS
    before = sleep._woken
    sleep.news.wake()
    assert took(sleep) < LONG
    assert sleep._woken > before


def test_a_request_does_not_wait_for_the_round(sleep: Sleep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.daemon.sleep.ROUND_SECONDS", LONG)
    sleep.waker.wake()
    assert took(sleep) < LONG
    sleep.waker.wake()
    sleep.pause([], LONG)
    assert time.monotonic() - sleep._woken < LONG


def test_a_kernel_record_does_not_wait_for_the_round(
    sleep: Sleep, kernel: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.daemon.sleep.ROUND_SECONDS", LONG)
    sleep.news.wake()
    os.write(kernel.write, b"!")
    assert took(sleep, [kernel]) < LONG


def test_a_commit_that_is_due_does_not_wait_for_the_round(sleep: Sleep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.daemon.sleep.ROUND_SECONDS", LONG)
    sleep.news.wake()
    assert took(sleep, seconds=0.01) < LONG


def test_a_source_without_descriptor_is_only_told_of_by_news(sleep: Sleep) -> None:
    source: Any = SimpleNamespace(overwritten=False, fileno=lambda: None)
    sleep.news.wake()
    assert took(sleep, [source]) < LONG
