"""The signals that a service obeys."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

_held: list[int] = []


def hold_reloads() -> None:
    """Keep SIGHUP for `obey`: until a service can reload it must not end by being asked to."""
    signal.signal(signal.SIGHUP, lambda number, _frame: _held.append(number))


def obey(*, stop: Callable[[], None], reload: Callable[[], None]) -> None:
    """From now on stop at SIGTERM and SIGINT, and reload at SIGHUP. Both are called between two steps of the main thread."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        (reload if number == signal.SIGHUP else stop)()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    if _held:
        _held.clear()
        reload()
