"""Answers are made once for all readers, and anew when anything changed."""

from __future__ import annotations

import threading

import pytest
from starlette.responses import Response

from exporter.fleet.service import page_cache
from exporter.fleet.service.page_cache import PageCache


def test_an_answer_is_made_once_in_a_state() -> None:
    cache, made = PageCache(), []

    def make() -> Response:
        made.append(1)
        return Response(str(len(made)))

    assert [bytes(cache.get(*asked, make).body) for asked in (("/", 1), ("/", 1), ("/nodes", 1), ("/", 2))] == [
        b"1", b"1", b"2", b"3",
    ]  # fmt: skip


def test_an_error_is_not_kept() -> None:
    cache = PageCache()

    def fail() -> Response:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        cache.get("/", 1, fail)
    assert cache.get("/", 1, lambda: Response("there")).body == b"there"


def test_readers_at_the_same_time_wait_for_one_answer() -> None:
    cache, made, begun, go_on = PageCache(), [], threading.Event(), threading.Event()

    def make() -> Response:
        made.append(1)
        begun.set()
        assert go_on.wait(30)
        return Response("answer")

    readers = [threading.Thread(target=cache.get, args=("/", 1, make)) for _ in range(8)]
    readers[0].start()
    assert begun.wait(30)
    for reader in readers[1:]:
        reader.start()
    go_on.set()
    for reader in readers:
        reader.join(30)
    assert made == [1]


def test_the_oldest_answers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "MAX_BYTES", 1000)
    cache = PageCache()
    for name in ("/a", "/b", "/c"):
        cache.get(name, 1, lambda: Response(b"x" * 400))
    assert cache.get("/c", 1, lambda: Response("new")).body != b"new"
    assert cache.get("/a", 1, lambda: Response("new")).body == b"new"
