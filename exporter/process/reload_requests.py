"""Passes reload requests from the web server and from SIGHUP to the main loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

from exporter.process.sdnotify import notify

RELOAD_SECONDS = 30.0  # compiling 400 signatures takes 2 s; a round of a busy loop less than one


class ReloadRequests:
    """The pending requests to reload."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: wakes the main loop; must be safe in a signal handler."""
        self._wake = wake
        self._waiting: list[Future[list[str]]] = []
        self._lock = threading.Lock()

    def request_and_wait(self) -> list[str]:
        """Request a reload and wait for it, at most RELOAD_SECONDS. Returns the problems; empty on success."""
        done: Future[list[str]] = Future()
        with self._lock:
            self._waiting.append(done)
        self._wake()
        try:
            return done.result(timeout=RELOAD_SECONDS)
        except TimeoutError:
            return [f"the main loop did not reload within {RELOAD_SECONDS:.0f} s; see its log"]

    def request(self) -> None:
        """Request a reload without waiting. May be called from a signal handler."""
        self._waiting.append(Future())  # without the lock, which the interrupted thread may hold
        self._wake()

    def answer(self, reload: Callable[[], list[str]]) -> None:
        """Reload once and answer all pending requests. Called by the main loop."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        notify("RELOADING=1")
        problems = reload()
        notify("READY=1")
        for done in waiting:
            with contextlib.suppress(Exception):  # the requester may have given up
                done.set_result(problems)
