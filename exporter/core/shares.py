"""Shares what there is only so much of among users: none loses a place to another's many."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TypeVar

T = TypeVar("T")


def in_turn(items: Iterable[T], owner: Callable[[T], int | None], owners: Iterable[int | None] = ()) -> Iterator[T]:
    """The items, one of each owner after the other: `owners` last, in their order, before them those of others."""
    queues = _by_owner(items, owner)
    for key in owners:
        if key in queues:
            queues[key] = queues.pop(key)
    while queues:
        for key, queue in list(queues.items()):
            yield queue.popleft()
            if not queue:
                del queues[key]


def most_first(items: Iterable[T], owner: Callable[[T], int | None]) -> Iterator[T]:
    """The items, each the first one of whoever has most of those that are left."""
    queues = _by_owner(items, owner).values()
    largest = [(-len(queue), number, queue) for number, queue in enumerate(queues)]
    heapify(largest)
    while largest:
        _, number, queue = heappop(largest)
        yield queue.popleft()
        if queue:
            heappush(largest, (-len(queue), number, queue))


def _by_owner(items: Iterable[T], owner: Callable[[T], int | None]) -> dict[int | None, deque[T]]:
    queues: dict[int | None, deque[T]] = {}
    for item in items:
        queues.setdefault(owner(item), deque()).append(item)
    return queues
