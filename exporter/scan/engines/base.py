"""What every engine has: a place to submit batches to, and what its errors mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from exporter.scan.work import Done, Item, Recipe

if TYPE_CHECKING:
    from concurrent.futures import Future


class Unusable(OSError):
    """An engine cannot run, or no longer: for a person, what is wrong and what to do."""


class Engine(Protocol):
    """Runs `read_batch` elsewhere.

    `width` is how many batches may run or wait; `span_bytes` the length of a part of a large log. A batch has
    `batch_bytes`, and where `batch_seconds` is not 0, as many as a worker was seen to read in that time.
    No fewer than `refill` batches are sent at a time while others run.
    `remote`: the workers are on other machines, which are named where a log cannot be read.
    """

    width: int
    refill: int
    span_bytes: int
    batch_bytes: int
    batch_seconds: float
    remote: bool

    def submit(self, recipe: Recipe, items: Sequence[Item]) -> Future[Done]:
        """Raises Unusable."""

    def loss(self, error: BaseException) -> str:
        """What happened, where an error says that a batch was lost on its way, not what came of it; else nothing."""

    def check(self) -> None:
        """Raises Unusable where nothing will ever come."""

    def close(self, *, at_once: bool) -> None:
        """Let go of all workers; `at_once`: whatever they are at, within a second."""
