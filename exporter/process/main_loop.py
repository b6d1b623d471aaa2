"""What the main loop of a service needs: signals, systemd, and requests from other threads."""

import contextlib
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Generic, TypeVar

from exporter.core.text.problems import InvalidInput

CALL_SECONDS = 30.0  # a round of a busy loop takes less than one
LOAD_SECONDS = 70.0  # compiling 400 signatures takes 2 s; then a file, or its file system, does not answer
REST_SECONDS = 2.0  # between two reloads: each has all logs found again
WAIT_SECONDS = 80.0  # of the requester
_PIPE_BYTES = 1 << 16

T = TypeVar("T")
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


def notify(state: str) -> None:
    """Send one state, such as `READY=1`, to the socket in NOTIFY_SOCKET (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
    ):
        channel.sendto(state.encode(), address)


class Waker:
    """Sleeps until a descriptor is readable, `wake` is called, or a timeout expires."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the current or the next `wait`. From any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so `wait` returns anyway
            os.write(self._write, b"!")

    def wait(self, descriptors: Iterable[int], seconds: float) -> bool:
        """Sleep until one of `descriptors` is readable or `wake` is called, at most `seconds`; whether `wake` was."""
        poll = select.poll()
        for descriptor in (self._read, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        return self.clear()

    def clear(self) -> bool:
        """Forget earlier calls of `wake`; whether there were any."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._read, _PIPE_BYTES))
        return False

    def fileno(self) -> int:
        """A descriptor that is readable after `wake`, for the wait of another."""
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class MainLoopCalls:
    """The pending calls."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: wakes the main loop."""
        self._wake = wake
        self._pending: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._lock = threading.Lock()

    def call(self, function: Callable[[], T]) -> T:
        """Have the main loop call a function, and return its result. Raises what it raises, and TimeoutError."""
        answer: Future[T] = Future()
        with self._lock:
            self._pending.append((answer, function))
        self._wake()
        return answer.result(timeout=CALL_SECONDS)

    def run_pending(self) -> None:
        """Call what is pending. Called by the main loop."""
        with self._lock:
            pending, self._pending = self._pending, []
        for answer, function in pending:
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(function())
            except Exception as error:
                answer.set_exception(error)


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
        answer: Future[list[str]] = Future()
        with self._lock:
            self._waiting.append(answer)
        self._wake()
        try:
            return answer.result(timeout=WAIT_SECONDS)
        except TimeoutError:
            return [f"the main loop did not reload within {WAIT_SECONDS:.0f} s; see its log"]

    def request(self) -> None:
        """Request a reload without waiting. May be called from a signal handler."""
        self._waiting.append(Future())  # without the lock, which the interrupted thread may hold
        self._wake()

    def answer(self, apply: Callable[[T], None], report: Callable[[list[str]], None]) -> None:
        """Start to load, or apply what has been loaded. Called by the main loop in each round.

        apply: raises OSError if it cannot be applied. report: gets the problems, none on success.
        """
        now = time.monotonic()
        if self._loading is None:
            if self._waiting and now >= self._rests_until:
                self._begin(now)
        elif self._loading.done():
            loading, self._loading = self._loading, None
            if not self._is_given_up:
                self._end(_problems(lambda: apply(loading.result())), report)
        elif now - self._began > self._deadline and (self._waiting or not self._is_given_up):
            self._is_given_up = True
            reason = "a file, or the file system it is on, does not answer; the earlier configuration stays in use"
            self._end([f"loading has not ended for {now - self._began:.0f} s: {reason}"], report)

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

    def _end(self, problems: list[str], report: Callable[[list[str]], None]) -> None:
        if self._is_given_up:
            self._take_waiting()
        report(problems)
        notify("READY=1")
        served, self._served = self._served, []
        for answer in served:
            with contextlib.suppress(Exception):  # the requester may have given up
                answer.set_result(problems)
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
