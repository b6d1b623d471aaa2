"""Answers are made once for all readers, few at a time; after a change readers get the last one while the next is made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from starlette.responses import Response

from exporter.fleet.service import page_cache
from exporter.fleet.service.page_cache import (
    BUSY_SECONDS,
    LONGEST_SECONDS,
    MAX_WAITING,
    NEW_SECONDS,
    Busy,
    PageCache,
    PageState,
)  # fmt: skip

ONE, TWO = PageState(seen=1), PageState(seen=2)


class Made:
    """Answers `1`, `2`, ... in the order in which they are made."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Response:
        self.count += 1
        return Response(str(self.count))


class Slow:
    """An answer that is made when the test says so."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.count = threading.Event(), threading.Event(), 0

    def __call__(self) -> Response:
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(30)
        return Response("slow")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail() -> Response:
    raise ValueError


def with_cache(test: Callable[[PageCache, Clock], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = Clock()
        await asyncio.wait_for(test(PageCache(clock), clock), 60)

    asyncio.run(run())


async def asked(
    cache: PageCache, path: str, state: PageState, make: Callable[[], Response], *, usual: bool = False
) -> str:
    return bytes((await cache.get(path, state, make, usual=usual)).body).decode()


async def all_made(cache: PageCache) -> None:
    while cache._making:
        await asyncio.wait(cache._making.values())


def test_an_answer_is_made_once_in_a_state() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        make = Made()
        assert [await asked(cache, path, ONE, make) for path in ("/", "/", "/nodes", "/")] == ["1", "1", "2", "1"]

    with_cache(test)


def test_after_a_change_readers_get_the_last_answer_until_the_next_is_made() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        make = Made()
        await asked(cache, "/", ONE, make)
        assert await asked(cache, "/", TWO, make) == "1"
        await all_made(cache)
        assert await asked(cache, "/", TWO, make) == "2"
        assert make.count == 2

    with_cache(test)


def test_readers_do_not_wait_for_a_slow_renewal() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        slow = Slow()
        await asked(cache, "/", ONE, lambda: Response("old"))
        await asked(cache, "/", TWO, slow)
        assert [await asked(cache, "/", TWO, fail) for _ in range(8)] == ["old"] * 8
        slow.go_on.set()
        await all_made(cache)
        assert await asked(cache, "/", TWO, fail) == "slow"

    with_cache(test)


def test_an_answer_is_renewed_in_time_and_not_served_when_it_is_old() -> None:
    async def test(cache: PageCache, clock: Clock) -> None:
        make = Made()
        await asked(cache, "/", ONE, make)
        clock.now = NEW_SECONDS + 1
        assert await asked(cache, "/", ONE, make) == "1"
        await all_made(cache)
        clock.now += LONGEST_SECONDS + 1
        assert await asked(cache, "/", TWO, make) == "3"

    with_cache(test)


def test_an_answer_tells_its_age() -> None:
    async def test(cache: PageCache, clock: Clock) -> None:
        make = Made()
        assert (await cache.get("/", ONE, make)).headers["age"] == "0"
        clock.now = 12.0
        assert (await cache.get("/", ONE, make)).headers["age"] == "12"

    with_cache(test)


def test_no_answer_from_before_a_failure_is_served() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        make = Made()
        await asked(cache, "/", PageState(health="well", seen=1), make)
        assert await asked(cache, "/", PageState(health="failed", seen=1), make) == "2"

    with_cache(test)


@pytest.mark.parametrize("failure", [fail, lambda: Response("no such node", 404)], ids=["raised", "answered"])
def test_an_error_is_not_kept(failure: Callable[[], Response]) -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        await asyncio.gather(asked(cache, "/", ONE, failure), return_exceptions=True)
        assert await asked(cache, "/", ONE, lambda: Response("there")) == "there"

    with_cache(test)


def test_after_a_failed_renewal_the_next_reader_gets_the_error_in_time() -> None:
    async def test(cache: PageCache, clock: Clock) -> None:
        await asked(cache, "/", ONE, lambda: Response("old"))
        assert await asked(cache, "/", TWO, fail) == "old"
        await all_made(cache)
        clock.now = LONGEST_SECONDS + 1
        with pytest.raises(ValueError):  # noqa: PT011 - it has no text
            await asked(cache, "/", TWO, fail)

    with_cache(test)


def test_readers_at_the_same_time_wait_for_one_answer() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        slow = Slow()
        readers = asyncio.gather(*(asked(cache, "/", ONE, slow) for _ in range(100)))
        await asyncio.to_thread(slow.begun.wait, 30)
        slow.go_on.set()
        assert await readers == ["slow"] * 100
        assert slow.count == 1

    with_cache(test)


def test_a_reader_who_goes_away_ends_the_answer_of_no_other() -> None:
    async def test(cache: PageCache, _: Clock) -> None:
        slow = Slow()
        first, second = (asyncio.ensure_future(asked(cache, "/", ONE, slow)) for _ in range(2))
        await asyncio.to_thread(slow.begun.wait, 30)
        first.cancel()
        slow.go_on.set()
        assert await second == "slow"

    with_cache(test)


def test_of_a_flood_of_addresses_few_are_made_and_the_rest_is_refused_at_once() -> None:
    async def test(cache: PageCache, clock: Clock) -> None:
        slow = Slow()
        await asked(cache, "/nodes?window=7d", ONE, lambda: Response("kept"))
        await asked(cache, "/", ONE, lambda: Response("kept"), usual=True)
        flood = [asyncio.ensure_future(asked(cache, f"/?end={end}", ONE, slow)) for end in range(48)]
        refused, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_EXCEPTION)
        assert len(refused) == 48 - MAX_WAITING
        assert all(isinstance(reader.exception(), Busy) for reader in refused)
        # Kept answers are served, also when they are old; the usual pages are made all the same.
        assert await asked(cache, "/nodes?window=7d", ONE, fail) == "kept"
        clock.now = BUSY_SECONDS - 1
        assert await asked(cache, "/nodes?window=7d", TWO, fail) == "kept"
        assert await asked(cache, "/", TWO, lambda: Response("new"), usual=True) == "new"
        assert await asked(cache, "/causes", ONE, lambda: Response("first"), usual=True) == "first"
        slow.go_on.set()
        await asyncio.wait(flood)
        assert slow.count == MAX_WAITING
        assert await asked(cache, "/?end=100", ONE, lambda: Response("room")) == "room"

    with_cache(test)


def test_the_oldest_answers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "MAX_BYTES", 1000)

    async def test(cache: PageCache, _: Clock) -> None:
        new: Callable[[], Response] = lambda: Response("new")  # noqa: E731
        for name in ("/a", "/b", "/c"):
            await asked(cache, name, ONE, lambda: Response(b"x" * 400))
        assert await asked(cache, "/c", ONE, new) != "new"
        assert await asked(cache, "/a", ONE, new) == "new"

    with_cache(test)
