"""Handles Ctrl-C during a scan: it takes effect between two blocks, so that no block is half processed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stop:
    """Whether the user has asked to stop. Inside `at_once`, and at the second request, KeyboardInterrupt is raised."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: Any = None

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A context for long work that can be interrupted at any point."""
        self._at_once = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or self._at_once:
            raise KeyboardInterrupt
