"""Lets other threads call functions in the main loop, which alone may touch what the daemon holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

CALL_SECONDS = 30.0  # a round of a busy loop takes less than one

T = TypeVar("T")


class MainLoopCalls:
    """The pending calls."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: wakes the main loop."""
        self._wake = wake
        self._pending: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._lock = threading.Lock()

    def call(self, function: Callable[[], T]) -> T:
        """Have the main loop call a function, and return its result. Raises what it raises, and TimeoutError."""
        done: Future[T] = Future()
        with self._lock:
            self._pending.append((done, function))
        self._wake()
        return done.result(timeout=CALL_SECONDS)

    def run_pending(self) -> None:
        """Call what is pending. Called by the main loop."""
        with self._lock:
            pending, self._pending = self._pending, []
        for done, function in pending:
            if not done.set_running_or_notify_cancel():
                continue
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)
