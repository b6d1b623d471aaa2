"""Handlers of the signals that stop and reload a service."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

_deferred: list[int] = []


def defer_reloads() -> None:
    """Record SIGHUP until `install_handlers` is called: its default action would end the process."""
    signal.signal(signal.SIGHUP, lambda number, _frame: _deferred.append(number))


def install_handlers(*, stop: Callable[[], None], reload: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM and SIGINT, and `reload` at SIGHUP, in the main thread; at once for a deferred SIGHUP."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        (reload if number == signal.SIGHUP else stop)()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    if _deferred:
        _deferred.clear()
        reload()
