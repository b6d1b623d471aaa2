"""Rendered pages are kept for a while, by what they depend on."""

from __future__ import annotations

import threading

import pytest

from exporter.fleet.service.page_cache import MAX_BYTES, MAX_SECONDS, PageCache, Rendered


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def page(body: bytes) -> Rendered:
    return Rendered(body=body, headers=())


def test_a_page_is_rendered_once_until_it_is_old() -> None:
    clock = Clock()
    cache, made = PageCache(clock), []

    def render() -> Rendered:
        made.append(1)
        return page(b"x")

    for _ in range(3):
        assert cache.get("/", render).body == b"x"
    assert len(made) == 1
    clock.now = MAX_SECONDS + 1
    cache.get("/", render)
    cache.get("/other", render)
    assert len(made) == 3


def test_readers_wait_for_the_page_that_is_being_rendered() -> None:
    cache, begun, go, made = PageCache(), threading.Event(), threading.Event(), []

    def render() -> Rendered:
        made.append(1)
        begun.set()
        assert go.wait(60)
        return page(b"x")

    readers = [threading.Thread(target=cache.get, args=("/", render)) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert begun.wait(60)
    go.set()
    for reader in readers:
        reader.join(60)
    assert len(made) == 1


def test_an_error_is_not_kept() -> None:
    cache = PageCache()

    def fails() -> Rendered:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("/", fails)
    assert cache.get("/", lambda: page(b"x")).body == b"x"


def test_the_oldest_pages_make_room() -> None:
    cache, made = PageCache(), []

    def render(name: int) -> Rendered:
        made.append(name)
        return page(b"x" * (MAX_BYTES // 4))

    for name in (1, 2, 3, 4, 1, 5, 1, 2):
        cache.get(name, lambda name=name: render(name))  # type: ignore[misc]
    assert made == [1, 2, 3, 4, 5, 2]
