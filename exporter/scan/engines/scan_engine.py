"""The interface of engines: submitting batches, and what errors mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from exporter.scan.work import Done, Item, Recipe

if TYPE_CHECKING:
    from concurrent.futures import Future


class Unusable(OSError):
    """An engine cannot run, or cannot continue. The message says what is wrong and what to do."""


class ScanEngine(Protocol):
    """Runs `read_batch` elsewhere.

    width: how many batches may run or wait. span_bytes: size of a part of a large log. batch_bytes: size of the first
    batches; if `batch_seconds` is not 0, later ones have as many bytes as a worker reads in that time. remote: workers are
    on other machines; errors name them.
    """

    width: int
    span_bytes: int
    batch_bytes: int
    batch_seconds: float
    remote: bool

    def submit(self, recipe: Callable[[], Recipe], items: Sequence[Item]) -> Future[Done]:
        """`recipe` gives the same one each time, packed at the first. Raises Unusable."""

    def loss(self, error: BaseException) -> str:
        """Why a batch was lost, if the error says so; empty for an error of the batch itself."""

    def check(self) -> None:
        """Raises Unusable if no result will ever arrive."""

    def close(self, *, at_once: bool) -> None:
        """Release all workers. at_once: within a second, without waiting for their work."""
