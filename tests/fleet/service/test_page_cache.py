"""Answers are made once for all readers; after a change one thread makes the next while readers get the last."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from starlette.responses import Response

from exporter.fleet.service import page_cache
from exporter.fleet.service.page_cache import LONGEST_SECONDS, NEW_SECONDS, PageCache, State

ONE, TWO = State(seen=1), State(seen=2)


class Made:
    """Answers `1`, `2`, ... in the order in which they are made."""

    def __init__(self) -> None:
        self.count = 0
        self.each = threading.Condition()

    def __call__(self) -> Response:
        with self.each:
            self.count += 1
            self.each.notify_all()
            return Response(str(self.count))

    def wait(self, count: int) -> None:
        with self.each:
            assert self.each.wait_for(lambda: self.count >= count, 30)
        for thread in threading.enumerate():
            if thread.name == "renew-page":
                thread.join(30)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail() -> Response:
    raise ValueError


def body(response: Response) -> bytes:
    return bytes(response.body)


def test_an_answer_is_made_once_in_a_state() -> None:
    cache, make = PageCache(Clock()), Made()
    assert [body(cache.get(path, ONE, make)) for path in ("/", "/", "/nodes", "/")] == [b"1", b"1", b"2", b"1"]


def test_after_a_change_readers_get_the_last_answer_until_the_next_is_made() -> None:
    cache, make = PageCache(Clock()), Made()
    cache.get("/", ONE, make)
    assert body(cache.get("/", TWO, make)) == b"1"
    make.wait(2)
    assert body(cache.get("/", TWO, make)) == b"2"
    assert make.count == 2


def test_readers_do_not_wait_for_a_slow_renewal() -> None:
    cache, begun, go_on = PageCache(Clock()), threading.Event(), threading.Event()

    def slow() -> Response:
        begun.set()
        assert go_on.wait(30)
        return Response("new")

    cache.get("/", ONE, lambda: Response("old"))
    cache.get("/", TWO, slow)
    assert begun.wait(30)
    assert [body(cache.get("/", TWO, fail)) for _ in range(8)] == [b"old"] * 8
    go_on.set()
    Made().wait(0)
    assert body(cache.get("/", TWO, fail)) == b"new"


def test_an_answer_is_renewed_in_time_and_never_served_too_old() -> None:
    clock, make = Clock(), Made()
    cache = PageCache(clock)
    cache.get("/", ONE, make)
    clock.now = NEW_SECONDS + 1
    assert body(cache.get("/", ONE, make)) == b"1"
    make.wait(2)
    clock.now += LONGEST_SECONDS + 1
    assert body(cache.get("/", TWO, make)) == b"3"


def test_an_answer_tells_its_age() -> None:
    clock, make = Clock(), Made()
    cache = PageCache(clock)
    assert cache.get("/", ONE, make).headers["age"] == "0"
    clock.now = 12.0
    assert cache.get("/", ONE, make).headers["age"] == "12"


def test_no_answer_from_before_a_failure_is_served() -> None:
    cache, make = PageCache(Clock()), Made()
    cache.get("/", State(health="well", seen=1), make)
    assert body(cache.get("/", State(health="failed", seen=1), make)) == b"2"


def test_an_error_is_not_kept() -> None:
    cache = PageCache(Clock())
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        cache.get("/", ONE, fail)
    assert body(cache.get("/", ONE, lambda: Response("there"))) == b"there"


def test_after_a_failed_renewal_the_next_reader_gets_the_error_in_time() -> None:
    clock = Clock()
    cache = PageCache(clock)
    cache.get("/", ONE, lambda: Response("old"))
    assert body(cache.get("/", TWO, fail)) == b"old"
    Made().wait(0)
    clock.now = LONGEST_SECONDS + 1
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        cache.get("/", TWO, fail)


def test_readers_at_the_same_time_wait_for_one_answer() -> None:
    cache, made, begun, go_on = PageCache(Clock()), [], threading.Event(), threading.Event()

    def make() -> Response:
        made.append(1)
        begun.set()
        assert go_on.wait(30)
        return Response("answer")

    readers = [threading.Thread(target=cache.get, args=("/", ONE, make)) for _ in range(8)]
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
    cache = PageCache(Clock())
    new: Callable[[], Response] = lambda: Response("new")  # noqa: E731
    for name in ("/a", "/b", "/c"):
        cache.get(name, ONE, lambda: Response(b"x" * 400))
    assert body(cache.get("/c", ONE, new)) != b"new"
    assert body(cache.get("/a", ONE, new)) == b"new"
