"""Requests to reload, from the web server's threads and from SIGHUP, answered by the main loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

from exporter.process.sdnotify import notify

RELOAD_SECONDS = 30.0  # compiling 400 signatures takes 2 s; a busy loop comes round in less than one


class ReloadRequests:
    """Who waits for a reload. `wake` makes the main loop come round; it must be callable from a signal handler."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: list[Future[list[str]]] = []
        self._lock = threading.Lock()

    def ask(self) -> list[str]:
        """Have the main loop reload, and wait for it, a bounded time. The problems found; empty when all is well."""
        done: Future[list[str]] = Future()
        with self._lock:
            self._waiting.append(done)
        self._wake()
        try:
            return done.result(timeout=RELOAD_SECONDS)
        except TimeoutError:
            return [f"the main loop did not come round within {RELOAD_SECONDS:.0f} s; see its log"]

    def from_signal(self) -> None:
        """Ask, and wait for nothing."""
        self._waiting.append(Future())  # without the lock: a handler runs between two steps of the thread that holds it
        self._wake()

    def answer(self, reload: Callable[[], list[str]]) -> None:
        """In the main loop: reload once for all who wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        notify("RELOADING=1")
        problems = reload()
        notify("READY=1")
        for done in waiting:
            with contextlib.suppress(Exception):  # whoever asked may have given up
                done.set_result(problems)
