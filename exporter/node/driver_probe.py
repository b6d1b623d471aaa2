"""Asks the drivers of the GPUs what they want done, in a process of its own with a deadline; see `probes.ask_driver`.

Once at the start, and again while a node fault is open: the driver's own word confirms or withdraws what the kernel log
says. Whatever fails here changes nothing else.
"""

import subprocess
import sys
import threading
from collections.abc import Collection, Sequence

from exporter.core.facts.driver_answer import DriverAnswer, driver_answer
from exporter.core.model import Moment
from exporter.probes.ask_driver import ASKED
from exporter.sources.boot import moment

COMMAND = (sys.executable, "-P", "-m", "exporter.probes.ask_driver")
DEADLINE_SECONDS = 20.0  # without persistence mode a driver initialises eight GPUs first
AGAIN_SECONDS = 30.0  # while a fault is open that the driver may withdraw; doubled each time
AT_MOST_SECONDS = 600.0  # between two times; also after a failure
PROBE = "driver"  # its name among the probes


class DriverProbe:
    """answer: the latest one; None until one is there."""

    def __init__(self, command: Sequence[str] = COMMAND, deadline: float = DEADLINE_SECONDS) -> None:
        self._command, self._deadline = command, deadline
        self._worker: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pending: DriverAnswer | None = None
        self._asked: float | None = None
        self._wait = AGAIN_SECONDS
        self._about: frozenset[str] = frozenset()
        self.answer: DriverAnswer | None = None

    @property
    def failed(self) -> dict[str, str]:
        return dict(self.answer.failed) if self.answer else {}

    def poll(self, now: float, vendors: Collection[str], open_faults: frozenset[str]) -> DriverAnswer | None:
        """Ask if it is time to. Returns a new answer, once. open_faults: what the driver may confirm or withdraw."""
        if self._worker and self._worker.is_alive():
            return None
        if ASKED.keys().isdisjoint(vendors):
            self.answer = self._pending = self._asked = None
            return None
        new, self._pending = self._pending, None
        self.answer = new or self.answer
        if new is None and self._is_due(now, open_faults):
            self._asked, self._about = now, open_faults
            self._worker = threading.Thread(target=self._ask, args=(vendors, moment(now)), name="driver", daemon=True)
            self._worker.start()
        return new

    def _is_due(self, now: float, open_faults: frozenset[str]) -> bool:
        if self._asked is None or open_faults != self._about:  # one has opened, or the last one is gone
            self._wait = AGAIN_SECONDS
            return True
        wait = self._wait if open_faults else AT_MOST_SECONDS if self.failed else None
        if wait is None or 0 <= now - self._asked < wait:
            return False
        self._wait = min(2 * self._wait, AT_MOST_SECONDS)
        return True

    def ask(self, vendors: Collection[str], asked_at: Moment) -> DriverAnswer:
        """The drivers' answer, within the deadline. A process that hangs in the kernel cannot be killed: it is left alone."""

        def failed(why: str) -> DriverAnswer:
            return DriverAnswer(asked_at=asked_at, failed={PROBE: why})

        if self._child and self._child.poll() is None:
            return failed("still hangs since it was asked before")
        try:
            child = self._child = subprocess.Popen(  # noqa: S603 (ourselves)
                [*self._command, *sorted(ASKED.keys() & set(vendors))],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return failed(str(error))
        try:
            output, _ = child.communicate(timeout=self._deadline)
        except subprocess.TimeoutExpired:
            child.kill()
            return failed(f"no answer within {self._deadline:g} s")
        try:
            return driver_answer(output.decode(), asked_at)
        except ValueError:
            return failed(f"the process that asks ended with {child.returncode}")

    def _ask(self, vendors: Collection[str], asked_at: Moment) -> None:
        self._pending = self.ask(vendors, asked_at)
