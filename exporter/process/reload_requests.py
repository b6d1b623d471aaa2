"""Passes reload requests from the web server and from SIGHUP to the main loop, which goes on while files are loaded."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from exporter.core.text.problems import InvalidInput
from exporter.process.sdnotify import notify

LOAD_SECONDS = 70.0  # compiling 400 signatures takes 2 s; then a file, or its file system, does not answer
REST_SECONDS = 2.0  # between two reloads: each has all logs found again
WAIT_SECONDS = 80.0  # of whoever has asked

T = TypeVar("T")


class ReloadRequests(Generic[T]):
    """The pending requests to reload. Those that come while one is served are served by the next one, together."""

    def __init__(self, wake: Callable[[], None], load: Callable[[], T], *, deadline: float = LOAD_SECONDS) -> None:
        """wake: wakes the main loop; must be safe in a signal handler. load: called in a thread; raises what is wrong."""
        self._wake = wake
        self._load = load
        self._deadline = deadline
        self._lock = threading.Lock()
        self._waiting: list[Future[list[str]]] = []
        self._served: list[Future[list[str]]] = []
        self._loading: Future[T] | None = None
        self._began = 0.0
        self._is_given_up = False
        self._rests_until = 0.0

    def request_and_wait(self) -> list[str]:
        """Request a reload and wait for it, at most WAIT_SECONDS. Returns the problems; empty on success."""
        done: Future[list[str]] = Future()
        with self._lock:
            self._waiting.append(done)
        self._wake()
        try:
            return done.result(timeout=WAIT_SECONDS)
        except TimeoutError:
            return [f"the main loop did not reload within {WAIT_SECONDS:.0f} s; see its log"]

    def request(self) -> None:
        """Request a reload without waiting. May be called from a signal handler."""
        self._waiting.append(Future())  # without the lock, which the interrupted thread may hold
        self._wake()

    def answer(self, apply: Callable[[T], None], tell: Callable[[list[str]], None]) -> None:
        """Begin to load what was asked for, or apply what has been loaded. Called by the main loop in each round.

        apply: raises OSError if it cannot be applied. tell: gets the problems, none on success.
        """
        now = time.monotonic()
        if self._loading is None:
            if self._waiting and now >= self._rests_until:
                self._begin(now)
        elif self._loading.done():
            loading, self._loading = self._loading, None
            if not self._is_given_up:
                self._end(_problems(lambda: apply(loading.result())), tell)
        elif now - self._began > self._deadline and (self._waiting or not self._is_given_up):
            self._is_given_up = True
            what = "a file, or the file system it is on, does not answer; the earlier configuration stays in use"
            self._end([f"loading has not ended for {now - self._began:.0f} s: {what}"], tell)

    def rest(self) -> float:
        """Seconds until a pending request may be served; infinite without one."""
        is_due_later = self._waiting and self._loading is None
        return max(self._rests_until - time.monotonic(), 0.0) if is_due_later else math.inf

    def _begin(self, now: float) -> None:
        self._take_waiting()
        notify("RELOADING=1")
        loading = self._loading = Future()
        self._began, self._is_given_up = now, False

        def load() -> None:
            try:
                loading.set_result(self._load())
            except BaseException as error:
                loading.set_exception(error)
            self._wake()

        threading.Thread(target=load, name="reload", daemon=True).start()

    def _end(self, problems: list[str], tell: Callable[[list[str]], None]) -> None:
        if self._is_given_up:
            self._take_waiting()
        tell(problems)
        notify("READY=1")
        served, self._served = self._served, []
        for done in served:
            with contextlib.suppress(Exception):  # the requester may have given up
                done.set_result(problems)
        self._rests_until = time.monotonic() + REST_SECONDS

    def _take_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        self._served += waiting


def _problems(act: Callable[[], None]) -> list[str]:
    """What is wrong with a user's files, if something is."""
    try:
        act()
    except InvalidInput as error:
        return [str(problem) for problem in error.problems]
    except OSError as error:
        return [str(error)]
    return []
